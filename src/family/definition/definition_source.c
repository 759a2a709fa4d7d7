/* The source of a family.
 *
 * 1. definition_make_source() keeps what a kjit_build_request for it would hold, with the main file's text.
 * 2. It compares the constants of that text with the fields: one that nobody defines is an error, because the compiler
 *    would name it too, but after the fields were misspelt for a while; a field that nobody uses is a warning.
 * 3. Where the main file alone does not answer step 2, the headers are read too. They are not kept: a build finds them
 *    again, with the toolkit's, as kjit_build() does.
 *
 * Threads: one thread makes a definition. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/files/file.h"
#include "base/nearest.h"
#include "family/definition/constant_scan.h"
#include "family/definition/definition.h"
#include "family/element.h"
#include "jit/request/compile_options.h"
#include "jit/request/custom_request.h"

/* Largest main file that is read. A whole closure may have 64 MiB; no file that a person wrote comes near this. */
#define SOURCE_BYTES_MAX ((size_t)16 << 20)
#define PATHS_MAX        256

/* Names that were looked for already, so that each constant is looked for once. */
struct seen_name {
  const struct seen_name *next;
  const char *name;
  size_t bytes;
};

/* The sources are needed only where the main file does not answer a question. */
struct constant_check {
  const struct definition_maker *maker;
  const struct seen_name *seen;
  struct custom_request custom; /* zero: not collected yet */
};

/* Every branch's includes, because which branches a compile takes depends on the config and the architecture. Without
 * the toolkit's headers, because a family has no compiler; they have no constants of ours. */
static kjit_status collect(struct constant_check *check, const struct source_set **out) {
  const struct definition_maker *const maker = check->maker;
  const struct custom_extras extras = {.open_ended = true};
  kjit_status status = KJIT_OK;
  if (!check->custom.storage) {
    status = custom_request_begin(&check->custom, &maker->definition->mem, &maker->definition->request, "sm_80",
                                  &extras, maker->error);
    if (status == KJIT_OK) status = custom_request_collect(&check->custom, 1, maker->error);
  }
  *out = check->custom.request.sources;
  return status;
}

/* -- What is kept -------------------------------------------------------------------------------------------------- */

static const char *join(const struct definition_maker *maker, const char *folder, size_t folder_bytes,
                        const char *name) {
  struct arena *const arena = &maker->definition->arena;
  if (*name == '/' || !folder_bytes) return arena_copy(arena, name, strlen(name));
  return arena_printf(arena, "%.*s/%s", (int)folder_bytes, folder, name);
}

/* The source is read once and kept, so that a family means one text as long as it is open, whatever happens to the
 * file. Headers are read at each build, as those of kjit_build() are. */
static kjit_status read_source(const struct definition_maker *maker, const char *path, kjit_source *source) {
  struct family_definition *const definition = maker->definition;
  const kjit_source *const given = &maker->description->source;
  char *text = NULL;
  size_t bytes = given->text && !given->bytes ? strlen(given->text) : given->bytes;
  if (!given->text) {
    const kjit_status status = file_read(&definition->mem, path, SOURCE_BYTES_MAX, &text, &bytes, maker->error);
    if (status != KJIT_OK) return status;
  }
  source->name = arena_copy(&definition->arena, given->name, strlen(given->name));
  source->text = arena_copy(&definition->arena, text ? text : given->text, bytes);
  source->bytes = bytes;
  mem_free(&definition->mem, text);
  return source->name && source->text ? KJIT_OK : error_no_memory(maker->error);
}

/* The source's own folder first, then those of the description. */
static kjit_status copy_folders(const struct definition_maker *maker, const char *path) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  const char *const folder = description->folder ? description->folder : "";
  const kjit_family_text nowhere = {0};
  const char *const slash = strrchr(path, '/');
  if (description->include_dir_count >= PATHS_MAX)
    return definition_refuse(maker, &nowhere, "%zu include folders; at most %d", description->include_dir_count,
                             PATHS_MAX - 1);
  const char **dirs = arena_alloc_array(&definition->arena, description->include_dir_count + 1, sizeof *dirs);
  if (!dirs) return error_no_memory(maker->error);
  dirs[0] = slash ? arena_copy(&definition->arena, path, (size_t)(slash - path) + (slash == path)) : ".";
  for (size_t i = 0; i < description->include_dir_count; i++) {
    if (!description->include_dirs[i] || !*description->include_dirs[i])
      return definition_refuse(maker, &nowhere, "include[%zu] is empty", i);
    dirs[i + 1] = join(maker, folder, strlen(folder), description->include_dirs[i]);
  }
  definition->request.include_dirs = dirs;
  definition->request.include_dir_count = description->include_dir_count + 1;
  return definition->arena.failed ? error_no_memory(maker->error) : KJIT_OK;
}

