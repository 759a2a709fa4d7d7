/* What a kernel of an attention variant takes beside its family's own arguments. Read by the C compiler and by NVRTC.
 */
#ifndef KJIT_KERNEL_SRC_ATTENTION_VARIANT_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_VARIANT_PARAMS_H

#include <kjit/attention/variant_arguments.h>

/* The state of a block of scores. Lists and maps hold these numbers; kjit_variant_block() returns the first three. The
 * last one stands in entries of lists alone: partial, and which scores count lies in the lists' keep words. */
enum { VARIANT_EMPTY = 0, VARIANT_PARTIAL = 1, VARIANT_FULL = 2, VARIANT_WRITTEN = 3 };

/* Keep words of a block: for each 64 queries those of a warpgroup's 128 threads, and of each thread those of its two
 * rows (hooks.cuh), one word for every 128 keys or part of them. */
#define VARIANT_WORDS_OF_ROW(key_rows)  (((key_rows) + 127) / 128)
#define VARIANT_WORDS_OF_PART(key_rows) (2 * 128 * VARIANT_WORDS_OF_ROW(key_rows))

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
 * times 4^parts plus the state for each part, VARIANT_EMPTY to VARIANT_WRITTEN times 4^part. Every tile has at least
 * one entry.
 *
 * Where `order` is there, it has every list's tile once more, those of one head and batch entry together, so that tiles
 * with many entries come first: it is what the attention kernel takes its tiles by. Where all heads and batch entries
 * share their lists, `ahead` says how many tiles are much longer than the others.
 *
 * Lists that tell for each 64 queries may have keep words besides. Then the first `written` entries of a list of which
 * some part is partial say VARIANT_WRITTEN in place of VARIANT_PARTIAL; the i-th of them has the words of all parts,
 * one part after the other, as the (l * written + i)-th block of `words`.
 *
 * Where `made` is there, it has a counter for each list, zero before and after the launches: of the blocks of threads
 * that have written the list, `writers`, and then of the tiles that have read it, `readers`. So the attention kernel
 * need not wait until all lists are there, but only until its own is. */
struct attention_listed_tile {
  int query_tile;
  int count; /* of its entries */
};

struct attention_block_lists {
  int *counts; /* NULL: there are no lists, and every block is judged */
  int *entries;
  struct attention_listed_tile *order; /* of the i-th tile of those of a list l at l + i; NULL: there is no order */
  int *ahead;                          /* NULL: no tile comes ahead of the others */
  unsigned *words;                     /* 16-byte aligned; NULL: there are none, and `written` is 0 */
  int batch_stride, head_stride;       /* lists; 0 where one is for all */
  int capacity;
  int written;
  int writers, readers;
  int *made; /* NULL: the whole kernel that makes the lists is waited for */
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
