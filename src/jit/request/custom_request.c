/* Turns a caller's kjit_build_request into a struct jit_request.
 *
 * 1. Every member is checked, with a message that names it: names, sizes, defines, options, folders.
 * 2. The prologue is written: one #define line for each define, and a #line that names the caller's source.
 * 3. The closure of #includes is collected from the caller's headers and folders (include_closure.c), so that every
 *    byte that the compiler reads is in the key.
 *
 * The result owns its memory, but borrows the caller's texts, which must outlive it. Any thread. */
#include "jit/request/custom_request.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "base/text.h"
#include "jit/request/compile_options.h"
#include "jit/request/counts.h"
#include "jit/request/defines.h"
#include "jit/request/names.h"
#include "jit/request/parts.h"
#include "jit/source/include_closure.h"

/* Part of the fingerprint, so that a record that another version of the library kept is not used. */
#define FINGERPRINT_VERSION 1

/* More than people write or generators emit, and less than would make a key or a section's name unwieldy. */
#define NAME_LIMIT 1000

struct storage {
  const struct mem *mem;
  char *label, *entry, *prologue;
  char **names; /* the first is the entry's where that is an expression */
  size_t name_count;
  struct jit_part *parts;
  char **options;
  size_t option_count;
  const char **dirs; /* the request's and the runtime's; the texts are theirs */
  struct target target;
  unsigned cuda_version;
  bool open_ended;
  kjit_source source;   /* the caller's, with `bytes` filled in */
  kjit_source *headers; /* the caller's, with `bytes` filled in */
  struct include_search search;
  struct include_closure closure;
  struct source_file *files;
  struct source_set set;
};

/* -- Checks ------------------------------------------------------------------------------------------------------- */

/* True for a name that may stand in a #line and in keys that other machines compare: relative, without control
 * characters and quotes. */
static bool is_file_name(const char *name) {
  if (!name || !*name || *name == '/' || strnlen(name, NAME_LIMIT + 1) > NAME_LIMIT) return false;
  for (; *name; name++) {
    if ((unsigned char)*name < 0x20 || *name == 0x7F || *name == '"' || *name == '\\') return false;
  }
  return true;
}

/* Check a source, and fill in the size that the caller left to strlen(). */
static kjit_status check_source(kjit_source *source, const char *what, kjit_error *error) {
  if (!is_file_name(source->name)) {
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "%s.name: must be relative, with \"/\" between folders, and without quotes, backslashes and "
                     "control characters",
                     what);
  }
  if (!source->text) return error_set(error, KJIT_ERR_INVALID_ARG, "%s (%.160s): text is missing", what, source->name);
  if (!source->bytes) source->bytes = strlen(source->text);
  const char *nul = memchr(source->text, '\0', source->bytes);
  if (!nul) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s (%.160s): a NUL at byte %zu, where the compiler would stop", what,
                   source->name, (size_t)(nul - source->text));
}

/* Two headers of one name would leave it to the order of the list which of them the compiler reads. */
static kjit_status check_header(const kjit_source *headers, kjit_source *header, size_t index, kjit_error *error) {
  char what[32];
  (void)snprintf(what, sizeof what, "headers[%zu]", index);
  const kjit_status status = check_source(header, what, error);
  for (size_t i = 0; i < index && status == KJIT_OK; i++) {
    if (!strcmp(headers[i].name, header->name)) {
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s.name: \"%.160s\" is the name of headers[%zu] too", what,
                       header->name, i);
    }
  }
  return status;
}

static kjit_status check_options(const kjit_build_request *request, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < request->option_count && status == KJIT_OK; i++)
    status = compile_option_check(request->options[i], i, error);
  return status;
}

static kjit_status check_dirs(const kjit_build_request *request, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < request->include_dir_count && status == KJIT_OK; i++) {
    if (!request->include_dirs[i] || !*request->include_dirs[i])
      status = error_set(error, KJIT_ERR_INVALID_ARG, "include_dirs[%zu]: is empty", i);
  }
  return status;
}

