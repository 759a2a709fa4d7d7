/* Architectures: reading names like "sm_90a", their limits, and which devices run their code. Pure functions; any
 * thread.
 *
 * An architecture that is not in the table of limits is allowed, because NVRTC may know newer ones; its limits are then
 * unknown and are not checked before compiling. */
#include "base/target.h"

#include <string.h>

#include "base/error.h"

#define KIB 1024u

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* "sm_", two or three digits without a leading zero, and at most one of the suffixes a and f. */
static bool parse(struct target *out, const char *name) {
  static const char prefix[] = "sm_";
  const size_t length = strnlen(name, sizeof out->name), first = sizeof prefix - 1;
  if (length == sizeof out->name || strncmp(name, prefix, first) != 0 || name[first] == '0') return false;
  size_t at = first;
  for (; is_digit(name[at]) && at < first + 3; at++)
    out->capability = 10 * out->capability + (uint32_t)(name[at] - '0');
  if (at < first + 2) return false;
  if (name[at] == 'a' || name[at] == 'f') out->suffix = name[at++];
  memcpy(out->name, name, length);
  return name[at] == '\0';
}

kjit_status target_parse(struct target *out, const char *name, kjit_error *error) {
  static const char rule[] = "write \"sm_\", two or three digits and at most one of a, f, as in sm_80 or sm_90a";
  struct target target = {0};
  *out = target;
  if (!name || !*name) return error_set(error, KJIT_ERR_INVALID_ARG, "arch: missing; %s", rule);
  if (!parse(&target, name)) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "arch: \"%.32s\" is not an architecture; %s", name, rule);
  }
  *out = target;
  return KJIT_OK;
}

const struct target_limits *target_get_limits(const struct target *target) {
  static const struct {
    uint32_t capability;
    struct target_limits limits;
  } known[] = {
      /* clang-format off */
      /*   per block  per SM     registers threads, blocks */
      {75,  {64 * KIB,  64 * KIB,  64 * KIB, 1024, 16}},
      {80,  {163 * KIB, 164 * KIB, 64 * KIB, 2048, 32}},
      {86,  {99 * KIB,  100 * KIB, 64 * KIB, 1536, 16}},
      {87,  {163 * KIB, 164 * KIB, 64 * KIB, 1536, 16}},
      {89,  {99 * KIB,  100 * KIB, 64 * KIB, 1536, 24}},
      {90,  {227 * KIB, 228 * KIB, 64 * KIB, 2048, 32}},
      {100, {227 * KIB, 228 * KIB, 64 * KIB, 2048, 32}},
      {103, {227 * KIB, 228 * KIB, 64 * KIB, 2048, 32}},
      {110, {227 * KIB, 228 * KIB, 64 * KIB, 1536, 24}},
      {120, {99 * KIB,  100 * KIB, 64 * KIB, 1536, 24}},
      {121, {99 * KIB,  100 * KIB, 64 * KIB, 1536, 24}},
      /* clang-format on */
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].capability == target->capability) return &known[i].limits;
  }
  return NULL;
}

/* Code for sm_XYa runs on capability X.Y alone. Other cubins run on devices of the same major version whose minor
 * version is not lower ("Application Compatibility" in the CUDA C++ Programming Guide). */
bool target_runs_on(const struct target *target, uint32_t device_capability) {
  if (target->suffix == 'a') return target->capability == device_capability;
  return target->capability / 10 == device_capability / 10 && target->capability <= device_capability;
}
