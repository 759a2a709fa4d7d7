/* The public functions over a user's family. Every argument is checked here.
 *
 * Threads: a family is read only, but for its reference count, which is atomic. */
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "family/definition/definition.h"
#include "family/file/family_file.h"

/* The smallest kjit_family_description that is accepted ends with class_count; later members get their defaults. */
#define DESCRIPTION_OLDEST_BYTES (offsetof(kjit_family_description, class_count) + sizeof(size_t))

static struct mem standard_memory(void) {
  struct mem mem;
  (void)mem_init(&mem, NULL);
  return mem;
}

/* A family's struct is the first member of its definition. */
static kjit_family *publish(struct family_definition *definition) {
  return definition ? &definition->family : NULL;
}

kjit_status kjit_family_create(kjit_family **out, const kjit_family_description *description, kjit_error *error) {
  const struct mem mem = standard_memory();
  kjit_family_description local;
  struct family_definition *definition = NULL;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = struct_intake(&local, sizeof local, description, DESCRIPTION_OLDEST_BYTES, "description", error);
  if (status == KJIT_OK) status = definition_create(&definition, &mem, &local, error);
  *out = publish(definition);
  return status;
}

kjit_status kjit_family_parse(kjit_family **out, const char *text, size_t bytes, const char *name, const char *folder,
                              kjit_error *error) {
  const struct mem mem = standard_memory();
  struct family_definition *definition = NULL;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!text) return error_invalid(error, "text", "must not be NULL");
  if (!name) return error_invalid(error, "name", "must not be NULL");
  const kjit_status status = family_file_parse(&definition, &mem, text, bytes, name, folder, error);
  *out = publish(definition);
  return status;
}

kjit_status kjit_family_open(kjit_family **out, const char *path, kjit_error *error) {
  const struct mem mem = standard_memory();
  struct family_definition *definition = NULL;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!path) return error_invalid(error, "path", "must not be NULL");
  kjit_status status = family_file_open(&definition, &mem, path, error);
  if (status == KJIT_OK && !definition_set_file(definition, path)) {
    definition_release(definition);
    definition = NULL;
    status = error_no_memory(error);
  }
  *out = publish(definition);
  return status;
}

const kjit_family *kjit_family_retain(const kjit_family *family) {
  if (family && family->definition) definition_retain(family->definition);
  return family;
}

void kjit_family_release(const kjit_family *family) {
  if (family && family->definition) definition_release(family->definition);
}

const kjit_parameter_info *kjit_family_parameter(const kjit_family *family, size_t index) {
  if (!family || !family->definition || index >= family->definition->parameter_count) return NULL;
  return &family->definition->parameters[index];
}

const char *kjit_family_warning(const kjit_family *family, size_t index) {
  if (!family || !family->definition || index >= family->definition->warning_count) return NULL;
  return family->definition->warnings[index];
}

kjit_status kjit_family_grid(const kjit_config *config, const int64_t *parameters, uint32_t sm_count, uint32_t grid[3],
                             kjit_error *error) {
  error_clear(error);
  if (!grid) return error_invalid(error, "grid", "must not be NULL");
  memset(grid, 0, 3 * sizeof *grid);
  if (!config || !config->family) return error_invalid(error, "config", "must not be NULL, and neither its family");
  const struct family_definition *const definition = config->family->definition;
  if (!definition)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "config: %s is no user's family and says nothing of its grid",
                     config->family->table.family);
  if (!parameters && definition->parameter_count) return error_invalid(error, "parameters", "must not be NULL");
  return definition_grid(definition, config->values, parameters, sm_count, grid, error);
}