static kjit_status check_scalars(const kjit_build_request *request, kjit_error *error) {
  if (request->flags & ~JIT_REQUEST_FLAGS) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "flags: 0x%x has bits that this library does not know",
                     request->flags);
  }
  return KJIT_OK;
}

/* -- Copies ------------------------------------------------------------------------------------------------------- */

static kjit_status copy_headers(struct storage *storage, const kjit_build_request *request, kjit_error *error) {
  kjit_status status = KJIT_OK;
  storage->headers = mem_alloc_array(storage->mem, request->header_count, sizeof *storage->headers);
  if (!storage->headers) return error_no_memory(error);
  for (size_t i = 0; i < request->header_count && status == KJIT_OK; i++) {
    storage->headers[i] = request->headers[i];
    status = check_header(storage->headers, &storage->headers[i], i, error);
  }
  return status;
}

static kjit_status copy_options(struct storage *storage, const kjit_build_request *request, kjit_error *error) {
  return compile_options_take(&storage->options, &storage->option_count, storage->mem, request, error);
}

static kjit_status copy_names(struct storage *storage, const kjit_build_request *request, kjit_error *error) {
  storage->entry = mem_strdup(storage->mem, request->entry ? request->entry : "");
  if (!storage->entry) return error_no_memory(error);
  return names_take(&storage->names, &storage->name_count, storage->mem, request, error);
}

/* A family's prologue comes first and ends with a #line of its own. Without a family the #line names the caller's file,
 * so that the compiler's messages count the caller's lines and not the prologue's. */
static kjit_status make_prologue(struct storage *storage, const kjit_build_request *request,
                                 const struct custom_role *role, kjit_error *error) {
  struct text text;
  text_init(&text, storage->mem, DEFINES_BYTES_MAX + 2 * NAME_LIMIT);
  if (role) text_append(&text, role->prologue);
  defines_print(request, &text);
  if (request->source.text && !role) text_appendf(&text, "#line 1 \"%s\"\n", request->source.name);
  storage->prologue = text_take(&text);
  text_finish(&text);
  return storage->prologue ? KJIT_OK : error_no_memory(error);
}

/* The request's folders are searched before the runtime's, as a compiler searches -I before its own. */
static kjit_status copy_dirs(struct storage *storage, const kjit_build_request *request,
                             const struct custom_extras *extras, kjit_error *error) {
  const size_t own = request->include_dir_count, more = extras ? extras->dir_count : 0;
  storage->dirs = mem_alloc_array(storage->mem, own + more, sizeof *storage->dirs);
  if (!storage->dirs) return error_no_memory(error);
  if (own) memcpy(storage->dirs, request->include_dirs, own * sizeof *storage->dirs);
  if (more) memcpy(storage->dirs + own, extras->dirs, more * sizeof *storage->dirs);
  storage->search = (struct include_search){storage->headers, request->header_count, storage->dirs, own + more, 0};
  return KJIT_OK;
}

/* A request of linked parts alone has no source; then there is nothing to search headers for. */
static kjit_status copy_source(struct storage *storage, const kjit_build_request *request,
                               const struct custom_extras *extras, kjit_error *error) {
  storage->source = request->source;
  if (!request->source.text && request->part_count) return parts_check_no_source(request, error);
  if (!request->source.text && !request->source.name)
    return error_invalid(error, "source", "is missing: a request has a source, compiled parts, or both");
  kjit_status status = check_source(&storage->source, "source", error);
  if (status == KJIT_OK) status = check_dirs(request, error);
  if (status == KJIT_OK) status = copy_headers(storage, request, error);
  if (status == KJIT_OK) status = copy_dirs(storage, request, extras, error);
  return status;
}

