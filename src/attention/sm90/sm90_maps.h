/* Tensor maps of calls, kept while the same tensors come again: encoding four takes a microsecond, finding them some
 * tens of nanoseconds. */
#ifndef KJIT_ATTENTION_SM90_SM90_MAPS_H
#define KJIT_ATTENTION_SM90_SM90_MAPS_H

#include <stdbool.h>

#include <kjit/attention_sm90.h>

#include "attention_sm90/params.h"
#include "base/threads/recent.h"

/* NULL when out of memory. `mem` must outlive it. */
struct recent *sm90_maps_create(const struct mem *mem);

/* Put the maps of checked arguments, for a config, into params->q, k, v, o. KJIT_ERR_UNSUPPORTED names the tensor that
 * TMA cannot address. `*is_again` becomes true when they were still there; it may be NULL. Thread-safe; no thread waits
 * for another. */
kjit_status sm90_maps_get(struct recent *maps, kjit_runtime *runtime, const kjit_attention_args *args,
                          const kjit_attention_sm90_config *config, struct attention_sm90_params *params,
                          bool *is_again, kjit_error *error);

#endif