static kjit_status copy_options(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  const kjit_family_text nowhere = {0};
  if (description->option_count > PATHS_MAX)
    return definition_refuse(maker, &nowhere, "%zu options; at most %d", description->option_count, PATHS_MAX);
  const char **options = arena_alloc_array(&definition->arena, description->option_count, sizeof *options);
  if (!options) return error_no_memory(maker->error);
  for (size_t i = 0; i < description->option_count; i++) {
    const kjit_status status = compile_option_check(description->options[i], i, maker->error);
    if (status != KJIT_OK) return status;
    options[i] = arena_copy(&definition->arena, description->options[i], strlen(description->options[i]));
  }
  definition->request.options = options;
  definition->request.option_count = description->option_count;
  return definition->arena.failed ? error_no_memory(maker->error) : KJIT_OK;
}

static kjit_status copy_headers(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  const kjit_family_text nowhere = {0};
  if (description->header_count > PATHS_MAX)
    return definition_refuse(maker, &nowhere, "%zu headers in memory; at most %d", description->header_count,
                             PATHS_MAX);
  kjit_source *headers = arena_alloc_array(&definition->arena, description->header_count, sizeof *headers);
  if (!headers) return error_no_memory(maker->error);
  for (size_t i = 0; i < description->header_count; i++) {
    const kjit_source *const given = &description->headers[i];
    if (!given->name || !given->text) return definition_refuse(maker, &nowhere, "headers[%zu] has no name or text", i);
    headers[i].bytes = given->bytes ? given->bytes : strlen(given->text);
    headers[i].name = arena_copy(&definition->arena, given->name, strlen(given->name));
    headers[i].text = arena_copy(&definition->arena, given->text, headers[i].bytes);
  }
  definition->request.headers = headers;
  definition->request.header_count = description->header_count;
  return definition->arena.failed ? error_no_memory(maker->error) : KJIT_OK;
}

/* -- Constants ----------------------------------------------------------------------------------------------------- */

static bool is_constant(const struct constant *constant, const char *name, const char *suffix) {
  const size_t bytes = strlen(name), suffix_bytes = strlen(suffix), middle = suffix_bytes > 0;
  return constant->bytes == bytes + middle + suffix_bytes && !memcmp(constant->name, name, bytes) &&
         (!middle || constant->name[bytes] == '_') && !memcmp(constant->name + bytes + middle, suffix, suffix_bytes);
}

/* Does the family define it? Which fields it stands for is added to `used`. */
static bool is_known(const struct family_definition *definition, const struct constant *constant, uint64_t *used) {
  bool known = false;
  for (size_t i = 0; i < definition->field_count; i++) {
    const bool type = definition->dtype_fields >> i & 1 && is_constant(constant, definition->field_names[i], "type");
    if (!type && !is_constant(constant, definition->field_names[i], "")) continue;
    *used |= UINT64_C(1) << i;
    known = 1;
  }
  for (size_t i = 0; i < definition->derived_count; i++) {
    if (!is_constant(constant, definition->derived_names[i], "")) continue;
    *used |= definition->derived_fields[i];
    known = 1;
  }
  for (size_t i = 0; i < definition->label_count && !known; i++)
    known = is_constant(constant, definition->field_names[definition->labels[i].field], definition->labels[i].name);
  for (size_t i = 0; element_at(i) && definition->dtype_fields && !known; i++)
    known = is_constant(constant, element_at(i)->name, "");
  return known;
}

static bool defines(const struct source_file *file, const struct constant *wanted) {
  struct constant_scan scan;
  struct constant constant;
  constant_scan_begin(&scan, file->text, file->bytes);
  while (constant_scan_next(&scan, &constant))
    if (constant.defined && constant.bytes == wanted->bytes && !memcmp(constant.name, wanted->name, wanted->bytes))
      return true;
  return false;
}

static kjit_status refuse_constant(const struct definition_maker *maker, const struct constant *constant) {
  const struct family_definition *const definition = maker->definition;
  struct nearest nearest;
  nearest_begin(&nearest, constant->name, constant->bytes);
  nearest_offer_all(&nearest, definition->field_names, definition->field_count);
  nearest_offer_all(&nearest, definition->derived_names, definition->derived_count);
  return error_set(maker->error, KJIT_ERR_PARSE,
                   "%s:%zu: the kernel uses KJIT_%.*s, and no field or derived constant of %s defines it%s%s%s",
                   definition->request.source.name, constant->line, constant->bytes < 64 ? (int)constant->bytes : 64,
                   constant->name, definition->family.table.family, nearest.best ? "; did you mean KJIT_" : "",
                   nearest.best ? nearest.best : "", nearest.best ? "?" : "");
}