static kjit_status fill_storage(struct storage *storage, const kjit_build_request *request,
                                const struct custom_extras *extras, kjit_error *error) {
  const struct custom_role *const role = extras ? extras->role : NULL;
  kjit_status status = request_check_counts(request, error);
  if (status == KJIT_OK) status = check_scalars(request, error);
  if (status == KJIT_OK) status = defines_check(request, error);
  if (status == KJIT_OK) status = check_options(request, error);
  if (status == KJIT_OK) status = copy_names(storage, request, error);
  if (status == KJIT_OK) status = parts_take(&storage->parts, storage->mem, request, error);
  if (status == KJIT_OK) status = copy_source(storage, request, extras, error);
  if (status == KJIT_OK) status = make_prologue(storage, request, role, error);
  if (status == KJIT_OK) status = copy_options(storage, request, error);
  if (status != KJIT_OK) return status;
  storage->cuda_version = extras ? extras->cuda_version : 0;
  storage->open_ended = extras && extras->open_ended;
  const char *const label = request->source.text ? request->source.name : "(parts)";
  storage->label = mem_strdup(storage->mem, role ? role->label : label);
  return storage->label ? KJIT_OK : error_no_memory(error);
}

/* The sources are missing in it until custom_request_collect() or custom_request_use() provides them. */
static struct jit_request request_of(const struct storage *storage, const kjit_build_request *request) {
  return (struct jit_request){.family = "custom",
                              .keeps_texts = true,
                              .label = storage->label,
                              .target = storage->target,
                              .entry = storage->entry,
                              .names = (const char *const *)storage->names,
                              .name_count = storage->name_count,
                              .prologue = storage->prologue,
                              .parts = storage->parts,
                              .part_count = request->part_count,
                              .options = (const char *const *)storage->options,
                              .option_count = storage->option_count,
                              /* An object keeps what it has anyway. */
                              .flags = request->flags & KJIT_BUILD_OBJECT ? request->flags & ~KJIT_BUILD_KEEP_UNUSED
                                                                          : request->flags,
                              .timeout_ms = request->timeout_ms,
                              .stop = request->stop,
                              .stop_user = request->stop_user};
}

bool custom_request_has_source(const struct custom_request *custom) {
  const struct storage *storage = custom->storage;
  return storage->source.text != NULL;
}

/* The plan follows from whether there is a source, not from what it includes, which is not known yet. */
static kjit_status check_plan(const struct custom_request *custom, kjit_error *error) {
  const struct source_set sources = {.count = custom_request_has_source(custom)};
  struct jit_request request = custom->request;
  request.sources = &sources;
  return parts_check_plan(&request, error);
}

kjit_status custom_request_begin(struct custom_request *custom, const struct mem *mem,
                                 const kjit_build_request *public_request, const char *arch,
                                 const struct custom_extras *extras, kjit_error *error) {
  kjit_build_request request;
  struct target target;
  *custom = (struct custom_request){0};
  kjit_status status = struct_intake(&request, sizeof request, public_request, REQUEST_OLDEST_BYTES, "request", error);
  if (status == KJIT_OK) status = target_parse(&target, request.arch ? request.arch : arch, error);
  if (status != KJIT_OK) return status;
  struct storage *storage = mem_alloc(mem, sizeof *storage);
  if (!storage) return error_no_memory(error);
  storage->mem = mem;
  storage->target = target;
  custom->storage = storage;
  status = fill_storage(storage, &request, extras, error);
  if (status == KJIT_OK) {
    custom->request = request_of(storage, &request);
    if (extras && extras->role) custom->request.family = extras->role->family;
    if (extras && extras->role) custom->request.family_file = extras->role->file;
    custom->request.is_users = extras && extras->role;
    status = check_plan(custom, error);
  }
  if (status != KJIT_OK) custom_request_finish(custom);
  return status;
}

static void forget_sources(struct storage *storage) {
  include_closure_finish(&storage->closure);
  mem_free(storage->mem, storage->files);
  storage->files = NULL;
}

