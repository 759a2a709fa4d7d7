/* Configs of any family: fields, sets, text forms, rules, order and geometry, each through the family's table and its
 * functions. Compiling one is config_build.c's, loading one config_kernel.c's.
 *
 * Threads: everything here is pure. */
#include "family/config.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/target.h"
#include "family/pair_form.h"

/* ---- Families ---- */

const char *kjit_family_name(const kjit_family *family) {
  return family ? family->table.family : NULL;
}

const kjit_field_info *kjit_family_field(const kjit_family *family, size_t index) {
  return family && index < family->table.count ? &family->table.fields[index] : NULL;
}

const char *kjit_family_set_name(const kjit_family *family, size_t index) {
  for (size_t i = 0; family && family->sets && family->sets[i]; i++)
    if (i == index) return family->sets[i];
  return NULL;
}

/* The message lists the sets that there are, cut where it would be too long. */
static kjit_status no_set(const kjit_family *family, const char *set, kjit_error *error) {
  char names[256] = "";
  struct text out;
  text_init_fixed(&out, names, sizeof names);
  for (size_t i = 0; family->sets && family->sets[i]; i++)
    text_appendf(&out, "%s%s", i ? ", " : "there are ", family->sets[i]);
  return error_set(error, KJIT_ERR_NOT_FOUND, "set \"%.40s\" is none of %s; %s", set, family->table.family,
                   names[0] ? names : "the family has no sets");
}

static bool has_set(const kjit_family *family, const char *set) {
  for (size_t i = 0; family->sets && family->sets[i]; i++) {
    if (!strcmp(family->sets[i], set)) return true;
  }
  return false;
}

/* The count is given even where the index is beyond it, so that a caller may ask for both at once. */
kjit_status kjit_family_set(const kjit_family *family, const char *set, size_t index, kjit_config *config,
                            size_t *count, kjit_error *error) {
  error_clear(error);
  if (config) *config = (kjit_config){.family = family};
  if (count) *count = 0;
  if (!family) return error_invalid(error, "family", "must not be NULL");
  if (!set) return error_invalid(error, "set", "must not be NULL");
  if (!has_set(family, set)) return no_set(family, set, error);
  const size_t all = family->set_count(family, set);
  if (count) *count = all;
  if (!config) return KJIT_OK;
  if (index >= all)
    return error_set(error, KJIT_ERR_NOT_FOUND, "index is %zu: the set \"%.40s\" has %zu configs", index, set, all);
  family->set_get(family, set, index, config->values);
  return KJIT_OK;
}

/* ---- Places ---- */

/* An architecture says how much shared memory a block may have, but not how many SMs a card has. Rules that ask for
 * them get the usual number. */
kjit_status family_place_of_arch(const char *arch, struct family_place *place, kjit_error *error) {
  struct target target;
  const kjit_status status = target_parse(&target, arch, error);
  const struct target_limits *limits = status == KJIT_OK ? target_get_limits(&target) : NULL;
  *place = (struct family_place){arch, FAMILY_USUAL_SM_COUNT, limits ? limits->shared_per_block : 0, {0}};
  return status;
}

struct family_place family_place_of_device(const kjit_device_info *device) {
  return (struct family_place){
      device->arch_specific,
      device->multiprocessors,
      device->max_shared_per_block,
      {device->l2_bytes, device->memory_gb_s, device->load_mhz, device->tensor_flops},
  };
}

/* ---- Text ---- */

/* A family may have a text form of its own, as flash_forward has; the others are written as name=value pairs. */
kjit_status config_parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error) {
  if (family->parse) return family->parse(family, text, values, error);
  return pair_form_parse(&family->table, text, values, error);
}

void config_print(const kjit_family *family, const int32_t *values, struct text *out) {
  if (family->print)
    family->print(family, values, out);
  else
    pair_form_print(&family->table, values, out);
}

kjit_status kjit_config_parse(const kjit_family *family, const char *text, kjit_config *out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_config){.family = family};
  if (!family) return error_invalid(error, "family", "must not be NULL");
  if (!text) return error_invalid(error, "text", "must not be NULL");
  return config_parse(family, text, out->values, error);
}