/* A constant that the family does not define: fine if the source itself or one of its headers does. */
static kjit_status check_foreign(struct constant_check *check, const struct constant *constant) {
  struct family_definition *const definition = check->maker->definition;
  const struct source_set *sources;
  for (const struct seen_name *name = check->seen; name; name = name->next)
    if (name->bytes == constant->bytes && !memcmp(name->name, constant->name, constant->bytes)) return KJIT_OK;
  const struct source_file main_file = {.text = definition->request.source.text,
                                        .bytes = definition->request.source.bytes};
  bool found = defines(&main_file, constant);
  if (!found) {
    const kjit_status status = collect(check, &sources);
    if (status != KJIT_OK) return status;
    for (size_t i = 1; i < sources->count && !found; i++)
      found = defines(&sources->files[i], constant);
  }
  if (!found) return refuse_constant(check->maker, constant);
  struct seen_name *name = arena_alloc(&definition->arena, sizeof *name);
  if (!name) return error_no_memory(check->maker->error);
  *name = (struct seen_name){check->seen, constant->name, constant->bytes};
  check->seen = name;
  return KJIT_OK;
}

/* Step 2, unused fields: `unused` has a bit for each field that neither the source nor a header uses. */
static kjit_status warn(const struct definition_maker *maker, uint64_t unused) {
  struct family_definition *const definition = maker->definition;
  definition->warnings = arena_alloc_array(&definition->arena, definition->field_count, sizeof *definition->warnings);
  if (!definition->warnings) return error_no_memory(maker->error);
  for (size_t i = 0; i < definition->field_count; i++) {
    if (!(unused >> i & 1)) continue;
    const char *const name = definition->field_names[i];
    const char *const warning =
        arena_printf(&definition->arena,
                     "the field %s is never used: neither KJIT_%s nor a constant derived from it "
                     "stands in %s or its headers, so configs that differ in it alone have the "
                     "same code and are compiled twice",
                     name, name, definition->request.source.name);
    if (!warning) return error_no_memory(maker->error);
    definition->warnings[definition->warning_count++] = warning;
  }
  return KJIT_OK;
}

/* A template's arguments are uses too. */
static uint64_t used_by_template(const struct family_definition *definition) {
  uint64_t used = 0;
  for (size_t i = 0; i < definition->piece_count; i++) {
    if (definition->pieces[i].field >= 0) used |= UINT64_C(1) << definition->pieces[i].field;
    if (definition->pieces[i].derived >= 0) used |= definition->derived_fields[definition->pieces[i].derived];
  }
  return used;
}

/* Step 2: every KJIT_ constant of the main file must be a field's, a derived one, or defined by some header. The
 * headers are read for unused fields only if the main file does not use all of them, because collecting them costs
 * time. */
static kjit_status find_uses(struct constant_check *check, uint64_t *used) {
  struct family_definition *const definition = check->maker->definition;
  const uint64_t all = UINT64_MAX >> (KJIT_FIELD_COUNT_MAX - definition->field_count);
  const struct source_set *sources;
  struct constant_scan scan;
  struct constant constant;
  kjit_status status = KJIT_OK;
  constant_scan_begin(&scan, definition->request.source.text, definition->request.source.bytes);
  while (status == KJIT_OK && constant_scan_next(&scan, &constant))
    if (!is_known(definition, &constant, used) && !constant.defined) status = check_foreign(check, &constant);
  if (status != KJIT_OK || *used == all) return status;
  status = collect(check, &sources);
  for (size_t i = 1; status == KJIT_OK && i < sources->count; i++) {
    constant_scan_begin(&scan, sources->files[i].text, sources->files[i].bytes);
    while (constant_scan_next(&scan, &constant))
      (void)is_known(definition, &constant, used);
  }
  return status == KJIT_OK && *used != all ? warn(check->maker, all & ~*used) : status;
}

static kjit_status check_constants(const struct definition_maker *maker) {
  struct constant_check check = {.maker = maker};
  uint64_t used = used_by_template(maker->definition);
  const kjit_status status = find_uses(&check, &used);
  custom_request_finish(&check.custom);
  return status;
}

/* The source's path must be relative, because it is the name in the key: an absolute one would give each machine a
 * key of its own. */
kjit_status definition_make_source(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_description *const description = maker->description;
  const kjit_family_text nowhere = {0};
  const char *const folder = description->folder ? description->folder : "";
  if (!description->source.name || !*description->source.name || *description->source.name == '/')
    return definition_refuse(maker, &nowhere, "the source must be a path relative to the family file");
  definition->request = kjit_build_request_default();
  const char *const path = join(maker, folder, strlen(folder), description->source.name);
  if (!path) return error_no_memory(maker->error);
  kjit_status status = read_source(maker, path, &definition->request.source);
  if (status == KJIT_OK) status = copy_folders(maker, path);
  if (status == KJIT_OK) status = copy_headers(maker);
  if (status == KJIT_OK) status = copy_options(maker);
  if (status != KJIT_OK) return status;
  const char *const entry = description->entry;
  const kjit_family_text at = {entry, 0, 0};
  if (entry) status = definition_check_name(maker, &at, "entry");
  if (status != KJIT_OK) return status;
  definition->family.main_file = definition->request.source.name;
  const char *const name = entry ? entry : description->template_name.text;
  definition->family.entry = arena_copy(&definition->arena, name, strlen(name));
  definition->family.own_source = &definition->request;
  return definition->family.entry ? check_constants(maker) : error_no_memory(maker->error);
}
