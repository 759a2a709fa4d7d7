/* Which unit of a sealed program a caller means, by entry, architecture and defines. Where the caller leaves the
 * architecture to the device, the code that is most specific to it wins. Pure functions over an open program. */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "jit/bundle/sealed.h"

/* A name of a module means the module. */
static const char *find_entry(const struct sealed_unit *unit, const char *name) {
  if (!name) return unit->entries[0];
  for (size_t i = 0; i < unit->entry_count; i++)
    if (!strcmp(unit->entries[i], name)) return unit->entries[i];
  for (size_t i = 0; i < unit->name_count; i++)
    if (!strcmp(unit->names[i], name)) return unit->entries[0];
  return NULL;
}

static bool has_defines(const struct sealed_unit *unit, const struct sealed_wanted *wanted) {
  if (!wanted->define_count) return true;
  if (unit->define_count != wanted->define_count) return false;
  for (size_t i = 0; i < unit->define_count; i++) {
    const char *name = wanted->defines[i].name, *value = wanted->defines[i].value;
    if (!name || strcmp(unit->defines[i].name, name) || strcmp(unit->defines[i].value, value ? value : "1"))
      return false;
  }
  return true;
}

static bool has_target(const struct sealed_unit *unit, const struct sealed_wanted *wanted) {
  if (wanted->arch) return !strcmp(unit->target.name, wanted->arch);
  return !wanted->capability || target_runs_on(&unit->target, wanted->capability);
}

/* Of two architectures that run on a device the higher one has more instructions, and 'a' has all. */
static uint32_t rank(const struct target *target) {
  return 4 * target->capability + (target->suffix == 'a' ? 2 : target->suffix == 'f');
}

/* Without a name the program must have one kernel, or else the caller would get whatever came first. */
static bool is_ambiguous(const struct sealed *sealed) {
  for (size_t i = 0; i < sealed->unit_count; i++) {
    const struct sealed_unit *unit = &sealed->units[i];
    if (unit->entry_count > 1 || strcmp(unit->entries[0], sealed->units[0].entries[0])) return true;
  }
  return false;
}

static kjit_status not_found(const struct sealed *sealed, const struct sealed_wanted *wanted, kjit_error *error) {
  bool known = false;
  char list[200] = "";
  for (size_t i = 0; i < sealed->unit_count; i++) {
    const struct sealed_unit *unit = &sealed->units[i];
    if (!find_entry(unit, wanted->entry)) continue;
    known = 1;
    if (!has_defines(unit, wanted) || strstr(list, unit->target.name) ||
        strlen(list) + sizeof unit->target.name + 2 > sizeof list)
      continue;
    if (*list) strcat(list, ", ");
    strcat(list, unit->target.name);
  }
  if (!known)
    return error_set(error, KJIT_ERR_NOT_FOUND, "entry: %.160s: the sealed program %s has no kernel of that name",
                     wanted->entry ? wanted->entry : "", sealed->name);
  if (!*list)
    return error_set(
        error, KJIT_ERR_NOT_FOUND,
        "defines: the sealed program %s has no kernel %.160s with these; a variant names all of its defines",
        sealed->name, wanted->entry ? wanted->entry : "");
  return error_set(error, KJIT_ERR_NOT_FOUND, "arch: %s: the sealed program %s has the kernel for %s only",
                   wanted->arch ? wanted->arch : "that of the device", sealed->name, list);
}

kjit_status sealed_find(const struct sealed *sealed, const struct sealed_wanted *wanted,
                        const struct sealed_unit **unit, const char **entry, kjit_error *error) {
  *unit = NULL;
  if (!wanted->entry && is_ambiguous(sealed))
    return error_set(error, KJIT_ERR_INVALID_ARG, "entry: the sealed program %s has several kernels; name one",
                     sealed->name);
  for (size_t i = 0; i < sealed->unit_count; i++) {
    const struct sealed_unit *candidate = &sealed->units[i];
    const char *found = find_entry(candidate, wanted->entry);
    if (!found || !has_defines(candidate, wanted) || !has_target(candidate, wanted)) continue;
    if (*unit && !wanted->arch && !wanted->capability && strcmp((*unit)->target.name, candidate->target.name))
      return error_set(error, KJIT_ERR_INVALID_ARG,
                       "arch: the sealed program %s has the kernel for several architectures; name one", sealed->name);
    if (*unit && rank(&candidate->target) <= rank(&(*unit)->target)) continue;
    *unit = candidate;
    *entry = found;
  }
  return *unit ? KJIT_OK : not_found(sealed, wanted, error);
}