/* Walk through the includes. It may be called again with other terms, and then forgets what it found before. */
kjit_status custom_request_collect(struct custom_request *custom, bool everything, kjit_error *error) {
  struct storage *storage = custom->storage;
  const struct include_terms terms = {.prologue = storage->prologue,
                                      .target = &storage->target,
                                      .options = (const char *const *)storage->options,
                                      .option_count = storage->option_count,
                                      .cuda_version = storage->cuda_version,
                                      .open_ended = storage->open_ended,
                                      .everything = everything,
                                      .stop = custom->stop,
                                      .stop_user = custom->stop_user};
  forget_sources(storage);
  custom->request.sources = NULL;
  if (!custom_request_has_source(custom)) {
    storage->set = (struct source_set){0};
    custom->request.sources = &storage->set;
    return KJIT_OK;
  }
  kjit_status status =
      include_closure_collect(&storage->closure, storage->mem, &storage->search, &terms, &storage->source, error);
  if (status == KJIT_OK) status = include_closure_seal(&storage->closure, &storage->set, &storage->files, error);
  if (status == KJIT_OK) custom->request.sources = &storage->set;
  return status;
}

void custom_request_use(struct custom_request *custom, const struct source_set *set) {
  custom->request.sources = set;
}

bool custom_request_watches(const struct custom_request *custom, const struct include_watch **watches, size_t *count) {
  const struct storage *storage = custom->storage;
  return include_closure_watches(&storage->closure, watches, count);
}

const kjit_source *custom_request_source(const struct custom_request *custom) {
  const struct storage *storage = custom->storage;
  return &storage->source;
}

static void add_bytes(struct digest_state *state, const char *data, size_t bytes) {
  const uint64_t length = bytes;
  digest_add(state, &length, sizeof length);
  digest_add(state, data, bytes);
}

static void add_string(struct digest_state *state, const char *text) {
  add_bytes(state, text, strlen(text));
}

/* Everything that can change what the walk through the includes finds, but not the files that it finds: by this the
 * memory of earlier walks is asked whether it knows the answer. Each text has its length in front, so that no two lists
 * of texts run together. */
void custom_request_fingerprint(const struct custom_request *custom, struct digest *fingerprint) {
  const struct storage *storage = custom->storage;
  const struct include_search *search = &storage->search;
  const uint64_t counts[] = {FINGERPRINT_VERSION, storage->cuda_version, storage->option_count, search->header_count,
                             search->dir_count};
  struct digest_state state;
  digest_begin(&state);
  digest_add(&state, counts, sizeof counts);
  add_string(&state, storage->target.name);
  add_string(&state, storage->prologue);
  for (size_t i = 0; i < storage->option_count; i++)
    add_string(&state, storage->options[i]);
  for (size_t i = 0; i < search->dir_count; i++)
    add_string(&state, search->dirs[i]);
  add_bytes(&state, storage->source.text, storage->source.bytes);
  for (size_t i = 0; i < search->header_count; i++) {
    add_string(&state, search->headers[i].name);
    add_bytes(&state, search->headers[i].text, search->headers[i].bytes);
  }
  digest_end(&state, fingerprint);
}

kjit_status custom_request_init(struct custom_request *custom, const struct mem *mem,
                                const kjit_build_request *public_request, const char *arch, kjit_error *error) {
  kjit_status status = custom_request_begin(custom, mem, public_request, arch, NULL, error);
  if (status == KJIT_OK) status = custom_request_collect(custom, 0, error);
  if (status != KJIT_OK) custom_request_finish(custom);
  return status;
}

void custom_request_finish(struct custom_request *custom) {
  struct storage *storage = custom->storage;
  *custom = (struct custom_request){0};
  if (!storage) return;
  const struct mem *mem = storage->mem;
  forget_sources(storage);
  for (size_t i = 0; i < storage->option_count; i++)
    mem_free(mem, storage->options[i]);
  mem_free(mem, storage->options);
  mem_free(mem, storage->headers);
  mem_free(mem, storage->parts);
  names_finish(storage->names, storage->name_count, mem);
  mem_free(mem, storage->dirs);
  mem_free(mem, storage->prologue);
  mem_free(mem, storage->entry);
  mem_free(mem, storage->label);
  mem_free(mem, storage);
}