/* A text that did not fit is emptied, since half a config may be a legal other one. */
kjit_status kjit_config_print(const kjit_config *config, uint32_t flags, char *text, size_t capacity,
                              kjit_error *error) {
  struct text out;
  error_clear(error);
  const kjit_status status = config_take(config, error);
  if (status != KJIT_OK) return status;
  if (!text || !capacity) return error_invalid(error, "text", "must have room for KJIT_CONFIG_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  if (flags & ~KJIT_PRINT_JSON) return error_invalid(error, "flags", "only KJIT_PRINT_JSON may be set");
  if (flags & KJIT_PRINT_JSON)
    field_table_json(&config->family->table, config->values, &out);
  else
    config_print(config->family, config->values, &out);
  if (!out.failed) return KJIT_OK;
  *text = '\0';
  return error_invalid(error, "capacity", "too small; KJIT_CONFIG_TEXT_MAX never is");
}

/* ---- Values ---- */

kjit_status config_take(const kjit_config *config, kjit_error *error) {
  if (!config) return error_invalid(error, "config", "must not be NULL");
  return config->family ? KJIT_OK : error_invalid(error, "config.family", "must not be NULL");
}

static kjit_status find_field(const kjit_config *config, const char *name, const kjit_field_info **out,
                              kjit_error *error) {
  const kjit_status status = config_take(config, error);
  if (status != KJIT_OK) return status;
  if (!name) return error_invalid(error, "field", "must not be NULL");
  *out = field_table_find(&config->family->table, name, strlen(name));
  if (*out) return KJIT_OK;
  return error_set(error, KJIT_ERR_NOT_FOUND, "\"%.64s\" is no field of %s", name, config->family->table.family);
}

kjit_status kjit_config_get(const kjit_config *config, const char *field, int32_t *value, kjit_error *error) {
  const kjit_field_info *found = NULL;
  error_clear(error);
  if (!value) return error_invalid(error, "value", "must not be NULL");
  *value = 0;
  const kjit_status status = find_field(config, field, &found, error);
  if (status == KJIT_OK) *value = field_get(found, config->values);
  return status;
}

kjit_status kjit_config_set(kjit_config *config, const char *field, int32_t value, kjit_error *error) {
  const kjit_field_info *found = NULL;
  error_clear(error);
  const kjit_status status = find_field(config, field, &found, error);
  if (status == KJIT_OK) field_put(found, config->values, value);
  return status;
}

int kjit_config_compare(const kjit_config *a, const kjit_config *b) {
  if (a->family == b->family) return field_table_compare(&a->family->table, a->values, b->values);
  const int by_name = strcmp(a->family->table.family, b->family->table.family);
  if (by_name != 0) return by_name < 0 ? -1 : 1;
  /* Two families of one name are different; their order holds as long as both live. */
  return (uintptr_t)a->family < (uintptr_t)b->family ? -1 : 1;
}

/* ---- Rules and what follows from a config ---- */

/* The rules that hold everywhere come first, so that a config that is wrong by itself is not blamed on the card. */
kjit_status config_check(const kjit_family *family, const int32_t *values, const struct family_place *place,
                         kjit_error *error) {
  const kjit_status status = family->check(family, values, error);
  if (status != KJIT_OK || !place || !family->check_place) return status;
  return family->check_place(family, values, place, error);
}

kjit_status kjit_config_check(const kjit_config *config, const char *arch, kjit_error *error) {
  struct family_place place;
  error_clear(error);
  kjit_status status = config_take(config, error);
  if (status == KJIT_OK) status = config_check(config->family, config->values, NULL, error);
  if (status != KJIT_OK || !arch) return status;
  status = family_place_of_arch(arch, &place, error);
  return status == KJIT_OK ? config_check(config->family, config->values, &place, error) : status;
}

void config_canonicalize(const kjit_family *family, int32_t *values) {
  if (family->canonicalize) family->canonicalize(family, values);
}

kjit_config kjit_config_canonical(const kjit_config *config) {
  kjit_config canonical = *config;
  config_canonicalize(config->family, canonical.values);
  return canonical;
}

kjit_geometry config_geometry(const kjit_family *family, const int32_t *values) {
  kjit_geometry geometry = {0};
  family->geometry(family, values, &geometry);
  return geometry;
}

kjit_geometry kjit_config_geometry(const kjit_config *config) {
  if (kjit_config_check(config, NULL, NULL) != KJIT_OK) return (kjit_geometry){0};
  return config_geometry(config->family, config->values);
}

/* What the host will launch with, for the kernel's static_asserts: if both computed it for themselves, a difference
 * would write past the shared memory. */
void config_derive_geometry(const kjit_family *family, const int32_t *values, struct text *out) {
  const kjit_geometry geometry = config_geometry(family, values);
  text_appendf(out, "#define KJIT_shared_bytes %u\n#define KJIT_threads %u\n", geometry.shared_bytes,
               geometry.threads[0] * geometry.threads[1] * geometry.threads[2]);
}
