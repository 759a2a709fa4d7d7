/* A config's source and cubin, for any family; no GPU is needed.
 *
 * 1. The config is checked, with the architecture, and brought into its canonical form: equal code, one key.
 * 2. The prologue is written: `#define KJIT_<field> <value>` lines sorted by name, what the family derives, a #line.
 * 3. A generated header, where there is one, joins the sources, and its defines the prologue.
 * 4. Prologue, label, sources, entry and options become a struct jit_request, which the builder answers.
 *
 * Threads: any number may build at once; nothing here is shared. */
#include "family/config_build.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "family/config.h"
#include "jit/builder_custom.h"
#include "runtime/runtime_internal.h"

/* Longest prologue: 64 fields and as many derived constants, lines of at most 128 bytes, several times over. */
#define PROLOGUE_MAX ((size_t)64 << 10)

/* A name expression: at most 2000 bytes as written, with a number or type in place of each field. */
#define ENTRY_MAX ((size_t)64 << 10)

/* What kjit's own kernels are compiled with. They use no texture and launch nothing, so NVRTC need not read what
 * declares that. Results that are rounded to 16 bits are exact enough with exp2 and division by the special function
 * unit. */
static const char *const own_options[] = {"--minimal", "--use_fast_math"};

void config_prologue(const kjit_family *family, const int32_t *values, struct text *out) {
  field_table_defines(&family->table, values, out);
  if (family->derive) family->derive(family, values, out);
  text_appendf(out, "#line 1 \"%s\"\n", family->main_file);
}

kjit_status config_sources(const kjit_family *family, struct source_shelf *shelf, const struct source_set **out,
                           kjit_error *error) {
  return source_shelf_get(shelf, family->main_file, out, error);
}

static void label_extra(struct text *label, const struct digest *digest) {
  char hex[DIGEST_HEX_BYTES];
  digest_to_hex(digest, hex);
  text_appendf(label, " variant %.12s", hex);
}

static bool has_file(const struct source_file *files, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    if (!strcmp(files[i].name, name)) return true;
  }
  return false;
}

/* Make the set of the family's sources, the generated header and what that may include. */
static kjit_status join(struct config_request *request, struct source_shelf *shelf, const struct source_set *own,
                        const struct config_extra *extra, kjit_error *error) {
  const struct source_set *more = NULL;
  if (extra->closure_main) {
    const kjit_status status = source_shelf_get(shelf, extra->closure_main, &more, error);
    if (status != KJIT_OK) return status;
  }
  const size_t most = own->count + 1 + (more ? more->count : 0);
  struct source_file *const files = mem_alloc(request->mem, most * sizeof *files);
  if (!files) return error_no_memory(error);
  request->files = files;
  memcpy(files, own->files, own->count * sizeof *files);
  size_t count = own->count;
  files[count++] = (struct source_file){.name = extra->name, .text = extra->text, .bytes = extra->bytes};
  for (size_t i = 1; more && i < more->count; i++) {
    if (!has_file(files, own->count, more->files[i].name)) files[count++] = more->files[i];
  }
  if (!source_set_seal(&request->joined, files, count, request->mem)) return error_no_memory(error);
  request->joined.withheld = own->withheld;
  request->request.sources = &request->joined;
  return KJIT_OK;
}

kjit_status config_request_init(struct config_request *request, const struct mem *mem, struct source_shelf *shelf,
                                const kjit_family *family, const int32_t *values, const struct config_act *act,
                                kjit_error *error) {
  int32_t canonical[KJIT_FIELD_COUNT_MAX] = {0};
  memcpy(canonical, values, family->table.config_bytes);
  config_canonicalize(family, canonical);
  text_init(&request->prologue, mem, PROLOGUE_MAX);
  text_init(&request->label, mem, KJIT_CONFIG_TEXT_MAX);
  request->mem = mem;
  request->files = NULL;
  request->request = (struct jit_request){.family = family->table.family,
                                          .entry = family->entry,
                                          .options = own_options,
                                          .option_count = family->is_exact ? 1 : 2,
                                          .has_no_line = act->extra != NULL || family->table.count == 0,
                                          .flags = act->flags};
  kjit_status status = config_sources(family, shelf, &request->request.sources, error);
  if (status == KJIT_OK && act->extra) status = join(request, shelf, request->request.sources, act->extra, error);
  if (status != KJIT_OK) return status;
  if (act->extra) text_append(&request->prologue, act->extra->defines);
  config_prologue(family, canonical, &request->prologue);
  config_print(family, canonical, &request->label);
  if (act->extra) label_extra(&request->label, &act->extra->digest);
  if (request->prologue.failed || request->label.failed) return error_no_memory(error);
  request->request.prologue = request->prologue.data;
  request->request.label = request->label.data;
  return target_parse(&request->request.target, act->arch, error);
}

