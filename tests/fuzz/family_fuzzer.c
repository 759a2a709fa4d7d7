/* Any text as a family file, over a kernel in memory: it is refused with one line that names the file, or it is a
 * family whose configs print and are read back, whose canonical form is one, and none of whose expressions misbehaves.
 */
#include <stdint.h>
#include <string.h>

#include "family/file/family_file.h"
#include "fuzz/require.h"

#define CONFIGS 32

static void check_refusal(kjit_status status, const kjit_error *error) {
  require(status == KJIT_ERR_PARSE || status == KJIT_ERR_INVALID_ARG);
  require(error->status == (int32_t)status && error->message[0] && !strchr(error->message, '\n'));
}

static void check_config(const struct family_definition *definition, const int32_t *values) {
  const kjit_family *const family = &definition->family;
  int64_t parameters[DEFINITION_PARAMETERS_MAX] = {1, 77, INT64_MAX, INT64_MIN, 4096};
  int32_t again[KJIT_FIELD_COUNT_MAX], canonical[KJIT_FIELD_COUNT_MAX];
  const struct family_place place = {"sm_90a", 132, 232448, {0}};
  char buffer[1 << 16];
  kjit_geometry geometry;
  uint32_t grid[3];
  struct text text;
  text_init_fixed(&text, buffer, sizeof buffer);
  family->print(family, values, &text);
  require(text.bytes < DEFINITION_TEXT_MAX);
  require(family->parse(family, buffer, again, NULL) == KJIT_OK);
  require(!memcmp(values, again, family->table.config_bytes));
  (void)definition_grid(definition, values, parameters, 132, grid, NULL);
  if (family->check(family, values, NULL) != KJIT_OK) return;
  memcpy(canonical, values, sizeof canonical);
  family->canonicalize(family, canonical);
  require(family->check(family, canonical, NULL) == KJIT_OK);
  memcpy(again, canonical, sizeof again);
  family->canonicalize(family, again);
  require(!memcmp(canonical, again, family->table.config_bytes));
  family->geometry(family, values, &geometry);
  require(geometry.threads[0] * geometry.threads[1] * geometry.threads[2] >= 1);
  (void)family->check_place(family, values, &place, NULL);
  text_init_fixed(&text, buffer, sizeof buffer);
  family->derive(family, canonical, &text);
  text_init_fixed(&text, buffer, sizeof buffer);
  if (family->print_entry) family->print_entry(family, canonical, &text);
}

static void check_family(const struct family_definition *definition) {
  int32_t values[KJIT_FIELD_COUNT_MAX] = {0};
  const int64_t parameters[DEFINITION_PARAMETERS_MAX] = {5};
  int32_t bucket;
  for (size_t config = 0; config < CONFIGS; config++) {
    for (size_t i = 0; i < definition->field_count; i++) {
      const struct definition_field *const field = &definition->fields[i];
      values[i] = definition_value_at(field, (config * (i + 3) + i) % definition_value_count(field));
      require(definition_is_legal(field, values[i]));
    }
    check_config(definition, values);
  }
  for (size_t i = 0; i < definition->set_count; i++) {
    definition_set_get(&definition->family, definition->sets[i].name, 0, values);
    require(definition_check(&definition->family, values, NULL) == KJIT_OK);
  }
  for (size_t i = 0; i < definition->class_count; i++)
    (void)definition_classify(definition, i, values, parameters, &bucket, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct family_definition *definition = NULL;
  kjit_family_description description;
  kjit_error error = {0};
  struct arena arena;
  struct mem mem;
  (void)mem_init(&mem, NULL);
  arena_init(&arena, &mem, ARENA_UNLIMITED);
  kjit_status status = family_file_read(&description, &arena, (const char *)data, size, "fuzz.yaml", NULL, &error);
  if (status == KJIT_OK) {
    description.source.text = "__global__ void k() {}\n";
    status = definition_create(&definition, &mem, &description, &error);
  }
  arena_finish(&arena);
  if (status == KJIT_OK) {
    input_is_taken();
    check_family(definition);
    definition_release(definition);
  } else {
    check_refusal(status, &error);
  }
  return 0;
}
