/* One call of attention_sm90, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_SM90_SM90_CALL_H
#define KJIT_ATTENTION_SM90_SM90_CALL_H

#include "attention/attention_family.h"
#include "attention/sm90/sm90_config.h"
#include "attention/sm90/sm90_padding.h"
#include "attention_sm90/params.h"

struct sm90_tickets;
struct stream_workspace;

struct sm90_call {
  const struct config_kernel *kernel;
  struct sm90_tickets *tickets;       /* NULL: the launch needs none */
  struct stream_workspace *workspace; /* NULL: no tile is split, and nothing is copied */
  size_t partial_bytes, arrivals; /* bytes of partial results or copies, and counters of arrivals, in the workspace */
  bool is_padded;                 /* K or V is copied in front of the launch */
  uint32_t sm_count;
  uint32_t tiles;
  uint32_t parts;                              /* splits of a tile; used with a workspace */
  struct attention_sm90_variant_params params; /* complete except for the memory that belongs to a stream; a dense
                                                   kernel takes params.base alone */
  struct sm90_padding padding;                 /* where is_padded; beyond what a dense call that is kept has */
};

extern const struct attention_family sm90_attention;

#endif
