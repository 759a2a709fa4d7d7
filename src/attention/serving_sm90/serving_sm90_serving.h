/* attention_serving_sm90 among the families that compute serving problems: serving_family.h. */
#ifndef KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_SERVING_H
#define KJIT_ATTENTION_SERVING_SM90_SERVING_SM90_SERVING_H

#include "attention/serving/serving_family.h"
#include "attention/serving_sm90/serving_sm90_config.h"

extern const struct serving_family serving_sm90_serving_family;

/* The problem is one for the kernel of few tiles (one_part), each of which several multiprocessors share. Pure. */
bool serving_sm90_is_for_one_part(const struct serving_problem *problem, uint32_t multiprocessors);

/* The same for the kernel with runs, for more tiles. */
bool serving_sm90_is_for_runs(const struct serving_problem *problem, uint32_t multiprocessors);

/* The launch's argument, a struct attention_serving_sm90_params: serving_family.argument. KJIT_ERR_UNSUPPORTED names
 * the tensor that the driver does not map. Thread-safe. */
kjit_status serving_sm90_argument(kjit_runtime *runtime, const int32_t *values,
                                  const struct attention_serving_params *params, void *argument, kjit_error *error);

/* The same. `*is_again` becomes true when the maps of these tensors were still there; NULL: nobody wants to know. With
 * `gathered` there are none. */
kjit_status serving_sm90_encode(kjit_runtime *runtime, const int32_t *values,
                                const struct attention_serving_params *params, void *argument, bool *is_again,
                                kjit_error *error);

/* Choose the config of the kernel with one_part. False where the problem is not for that kernel. Pure. */
bool serving_sm90_choose_one_part(const struct serving_problem *problem, uint32_t multiprocessors,
                                  struct serving_sm90_config *out);

/* Give a config with one_part, of 16-bit keys and values, the tile of up to 64 rows. Pure. */
void serving_sm90_set_few_rows(struct serving_sm90_config *config);

#endif
