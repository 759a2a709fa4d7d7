/* The arguments of the kernels that prepare an attention variant's key blocks. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_VARIANT_LIST_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_VARIANT_LIST_PARAMS_H

#include "attention_variant/params.h"

enum {
  LIST_THREADS = 512,   /* of a block of attention_block_list */
  LIST_ROUND = 256,     /* key blocks that it looks at together */
  LIST_PIECE_KEYS = 16, /* keys of a piece of a block, which is looked at by itself */
  LIST_WRITTEN = 32,    /* most blocks of a list that have keep words */
  LIST_SHARED = 52 * LIST_ROUND + 4 * LIST_WRITTEN + LIST_ROUND / 8 + 8 * 256 +
                192 * 32, /* bytes of its shared memory: findings, also of pieces, with the sides of keys, blocks to be
                             written, and what the mask computes from pieces of queries, and from rows, alone */
  MAP_THREADS = 128       /* of a block of attention_block_map */
};

/* Of attention_block_list, which fills the lists in `variant.lists`. */
struct attention_block_list_params {
  struct attention_variant_params variant;
  int query_tiles;  /* tiles of a head                                                                   */
  int tile_queries; /* queries of a tile                                                                 */
  int packed;       /* query heads in a tile's rows                                                      */
  int packs;        /* packs of query heads that share a key head; 1 where packed is 1                   */
  int group;        /* query heads that share a key head                                                 */
  int key_rows;     /* keys of a block                                                                   */
  int causal;       /* 1: query i sees no key beyond i + seq_kv - seq_q, besides what the mask says       */
  int parts;        /* parts of 64 queries of a tile, whose states its entries tell; 0: the state of the tile alone */
  int key_pieces;   /* pieces along the keys of a block, where they are most: up to 32                     */
  int lane_blocks;  /* blocks that the lanes of a warp have a piece each of: 32 / key_pieces                */
  int inverse;      /* 65536 / key_pieces + 1, by which lanes are divided                                    */
  int writer_bits;  /* 2^writer_bits blocks of threads share the keep words of a tile; 0 where there are none */
  int *arrivals;    /* zeros, two for each batch entry and head that have lists, where there is an order; left so */
};

/* Of attention_block_map, which turns lists of blocks, in the layout of PyTorch's BlockMask, into states. All tensors
 * are int32 with rows of `columns` entries; entries past a row's count are not read. */
struct attention_block_map_params {
  const int *counts, *indices;           /* blocks that the mask judges                         */
  const int *full_counts, *full_indices; /* blocks that are seen as a whole; NULL: there are none */
  long long count_batch_stride, count_head_stride, index_batch_stride, index_head_stride, index_row_stride;
  long long full_count_batch_stride, full_count_head_stride, full_index_batch_stride, full_index_head_stride,
      full_index_row_stride;
  unsigned char *states; /* (batch, heads, rows, columns) contiguous */
  int rows, columns;
};

#endif
