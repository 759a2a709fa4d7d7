/* Tensor maps of calls, kept while the same tensors come again: encoding four takes a microsecond, finding them some
 * tens of nanoseconds. */
#ifndef KJIT_ATTENTION_SM90_SM90_MAPS_H
#define KJIT_ATTENTION_SM90_SM90_MAPS_H

#include <stdbool.h>

#include <kjit/attention_sm90.h>
#include <kjit/tensor_map.h>

#include "attention_sm90/params.h"
#include "base/threads/recent.h"

/* NULL when out of memory. `mem` must outlive it. */
struct attention_variant_launch;

struct recent *sm90_maps_create(const struct mem *mem);

enum { SM90_MAPS = 4 }; /* of q, k, v and o, in this order */

/* What the maps depend on beside the tensors. */
struct sm90_boxes {
  int32_t packed;               /* query heads in the 64 rows of a box of q or o */
  int32_t key_rows;             /* rows of a box of k or v */
  kjit_map_promotion promotion; /* how many bytes L2 fetches at a time                                           */
  bool shares_lines;            /* tiles of neighbouring heads are read at about the same time: tensor_box.h     */
};

/* Put the maps of checked arguments into `maps`. KJIT_ERR_UNSUPPORTED names the tensor that TMA cannot address.
 * `*is_again` becomes true when they were still there; it may be NULL. Thread-safe; no thread waits for another. */
kjit_status sm90_maps_get(struct recent *known, kjit_runtime *runtime, const kjit_attention_args *args,
                          const struct sm90_boxes *boxes, struct attention_tensor_map maps[SM90_MAPS], bool *is_again,
                          kjit_error *error);

/* The map of a variant's terms, where has_boxes: over (keys, the axes in front of them, the last first), in boxes of 64
 * keys by 64 queries. Kept like the others. */
struct recent *sm90_maps_create_terms(const struct mem *mem);
kjit_status sm90_maps_get_terms(struct recent *known, kjit_runtime *runtime,
                                const struct attention_variant_launch *variant, int32_t dtype,
                                struct attention_tensor_map *map, kjit_error *error);

#endif
