/* How a problem is divided into tiles of query rows, and tiles into splits of their key blocks. Pure arithmetic;
 * docs/attention.md states the rules. */
#ifndef KJIT_ATTENTION_SM90_SM90_TILES_H
#define KJIT_ATTENTION_SM90_SM90_TILES_H

#include <stdbool.h>

#include <kjit/attention_sm90.h>

#include "family/family.h"

enum {
  SM90_MOST_PARTS = 128, /* most splits of a tile; the kernel could do 256 */

  /* Most bytes of a launch's partial results. Up to four splits for each SM, of up to 65 KiB a consumer, are 34 MiB on
   * an H200 with one consumer; a launch that would take more gets fewer splits. */
  SM90_PARTIALS_MAX = 64 << 20
};

/* A card as the model sees it: an H200's measured rates, scaled by the card's figures. */
struct sm90_card {
  uint32_t multiprocessors;
  int64_t l2_bytes_a_ns;     /* bytes of K and V that all SMs read from L2 in a nanosecond */
  int64_t memory_bytes_a_ns; /* and from memory, when nothing is read twice */
  int64_t l2_keeps;          /* bytes of K and V that L2 keeps; of more, some is read again */
  int64_t cycle;             /* a clock cycle's length in 1/1024 of an H200's */
  int64_t product;           /* the time of a product in 1/1024 of an H200's */
};

struct sm90_card sm90_card_of(uint32_t multiprocessors, const struct family_figures *figures);

/* Does memory give a multiprocessor as little as an H100's does (decode_has_slow_memory())? */
bool sm90_has_slow_memory(const struct sm90_card *card);

struct sm90_tiles {
  int64_t query_tiles;  /* query tiles of a head */
  int64_t heads;        /* heads as tiles count them: query heads, or packs of up to `packed` */
  int64_t heads_per_kv; /* heads, so counted, that share a key head */
  int64_t count;        /* tiles over all heads and batch entries */
  int64_t key_blocks;   /* key blocks of the longest tile */
  int64_t seq_kv;       /* keys */
  int64_t keys_before;  /* that a causal mask's first query sees beside its own; below 0 where it sees none */
  int64_t rows;         /* rows of a consumer's partial result: a multiple of 8 up to 64 */
  int64_t key_bytes;    /* bytes of K and V of all heads and batch entries, or of a million of them */
};

struct sm90_tiles sm90_tiles_of(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config);

/* Has every tile keys of its own, those of its key head? */
bool sm90_tiles_read_alone(const struct sm90_tiles *tiles);

/* The pairs of (batch, head) of one L2 section, on a card with `sm_count` SMs and this much L2. */
int64_t sm90_tiles_section(const struct sm90_tiles *tiles, const kjit_attention_problem *problem, uint32_t sm_count,
                           uint64_t l2_bytes);

/* The best number of splits, whatever config->split says. 1 means unsplit, always so when the tiles fill the card or
 * there are few key blocks. Never more than there are key blocks, because a split without any would leave the counter
 * at which splits arrive wrong for the next launch. */
int64_t sm90_tiles_parts(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                         const struct sm90_card *card);

/* The key blocks of the `number`th query tile of a head, counted from 1, under a causal mask. */
int64_t sm90_tiles_blocks(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t number);

/* The key blocks of the multiprocessor that ends last, where each takes the next causal tile, the longest ones first;
 * those of the longest tile where that is not counted. */
int64_t sm90_tiles_longest(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                           int64_t multiprocessors);

/* The modelled time of a launch with `parts` splits a tile on a card, in nanoseconds: good for comparing only. */
int64_t sm90_tiles_time(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts,
                        const struct sm90_card *card);

/* The modelled time of one step of a tile, whose keys and values are in L2, in nanoseconds. */
int64_t sm90_tiles_step_time(const kjit_attention_sm90_config *config, const struct sm90_card *card);

/* The steps of all tiles together. */
int64_t sm90_tiles_steps(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config);

/* A time of an H200 that clock cycles make up, on a card. */
int64_t sm90_card_cycles(const struct sm90_card *card, int64_t time);

/* Device memory for the partial results, and the counters, of a launch with this many splits. */
size_t sm90_tiles_partial_bytes(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                                int64_t parts);
size_t sm90_tiles_arrivals(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t parts);

#endif
