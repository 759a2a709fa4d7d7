/* What a family that computes attention's gradients can do besides being a family: choose a config for a part of the
 * gradients, and run it. The planner and the calls use this table of functions and name no family. */
#ifndef KJIT_ATTENTION_BACKWARD_BACKWARD_FAMILY_H
#define KJIT_ATTENTION_BACKWARD_BACKWARD_FAMILY_H

#include <kjit/attention_backward.h>

#include "family/config_kernel.h"
#include "family/family.h"

/* What one kernel computes: KJIT_GRADIENT_* and these bits: delta where no kernel computes dq, sums of zero for dq, and
 * dq in sums. */
#define BACKWARD_DELTA 0x8u
#define BACKWARD_ZEROS 0x10u
#define BACKWARD_SUMS  0x20u
_Static_assert(KJIT_GRADIENT_TENSORS == 0x40u, "a bit of its own");

/* Most fields of such a family: the size of what is remembered for each kernel of a problem. */
enum { BACKWARD_FIELDS_MAX = 14, BACKWARD_FAMILY_COUNT = 2 };

struct backward_launch;
struct backward_choice;
struct attention_variant_launch;
struct kjit_variant_tensor_argument;

/* What is computed: a problem whose defaults are filled in, the gradients (KJIT_GRADIENT_*), whether a variant's
 * functions stand between the products and the softmax, and whether a score function that changes something is among
 * them. */
struct backward_wanted {
  const kjit_attention_problem *problem;
  uint32_t gradients;
  bool is_variant, has_score;
};

struct backward_family {
  const kjit_family *family;
  const char *arch; /* the only architecture that its kernels are for, "sm_90a"; NULL when there are several */

  /* Choose a config by rules, in canonical form, that computes some of `left`, which is what of `wanted` no kernel
   * computes yet. KJIT_ERR_UNSUPPORTED says why the family computes none of them there. */
  kjit_status (*choose)(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                        int32_t *values, kjit_error *error);

  /* Choose all kernels of a dense call at once, where together they are faster than those that choose() gives one by
   * one. False: they are not. NULL: they never are. */
  bool (*choose_all)(const kjit_attention_problem *problem, uint32_t gradients, const struct family_place *place,
                     struct backward_choice *out);

  /* What a config computes, and of that which must be computed before it. */
  uint32_t (*computes)(const int32_t *values);
  uint32_t (*needs)(const int32_t *values);

  /* Check that a config fits a problem, and computes its variant. KJIT_ERR_INVALID_CONFIG. */
  kjit_status (*fit)(const struct backward_wanted *wanted, const int32_t *values, kjit_error *error);

  /* Compute everything that a launch takes into `launch`, whose kernel is set. */
  kjit_status (*prepare)(struct backward_launch *launch, kjit_runtime *runtime, const int32_t *values,
                         const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                         const kjit_device_info *device, kjit_error *error);

  /* The same for a launch whose kernel was made for a variant, after prepare(). NULL: its kernels take none. */
  void (*add_variant)(struct backward_launch *launch, const struct attention_variant_launch *variant);

  /* The same, after add_variant(), for where the gradients of the variant's tensors go, KJIT_VARIANT_TENSORS_MAX of
   * them. NULL: its kernels compute none. */
  void (*add_gradients)(struct backward_launch *launch, const struct kjit_variant_tensor_argument *gradients);
};

/* The families, in the order in which the planner asks them. */
extern const struct backward_family *const backward_families[BACKWARD_FAMILY_COUNT];

/* The entry of a family; NULL when the family does not compute gradients. */
const struct backward_family *backward_family_of(const kjit_family *family);

/* The family of this name, or NULL. */
const kjit_family *backward_family_find(const char *name);

#endif
