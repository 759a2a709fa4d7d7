/* When dense attention is computed by attention_serving_sm90's kernel with one_part, and how its tiles are divided:
 * rules over numbers, no GPU. Pure; any thread. */
#ifndef KJIT_ATTENTION_SERVING_SM90_ONE_PART_CHOOSE_H
#define KJIT_ATTENTION_SERVING_SM90_ONE_PART_CHOOSE_H

#include <kjit/attention.h>

#include "attention/serving_sm90/serving_sm90_config.h"

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the
 * kernel does not compute, or that another family computes faster. */
kjit_status one_part_choose(const kjit_attention_problem *problem, const struct family_place *place,
                            struct serving_sm90_config *out, kjit_error *error);

/* Check that the kernel can count this problem's tiles, rows and keys, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status one_part_check_problem(const kjit_attention_problem *problem, kjit_error *error);

/* How a problem is divided: each tile's blocks of keys into equally many parts. */
struct one_part_tiles {
  int64_t count;       /* of `rows` packed rows, over all key heads and batch entries */
  int64_t parts;       /* of a tile: as many as the card runs at a time, but for the shortest parts */
  int64_t part_blocks; /* blocks of keys of a part but the last, which may have fewer */
};

struct one_part_tiles one_part_tiles_of(const kjit_attention_problem *problem, const struct serving_sm90_config *config,
                                        int64_t multiprocessors);

#endif
