/* attention_serving_sm90 among the families that compute serving problems: serving_family.h. */
#ifndef KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_SERVING_H
#define KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_SERVING_H

#include "attention/serving/serving_family.h"

extern const struct serving_family serving_sm90_serving_family;

/* The problem is one for the kernel of few tiles (one_part), each of which several multiprocessors share. Pure. */
bool serving_sm90_is_for_one_part(const struct serving_problem *problem, uint32_t multiprocessors);

/* The launch's argument, a struct attention_serving_sm90_params: serving_family.argument. KJIT_ERR_UNSUPPORTED names
 * the tensor that the driver does not map. Thread-safe. */
kjit_status serving_sm90_argument(kjit_runtime *runtime, const int32_t *values,
                                  const struct attention_serving_params *params, void *argument, kjit_error *error);

#endif
