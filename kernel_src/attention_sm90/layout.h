/* Sizes from which the host computes a launch's memory and by which the attention_sm90 kernel lays it out. They are in
 * one header, read by the C compiler and by NVRTC, so that both cannot disagree. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_SM90_LAYOUT_H

enum {
  SM90_GROUP_ROWS = 64,      /* query rows of a consumer warpgroup: M of wgmma */
  SM90_GROUP_THREADS = 128,  /* threads of a warpgroup */
  SM90_CHUNK_COLUMNS = 64,   /* columns of a band, 16 bits each, as which tiles lie in shared memory */
  SM90_ROW_BYTES = 128,      /* bytes of a band's row, as the 128-byte swizzle needs */
  SM90_ALIGNMENT = 1024,     /* bytes: the swizzle's pattern repeats; dynamic shared memory may start anywhere */
  SM90_BARRIER_BYTES = 8,    /* bytes of an mbarrier */
  SM90_TILE_BYTES = 16,      /* bytes of a tile's coordinates, which consumers read; twice as many with split-KV */
  SM90_PLAN_BYTES = 144,     /* bytes at most of a variant's planned tile: barriers, coordinates, four ranges, a list */
  SM90_TERM_PADDING = 16,    /* bytes behind a row of a variant's terms, so that its 16 bytes lie in other banks */
  SM90_SHARED_MOST = 232448, /* bytes of shared memory that a block may have */
  SM90_PAIR_BYTES = 115712,  /* bytes of them of a pair of consumers, where two pairs share a block: 113 alignments */
  SM90_WORD_BYTES = 4,       /* bytes of a consumer's word, by which its threads learn whether they merge */
  SM90_MERGED_AT_ONCE = 16,  /* partial results merged at once; two levels make the 256 splits that there may be */
  SM90_PIECE_COLUMNS = 16,   /* columns of O in one piece of a partial result */
  SM90_BOUND_BYTES = 8,      /* bytes of the bounds of a row of a variant's tile */
  SM90_STATISTICS = 4        /* floats of a row of a partial result beside O: two pairs of maximum and sum */
};

/* Four consumers are two pairs, each with tiles, buffers and a producer of its own. Fewer consumers share a tile. */
#define SM90_PAIRS(consumers)          ((consumers) == 4 ? 2 : 1)
#define SM90_TILE_CONSUMERS(consumers) ((consumers) / SM90_PAIRS(consumers))
#define SM90_PAIRS_BYTES               (2 * SM90_PAIR_BYTES + SM90_ALIGNMENT - 1)

/* Lists of a variant's key blocks tell for each consumer's 64 queries whether they see a block. Then an entry is up to
 * 2 * 4^consumers times a block's number, which 32 bits hold for every length where the rule below is kept. */
#define SM90_HAS_PARTS(packed, consumers, key_rows) ((packed) == 1 && 1 << 2 * (consumers) <= (key_rows))

/* A variant's terms that lie in a tensor, where TMA can bring them: boxes of 64 keys of a consumer's 64 rows, each with
 * two mbarriers. Up to two steps' boxes of each consumer lie in shared memory, as many as there is room for beside all
 * else, and at least those of one step. */
#define SM90_TERM_BOXES(key_rows) ((key_rows) / SM90_CHUNK_COLUMNS)
#define SM90_TERM_BOX_BYTES       (SM90_GROUP_ROWS * SM90_ROW_BYTES + 2 * SM90_BARRIER_BYTES)
#define SM90_TERM_ROOM(shared_bytes, stages)                                                                           \
  (SM90_SHARED_MOST - (int)(shared_bytes)-SM90_WORD_BYTES * (int)(stages)-15 - SM90_PLAN_BYTES - SM90_ALIGNMENT)
#define SM90_TERM_SLOTS_THAT_FIT(shared_bytes, stages, consumers)                                                      \
  (SM90_TERM_ROOM(shared_bytes, stages) / ((int)(consumers)*SM90_TERM_BOX_BYTES))
#define SM90_TERM_SLOTS(shared_bytes, stages, consumers, packed, key_rows)                                             \
  ((packed) != 1 || (consumers) > 2 || (key_rows) % SM90_CHUNK_COLUMNS != 0 ||                                         \
           SM90_TERM_SLOTS_THAT_FIT(shared_bytes, stages, consumers) < SM90_TERM_BOXES(key_rows)                       \
       ? 0                                                                                                             \
   : SM90_TERM_SLOTS_THAT_FIT(shared_bytes, stages, consumers) < 2 * SM90_TERM_BOXES(key_rows)                         \
       ? SM90_TERM_SLOTS_THAT_FIT(shared_bytes, stages, consumers)                                                     \
       : 2 * SM90_TERM_BOXES(key_rows))

/* Such lists may have keep words too, which the producer brings with K. It counts the blocks that have words from a
 * tile's first one on, so that a split, which begins anywhere, has none. */
#define SM90_HAS_KEEP(split, packed, consumers, key_rows) (!(split) && SM90_HAS_PARTS(packed, consumers, key_rows))

#endif
