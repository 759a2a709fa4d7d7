/* What a family that computes attention can do besides being a family: choose a config for a problem, and run it. The
 * planner, the tuned tables and the calls use this table of functions and name no family. */
#ifndef KJIT_ATTENTION_ATTENTION_FAMILY_H
#define KJIT_ATTENTION_ATTENTION_FAMILY_H

#include <stdbool.h>

#include <kjit/attention.h>

#include "family/config_kernel.h"
#include "family/family.h"

/* Most fields of such a family: the size of what is remembered for each problem. */
enum { ATTENTION_FIELDS_MAX = 18, ATTENTION_FAMILY_COUNT = 5 };

struct attention_variant_launch; /* attention_variant_launch.h */
struct attention_variant_blocks;
struct attention_tiling;

/* One config that is to be launched: its kernel, and into how many splits its tiles are divided (split-KV). */
struct attention_launch {
  const struct config_kernel *kernel;
  const int32_t *values;
  uint32_t parts;
  const struct attention_variant_launch *variant; /* NULL: dense attention */
  const struct config_kernel *front;              /* the kernel of `pays_front`; NULL: none is launched */
  bool *is_again; /* set by a family that still has what it keeps of the same tensors; NULL: nobody wants to know */
};

/* What a dense launch reads of a family's struct of a call lies within so many bytes from its beginning, because
 * attention_call.c keeps them of calls that come again. */
#define ATTENTION_DENSE_CALL_BYTES 704

struct attention_family {
  const kjit_family *family;
  const char *arch; /* the only architecture that its kernels are for, "sm_90a"; NULL when there are several */
  bool is_special;  /* made for few problems: that it refuses others is no news, so its reason is not told */

  /* Choose a config by rules, in canonical form, for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED says
   * why the family does not compute it there. */
  kjit_status (*choose)(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                        kjit_error *error);

  /* Change a chosen config into one that dense attention alone is faster by. NULL: there is none. */
  void (*settle)(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values);

  /* Change a chosen config into one that suits a variant. NULL: all variants take what was chosen. */
  void (*suit)(const kjit_attention_problem *problem, const struct attention_variant_launch *variant, int32_t *values);

  /* Fit a config to a problem: fields that follow from the problem alone are set, and those that the config's owner
   * chose are checked against it. KJIT_ERR_INVALID_CONFIG or KJIT_ERR_UNSUPPORTED. Runs on every launch. */
  kjit_status (*fit)(const kjit_attention_problem *problem, int32_t *values, kjit_error *error);

  /* Into how many splits a legal config's tiles are divided: no more than the longest tile has key blocks, because a
   * kernel need not allow for a split without keys. A config says whether, never how many, so that no caller can ask
   * for others. NULL for a family without split-KV. */
  uint32_t (*count_parts)(const kjit_attention_problem *problem, const int32_t *values,
                          const struct family_place *place);

  /* The family of the kernel that a call with this config may launch in front of the config's own, to change the layout
   * of its tensors, and that kernel's values. NULL, also in place of the function: no call does. */
  const kjit_family *(*front)(const int32_t *values, int32_t *front_values);

  /* Is a problem faster with that kernel in front? Asked only where there is one. */
  bool (*pays_front)(const kjit_attention_problem *problem, const int32_t *values, const struct family_place *place);

  /* Compute everything that a launch takes into `call`, which is the family's own struct. */
  kjit_status (*prepare)(void *call, kjit_runtime *runtime, const struct attention_launch *launch,
                         const kjit_attention_args *args, const kjit_attention_problem *problem,
                         const kjit_device_info *device, kjit_error *error);

  /* Enqueue a prepared call. `blocks` is where the launch finds its key blocks; NULL for dense attention. */
  kjit_status (*enqueue)(const void *call, const struct attention_variant_blocks *blocks, CUstream stream,
                         kjit_error *error);

  /* The tiles of a legal config, and the dynamic shared memory that a variant's kernel needs beyond the config's. */
  void (*tiling)(const kjit_attention_problem *problem, const struct attention_variant_launch *variant,
                 const int32_t *values, struct attention_tiling *out);
  uint32_t (*variant_shared)(const struct attention_variant_launch *variant, const int32_t *values);
};

/* The families, in the order in which the planner asks them. */
extern const struct attention_family *const attention_families[ATTENTION_FAMILY_COUNT];

/* The entry of a family; NULL when the family does not compute attention. */
const struct attention_family *attention_family_of(const kjit_family *family);

/* The entry of the family of this name, or NULL. */
const struct attention_family *attention_family_find(const char *name, size_t bytes);

/* The family of the kernel that a launch with this config may have in front, and that kernel's values. NULL: there is
 * none; also of a family that is NULL. */
const kjit_family *attention_family_front(const struct attention_family *family, const int32_t *values,
                                          int32_t *front_values);

#endif
