/* What a family that computes attention can do besides being a family: choose a config for a problem, and run it. The
 * planner, the tuned tables and the calls go through this table, and know no family by name. */
#ifndef KJIT_ATTENTION_ATTENTION_FAMILY_H
#define KJIT_ATTENTION_ATTENTION_FAMILY_H

#include <kjit/attention.h>

#include "family/config_kernel.h"
#include "family/family.h"

/* Fields of a family that computes attention, at most: the size of what is remembered for each problem. */
enum { ATTENTION_FIELDS_MAX = 18, ATTENTION_FAMILY_COUNT = 2 };

/* One config as it is to run: on so many parts of a tile, with its kernel. */
struct attention_launch {
  const struct config_kernel *kernel;
  const int32_t *values;
  uint32_t parts;
};

struct attention_family {
  const kjit_family *family;
  const char *arch; /* the one architecture that it is for, "sm_90a"; NULL: any */

  /* The rules' config for a problem, which has no defaults left open; canonical. KJIT_ERR_UNSUPPORTED says why the
   * family does not compute it there. */
  kjit_status (*choose)(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                        kjit_error *error);

  /* Make a config that of exactly this problem: fields that follow from the problem alone are set, and those that the
   * config's owner chose must fit it. KJIT_ERR_INVALID_CONFIG or KJIT_ERR_UNSUPPORTED. On every launch's way. */
  kjit_status (*fit)(const kjit_attention_problem *problem, int32_t *values, kjit_error *error);

  /* In how many parts a legal config's tiles are worked on. NULL: always whole. */
  uint32_t (*count_parts)(const kjit_attention_problem *problem, const int32_t *values, uint32_t sm_count);

  /* Everything that a launch takes, into `call`, which is the family's own struct. */
  kjit_status (*prepare)(void *call, kjit_runtime *runtime, const struct attention_launch *launch,
                         const kjit_attention_args *args, const kjit_attention_problem *problem,
                         const kjit_device_info *device, kjit_error *error);
  kjit_status (*enqueue)(const void *call, CUstream stream, kjit_error *error);
};

/* In the order in which the planner asks them. */
extern const struct attention_family *const attention_families[ATTENTION_FAMILY_COUNT];

/* The entry of a family, or NULL: it does not compute attention. */
const struct attention_family *attention_family_of(const kjit_family *family);

/* The entry of the family of this name, or NULL. */
const struct attention_family *attention_family_find(const char *name, size_t bytes);

#endif
