/* How a problem is cut into a launch's pieces: tiles of query rows, and parts of a tile's key blocks. Pure arithmetic;
 * docs/attention.md states the rules. */
#ifndef KJIT_ATTENTION_SM90_SM90_TILES_H
#define KJIT_ATTENTION_SM90_SM90_TILES_H

#include <kjit/attention_sm90.h>

enum {
  SM90_MOST_PARTS = 128, /* of a tile; the kernel could do 256 */

  /* Bytes of a launch's partial results. Up to four parts for each multiprocessor, of up to 65 KiB a consumer, are
   * 34 MiB on an H200 with one consumer; what would take more is split into fewer parts. */
  SM90_PARTIALS_MAX = 64 << 20
};

struct sm90_tiles {
  int64_t query_tiles;  /* of a head                                                          */
  int64_t heads;        /* that tiles are made of: query heads, or packs of up to `packed`     */
  int64_t heads_per_kv; /* those of them that share a key head                                */
  int64_t count;        /* over all heads and batch entries                                   */
  int64_t key_blocks;   /* of the longest tile                                                */
  int64_t rows;         /* that a consumer keeps of a part's result: a multiple of 8 up to 64 */
  int64_t key_bytes;    /* K and V of all heads and batch entries, or of a million of them     */
};

struct sm90_tiles sm90_tiles_of(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config);

/* (batch, head) pairs that are worked on together, on a card with so many SMs and bytes of L2. */
int64_t sm90_tiles_section(const struct sm90_tiles *tiles, const kjit_attention_problem *problem, uint32_t sm_count,
                           uint64_t l2_bytes);

/* In how many parts the tiles are best worked on, whatever config->split says. 1: as they are, always so when the tiles
 * fill the card as it is or key blocks are few. */
int64_t sm90_tiles_parts(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                         uint32_t multiprocessors);

/* What a launch with so many parts a tile is reckoned to take on an H200, in nanoseconds: to compare. */
int64_t sm90_tiles_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts,
                        uint32_t multiprocessors);

/* Device memory that a launch with so many parts a tile leaves partial results in, and counts arrivals with. */
size_t sm90_tiles_partial_bytes(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                                int64_t parts);
size_t sm90_tiles_arrivals(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts);

#endif
