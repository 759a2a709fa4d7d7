/* attention_prefill_sm90 among the families that compute serving problems: serving_family.h. */
#ifndef KJIT_ATTENTION_PREFILL_PREFILL_SERVING_H
#define KJIT_ATTENTION_PREFILL_PREFILL_SERVING_H

#include "attention/serving/serving_family.h"

extern const struct serving_family prefill_serving_family;

/* The launch's argument, a struct attention_prefill_params: serving_family.argument. KJIT_ERR_UNSUPPORTED names the
 * tensor that the driver does not map. Thread-safe. */
kjit_status prefill_argument(kjit_runtime *runtime, const int32_t *values,
                             const struct attention_serving_params *params, void *argument, kjit_error *error);

#endif
