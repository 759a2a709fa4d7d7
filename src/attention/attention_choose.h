/* Which family computes a problem on an architecture, with which config. Pure. */
#ifndef KJIT_ATTENTION_ATTENTION_CHOOSE_H
#define KJIT_ATTENTION_ATTENTION_CHOOSE_H

#include <kjit/attention_sm90.h>
#include <kjit/flash_forward.h>

enum attention_family { ATTENTION_SM90, ATTENTION_FLASH_FORWARD };

struct attention_choice {
  enum attention_family family;
  _Bool tuned; /* by a row of a table, not by the rules */
  union {
    kjit_attention_sm90_config sm90;
    kjit_flash_config flash;
  };
};

struct tune_table; /* attention/tune/tune_table.h: what was measured */

/* What the choice depends on besides the problem. */
struct attention_place {
  const char *arch; /* with its own features where it has any: "sm_90a" */
  uint32_t multiprocessors;
  uint32_t shared_per_block; /* bytes, after opting in */
  struct tune_table *tuned;  /* asked before the rules; NULL: there is none */
};

/* A card of an architecture that is not at hand, without a table. KJIT_ERR_UNSUPPORTED, KJIT_ERR_INVALID_ARG by its
 * name. */
kjit_status attention_place_of_arch(const char *arch, struct attention_place *place, kjit_error *error);

/* Without a table. */
struct attention_place attention_place_of_device(const kjit_device_info *device);

/* For a problem without defaults left open. KJIT_ERR_UNSUPPORTED says why no family computes it. */
kjit_status attention_choose(const kjit_attention_problem *problem, const struct attention_place *place,
                             struct attention_choice *out, kjit_error *error);

#endif
