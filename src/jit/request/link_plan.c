/* What becomes of a request: whether NVRTC makes a cubin, an object or LTO-IR, and whether a link follows. It depends
 * on the request's source, parts, options and flags alone. Pure; any thread. */
#include "jit/request/link_plan.h"

#include <string.h>

static bool is_option(const char *option, const char *const *spellings) {
  const char *const name = option + (option[0] == '-') + (option[0] == '-' && option[1] == '-');
  for (; *spellings; spellings++)
    if (!strcmp(name, *spellings)) return true;
  return false;
}

static bool has_option(const struct jit_request *request, const char *const *spellings) {
  for (size_t i = 0; i < request->option_count; i++)
    if (is_option(request->options[i], spellings)) return true;
  return false;
}

static bool has_part(const struct jit_request *request, uint32_t kind) {
  for (size_t i = 0; i < request->part_count; i++)
    if (request->parts[i].kind == kind) return true;
  return false;
}

/* A source that meets parts must be compiled for linking. If the caller does not say how, the parts decide: with
 * LTO-IR among them the source becomes LTO-IR too, because only then can calls between them be inlined. */
struct link_plan link_plan_of(const struct jit_request *request) {
  static const char *const lto[] = {"dlto", "dlink-time-opt", NULL};
  static const char *const relocatable[] = {"rdc=true", "relocatable-device-code=true", "dc", "device-c", NULL};
  struct link_plan plan = {.compiles = request->sources->count != 0, .output = KJIT_PART_CUBIN};
  const bool told_lto = plan.compiles && has_option(request, lto), has_ltoir = has_part(request, KJIT_PART_LTOIR);
  const bool told_relocatable = plan.compiles && has_option(request, relocatable);
  plan.lto = told_lto || has_ltoir;
  if (plan.compiles && request->part_count && !told_lto && !told_relocatable)
    plan.unit_option = has_ltoir ? "-dlto" : "--relocatable-device-code=true";
  if (told_lto || (plan.unit_option && has_ltoir)) plan.output = KJIT_PART_LTOIR;
  plan.links = told_lto || told_relocatable || request->part_count > 1 || (plan.compiles && request->part_count) ||
               (request->part_count == 1 && request->parts[0].kind != KJIT_PART_CUBIN);
  if (request->flags & KJIT_BUILD_OBJECT) plan.links = false;
  return plan;
}
