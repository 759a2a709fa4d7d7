/* One call of attention by attention_serving_sm90's kernel with one_part, for dense tensors: from checked arguments to
 * all that a launch takes. */
#ifndef KJIT_ATTENTION_SERVING_SM90_ONE_PART_CALL_H
#define KJIT_ATTENTION_SERVING_SM90_ONE_PART_CALL_H

#include "attention/attention_family.h"
#include "attention_serving_sm90/one_part_params.h"

struct stream_workspace;

struct one_part_call {
  const struct config_kernel *kernel;
  struct stream_workspace *workspace; /* NULL: no tile is divided */
  size_t partial_bytes, arrivals;     /* bytes of partial results, and counters of arrivals, in the workspace */
  uint32_t tiles;
  uint32_t parts; /* of a tile, used with a workspace */
  /* Last, because of it a launch reads no more than what lies in front of `all`. Complete but for what depends on the
   * memory that belongs to a stream. */
  struct attention_serving_one_part_params params;
};

extern const struct attention_family one_part_attention;

#endif