void config_request_finish(struct config_request *request) {
  text_finish(&request->prologue);
  text_finish(&request->label);
  mem_free(request->mem, request->files);
}

/* The same for a source of the caller's, whose files are found as those of kjit_build() are. */
static kjit_status run_own(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                           const struct config_act *act, kjit_error *error) {
  int32_t canonical[KJIT_FIELD_COUNT_MAX] = {0};
  const struct mem *const mem = runtime_mem(runtime);
  struct text prologue, label, entry;
  memcpy(canonical, values, family->table.config_bytes);
  config_canonicalize(family, canonical);
  text_init(&prologue, mem, PROLOGUE_MAX);
  text_init(&label, mem, KJIT_CONFIG_TEXT_MAX);
  text_init(&entry, mem, ENTRY_MAX);
  config_prologue(family, canonical, &prologue);
  config_print(family, canonical, &label);
  if (family->print_entry)
    family->print_entry(family, canonical, &entry);
  else
    text_append(&entry, family->entry);
  const struct custom_role role = {family->table.family, family->file, label.data, prologue.data};
  kjit_build_request request = *family->own_source;
  request.entry = entry.data;
  request.flags = act->flags;
  const kjit_status status =
      prologue.failed || label.failed || entry.failed
          ? error_no_memory(error)
          : builder_custom(runtime_builder(runtime), &request, &role, act->arch, act->run, act->user, error);
  text_finish(&prologue);
  text_finish(&label);
  text_finish(&entry);
  return status;
}

kjit_status config_request_run(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                               const struct config_act *act, kjit_error *error) {
  struct config_request request;
  if (family->own_source) return run_own(runtime, family, values, act, error);
  kjit_status status = config_request_init(&request, runtime_mem(runtime), builder_sources(runtime_builder(runtime)),
                                           family, values, act, error);
  if (status == KJIT_OK) status = act->run(act->user, &request.request, error);
  config_request_finish(&request);
  return status;
}

struct wanted_artifact {
  struct builder *builder;
  kjit_artifact **out;
};

/* May be called again after a failed compile, which leaves an artifact that has the log alone. */
static kjit_status get_artifact(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_artifact *wanted = user;
  kjit_artifact_release(*wanted->out);
  *wanted->out = NULL;
  return builder_get(wanted->builder, request, wanted->out, error);
}

kjit_status kjit_config_build(kjit_runtime *runtime, const kjit_config *config, const char *arch, uint32_t flags,
                              kjit_artifact **out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  if (flags & ~JIT_REQUEST_FLAGS) return error_invalid(error, "flags", "only KJIT_BUILD_* may be set");
  const kjit_status status = kjit_config_check(config, arch, error);
  if (status != KJIT_OK) return status;
  struct wanted_artifact wanted = {runtime_builder(runtime), out};
  const struct config_act act = {.run = get_artifact, .user = &wanted, .arch = arch, .flags = flags};
  return config_request_run(runtime, config->family, config->values, &act, error);
}

/* Write prologue and main file, one behind the other. */
static kjit_status write_source(kjit_runtime *runtime, const kjit_config *config, const kjit_source *source,
                                char **text, kjit_error *error) {
  const kjit_config canonical = kjit_config_canonical(config);
  struct text out;
  text_init(&out, runtime_mem(runtime), PROLOGUE_MAX + source->bytes);
  config_prologue(config->family, canonical.values, &out);
  text_append_bytes(&out, source->text, source->bytes);
  *text = text_take(&out);
  text_finish(&out);
  return *text ? KJIT_OK : error_no_memory(error);
}

kjit_status kjit_config_source(kjit_runtime *runtime, const kjit_config *config, char **text, kjit_error *error) {
  const struct source_set *sources = NULL;
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_status status = kjit_config_check(config, NULL, error);
  if (status == KJIT_OK && config->family->own_source)
    return write_source(runtime, config, &config->family->own_source->source, text, error);
  if (status == KJIT_OK)
    status = config_sources(config->family, builder_sources(runtime_builder(runtime)), &sources, error);
  if (status != KJIT_OK) return status;
  if (sources->withheld) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF)");
  }
  const kjit_source main_file = {.text = sources->files[0].text, .bytes = sources->files[0].bytes};
  return write_source(runtime, config, &main_file, text, error);
}
