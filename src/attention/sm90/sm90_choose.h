/* The config for a problem: rules over numbers, no GPU. docs/attention.md states them with the measurements behind. */
#ifndef KJIT_ATTENTION_SM90_SM90_CHOOSE_H
#define KJIT_ATTENTION_SM90_SM90_CHOOSE_H

#include <stdbool.h>

#include "attention/sm90/sm90_config.h"
#include "attention/sm90/sm90_tiles.h"

/* Choose for a problem whose defaults are filled in, on a card. The result passes every
 * rule. KJIT_ERR_UNSUPPORTED, with the reason, for a problem that the family does not compute. */
kjit_status sm90_choose(const kjit_attention_problem *problem, const struct sm90_card *card,
                        kjit_attention_sm90_config *out, kjit_error *error);

/* Step 4 of the choice: where a problem's tiles see few keys, take memory of its own for O, and tiles that have room
 * for it. `is_triangle`: a causal mask hides much of what the problem has. */
void sm90_keep_output(const kjit_attention_problem *problem, const struct sm90_card *card, bool is_triangle,
                      kjit_attention_sm90_config *config);

/* Step 5 of the choice: steps of so few keys that tiles which read keys alone have no more bytes on their way than
 * memory has a use for. */
void sm90_limit_bytes(const kjit_attention_problem *problem, const struct sm90_card *card,
                      kjit_attention_sm90_config *config);

/* Whether L2 is to fetch whole lines of 128 bytes for rows of keys and values that are no whole lines, because tiles of
 * neighbouring heads, which run at the same time, read the rest of each line. */
bool sm90_shares_lines(const kjit_attention_problem *problem, const struct sm90_card *card,
                       const kjit_attention_sm90_config *config);

/* Are the keys so few that attention_short_sm90 would compute the problem, and is attention_sm90 faster all the same?
 */
bool sm90_takes_few_keys(const kjit_attention_problem *problem, const struct sm90_card *card);

/* Are they computed in two steps of half the keys by tiles of one head's 128 queries? */
bool sm90_has_two_steps(const kjit_attention_problem *problem, const struct sm90_card *card);

/* More than four tiles of 64 queries over 65 to 128 keys, without a mask, of heads of 72 to 120 columns that are no
 * whole lines and share no keys. */
bool sm90_has_long_queries_of_parts(const kjit_attention_problem *problem);

/* As sm90_takes_few_keys(), of keys that leave attention_short_sm90 room for one tile of Q alone. */
bool sm90_takes_long_heads(const kjit_attention_problem *problem, const struct sm90_card *card);

/* Are there many queries, and few keys of heads whose rows are no whole lines? */
bool sm90_has_few_keys_of_parts(const kjit_attention_problem *problem);

/* Take two pairs of consumers for a chosen config's dense problem if it is of those that are faster by them. */
void sm90_take_pairs(const kjit_attention_problem *problem, const struct sm90_card *card,
                     kjit_attention_sm90_config *config);

/* What of a variant tells which config suits it. */
struct sm90_variant_needs {
  bool is_narrow;  /* its mask leaves a tile few key blocks, whatever the length, or the caller has listed them */
  bool is_stepped; /* with is_narrow: neighbouring queries' keys begin at the same place */
  bool is_listed;  /* they are listed, by the caller or by the mask */
  bool is_mapped;  /* by the caller */
  bool is_scored;  /* it has a score function */
  bool is_tiled;   /* its terms lie in a tensor, and are kept in registers beside the scores */
  bool is_staged;  /* with is_tiled: they can be copied to shared memory instead */
  bool is_boxed;   /* with is_staged: TMA can bring them there */
  int gathered;    /* elements of tensors that its score function loads for each pair, one by one */
  bool is_curved;  /* its score function takes the exponent unit; tanh does so seldom */
};

/* Keys from which on lists of a mask alone, of heads of 64 columns, take three consumers. */
enum { SM90_LONG_LISTS = 16384 };

/* Likewise for a variant's problem. @return whether it has pairs */
bool sm90_take_pairs_of_variant(const kjit_attention_problem *problem, const struct sm90_variant_needs *needs,
                                kjit_attention_sm90_config *config);

/* Change a chosen config into one that suits a variant. */
void sm90_suit_variant(const kjit_attention_problem *problem, const struct sm90_variant_needs *needs,
                       kjit_attention_sm90_config *config);

#endif
