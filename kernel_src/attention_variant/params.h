/* What a kernel of an attention variant takes beside its family's own arguments. Read by the C compiler and by NVRTC.
 */
#ifndef KJIT_KERNEL_SRC_ATTENTION_VARIANT_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_VARIANT_PARAMS_H

#include <kjit/attention/variant_arguments.h>

/* The state of a block of scores. Lists and maps hold these numbers; kjit_variant_block() returns them. */
enum { VARIANT_EMPTY = 0, VARIANT_PARTIAL = 1, VARIANT_FULL = 2 };

/* States of blocks that the caller gave: one byte for each `query_rows` x `key_rows` scores. */
struct attention_block_map {
  const unsigned char *states; /* NULL: none was given */
  long long batch_stride;      /* bytes; 0 where one map is for all batch entries */
  long long head_stride;       /* bytes; 0 where one map is for all query heads */
  int query_rows, key_rows;    /* of a block */
  int rows, columns;           /* blocks along the queries and along the keys */
};

/* The key blocks that each tile visits, from the last to the first: `counts[l]` entries from `entries + l * capacity`
 * on, where l = batch * batch_stride + head * head_stride + query tile. An entry is twice the block's number, plus one
 * when all of its keys are seen by all of the tile's rows; or, where lists tell for each 64 queries, the block's number
 * times 4^parts plus the state for each part, VARIANT_EMPTY to VARIANT_FULL times 4^part. Every tile has at least one
 * entry. */
struct attention_block_lists {
  int *counts; /* NULL: there are no lists, and every block is judged */
  int *entries;
  int batch_stride, head_stride; /* lists; 0 where one is for all */
  int capacity;
  int reserved;
};

struct attention_variant_params {
  struct kjit_variant_arguments arguments;
  struct attention_block_map map;
  struct attention_block_lists lists;
  const float *sinks; /* (heads_q), natural logarithms; read where KJIT_variant_sinks */
  float score_scale;  /* the softmax scale, which comes before the score function */
  int reserved;
};

#endif
