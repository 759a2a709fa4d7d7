/* How attention_decode_sm90's tiles are divided into runs, one for each block of threads, and how long a launch takes:
 * a model in whole nanoseconds, by which the planner compares configs and numbers of runs. Pure arithmetic. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_RUNS_H
#define KJIT_ATTENTION_DECODE_DECODE_RUNS_H

#include <stdbool.h>

#include "attention/decode/decode_config.h"
#include "family/family.h"

/* How a problem is divided into tiles. */
struct decode_tiles {
  int64_t row_tiles;  /* of a key head: tiles of config.rows rows */
  int64_t count;      /* over all key heads and batch entries      */
  int64_t key_blocks; /* of a tile                                 */
};

struct decode_tiles decode_tiles_of(const kjit_attention_problem *problem,
                                    const kjit_attention_decode_sm90_config *config);

/* A card as the model sees it. */
struct decode_card {
  int64_t multiprocessors;
  int64_t memory_bytes_a_us; /* that a launch reads of K and V */
};

struct decode_card decode_card_of(const struct family_place *place);

/* An H100's memory gives a multiprocessor 21 bytes a ns, an H200's 30. With less than 25, two steps that are on their
 * way are enough, and more of them only part blocks that read heads that lie side by side. */
bool decode_has_slow_memory(const struct decode_card *card);

struct decode_plan {
  uint32_t runs; /* at least 1, at most the key blocks of all tiles */
  int64_t time;  /* the modelled time of a launch, in nanoseconds, before runs are made more even: good for comparing
                    only. Tiles were compared by it when their handicaps were measured. */
};

/* The number of runs with which a launch takes least. */
struct decode_plan decode_plan_of(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                                  const struct decode_card *card);

/* Bytes on their way from which on tiles that run at the same time stay whole, with slow memory. */
enum { DECODE_WHOLE_BYTES = 5000000 };

/* Bytes of a row of K or V in whole lines of L2. */
int64_t decode_line_bytes(int64_t columns);

/* Does L2 still have, when the next head's block of threads asks for it, what was fetched beside a row that is no whole
 * line? */
bool decode_shares_lines(const struct decode_tiles *tiles, const kjit_attention_decode_sm90_config *config,
                         int64_t runs, int64_t multiprocessors);

#endif
