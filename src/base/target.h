/* Architectures by name: "sm_80", "sm_90a". What a host-side check needs to know of each, without a GPU. */
#ifndef KJIT_BASE_TARGET_H
#define KJIT_BASE_TARGET_H

#include <stdbool.h>

#include <kjit/common.h>

struct target {
  char name[16];       /* "sm_90a" */
  uint32_t capability; /* 10 * major + minor: 90 */
  char suffix;         /* 'a', 'f' or 0 */
};

/* Limits by the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". */
struct target_limits {
  uint32_t shared_per_block; /* bytes, after opting in */
  uint32_t shared_per_sm;    /* bytes */
  uint32_t registers_per_sm;
  uint32_t threads_per_sm;
  uint32_t blocks_per_sm;
};

/* Strict: "sm_" then two or three digits then at most one of 'a', 'f'. KJIT_ERR_INVALID_ARG names what is wrong. */
kjit_status target_parse(struct target *out, const char *name, kjit_error *error);

/* NULL for a capability that the table does not know. */
const struct target_limits *target_get_limits(const struct target *target);

/* Can a cubin for `target` run on a device of this capability? Same major, minor not above; with 'a' exactly equal;
 * with 'f' same major and minor not above. */
bool target_runs_on(const struct target *target, uint32_t device_capability);

#endif
