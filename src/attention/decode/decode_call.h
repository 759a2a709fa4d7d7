/* One call of attention_decode_sm90, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_CALL_H
#define KJIT_ATTENTION_DECODE_DECODE_CALL_H

#include "attention/attention_family.h"
#include "attention/decode/decode_config.h"
#include "attention_decode_sm90/params.h"

struct stream_workspace;

struct decode_call {
  struct attention_decode_sm90_params params; /* complete except for the memory that belongs to a stream */
  const struct config_kernel *kernel;
  struct stream_workspace *workspace; /* NULL: no tile lies in several runs */
  size_t partial_bytes, arrivals;     /* bytes of partial results, and counters of arrivals, in the workspace */
  uint32_t runs;                      /* used with a workspace */
  int64_t blocks;                     /* key blocks of all tiles */
};

extern const struct attention_family decode_attention;

#endif
