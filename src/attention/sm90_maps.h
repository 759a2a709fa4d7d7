/* Tensor maps of calls, kept while the same tensors come again: encoding four takes a microsecond, finding them some
 * tens of nanoseconds. A fixed number of places; a call takes the place of another whose hash meets its own. */
#ifndef KJIT_ATTENTION_SM90_MAPS_H
#define KJIT_ATTENTION_SM90_MAPS_H

#include <kjit/attention_sm90.h>

#include "attention_sm90/params.h"
#include "base/mem.h"

struct sm90_maps;

/* NULL when out of memory. `mem` must outlive it. */
struct sm90_maps *sm90_maps_create(const struct mem *mem);

/* Nobody may be using it. Accepts NULL. */
void sm90_maps_destroy(const struct mem *mem, struct sm90_maps *maps);

/* Maps of checked arguments, for a config, into params->q, k, v, o. KJIT_ERR_UNSUPPORTED names the tensor that the copy
 * engine cannot address. Thread-safe; nobody waits for anybody. */
kjit_status sm90_maps_get(struct sm90_maps *maps, kjit_runtime *runtime, const kjit_attention_args *args,
                          const kjit_attention_sm90_config *config, struct attention_sm90_params *params,
                          kjit_error *error);

#endif
