/* What the rules of several families say alike of a config's field, with one wording, and what they reckon alike. Pure;
 * any thread. */
#ifndef KJIT_ATTENTION_RULE_H
#define KJIT_ATTENTION_RULE_H

#include <stdbool.h>

#include <kjit/attention.h>

#include "family/family.h"

/* KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status rule_broken(kjit_error *error, const char *field, int32_t value, const char *rule);

static inline bool rule_is_between(int32_t value, int32_t least, int32_t most) {
  return value >= least && value <= most;
}

static inline bool rule_is_power_of_two(int32_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

/* Is it a head size that a kernel of kjit may have: a multiple of 8 from 8 to 256? Inline, because planners ask. */
static inline bool rule_is_head(int64_t columns) {
  return columns >= KJIT_HEAD_DIM_STEP && columns <= KJIT_HEAD_DIM_MAX && columns % KJIT_HEAD_DIM_STEP == 0;
}

/* A config's head size. KJIT_ERR_INVALID_CONFIG. */
kjit_status rule_check_head(const char *field, int32_t columns, kjit_error *error);

/* A problem's two head sizes, for `who` whose kernels take all that kjit has. KJIT_ERR_UNSUPPORTED. */
kjit_status rule_check_heads(const kjit_attention_problem *problem, const char *who, kjit_error *error);

/* Most blocks of a grid in y and in z. */
#define RULE_GRID_YZ_MAX 65535

/* Heads and batch entries as axes of one grid, for `who` whose kernels count them so. KJIT_ERR_UNSUPPORTED. */
kjit_status rule_check_grid(int64_t batch, int64_t heads, const char *who, kjit_error *error);

/* KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be the <what>, <wanted>". */
kjit_status rule_unequal(const char *field, int32_t value, int64_t wanted, const char *what, kjit_error *error);

/* A field that follows from a problem: `what` it must equal, such as "arguments' flag". Inline, because each launch
 * with a caller's config asks. */
static inline kjit_status rule_check_equal(const char *field, int32_t value, int64_t wanted, const char *what,
                                           kjit_error *error) {
  return value == wanted ? KJIT_OK : rule_unequal(field, value, wanted, what, error);
}

/* The one architecture that has wgmma and setmaxnreg. */
#define HOPPER_ARCH "sm_90a"

/* check_place and is_arch_specific of every family whose kernels compile for HOPPER_ARCH alone.
 * KJIT_ERR_UNSUPPORTED for another architecture; shared memory is among such a family's rules. */
kjit_status rule_check_hopper(const kjit_family *family, const int32_t *values, const struct family_place *place,
                              kjit_error *error);
bool rule_is_arch_specific(const kjit_family *family, const int32_t *values);

/* Bytes of all lines of L2 that a 16-bit row of so many columns touches in the mean, where rows follow each other. */
int64_t rule_line_bytes(int64_t columns);

#endif
