/* kjit_artifact: what a build or a look-up gives, kept alive by reference counting.
 *
 * One body holds the entry's image, its digests and its strings. It contains a handle for each origin ("memory",
 * "bundle", "built", ...), and a kjit_artifact pointer points to one of these handles. So the same artifact can be
 * handed out with the origin of each answer, without a second copy, and all handles share one reference count.
 *
 * A body does not change after artifact_create(), except for its count, which is atomic. Any number of threads may
 * read it; the thread that drops the last reference frees it. */
#include "jit/artifact.h"

#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/compile/compile_types.h"
#include "jit/compile/symbols.h"
#include "jit/key/key_reader.h"

#define ORIGINS (KJIT_ORIGIN_BUILT + 1)

struct body;

/* A handle says where an answer came from, which differs from call to call. Everything else is in the body. */
struct kjit_artifact {
  struct body *body;
  kjit_origin origin;
};

struct body {
  atomic_size_t references;
  const struct mem *mem;
  struct entry_image image;
  struct digest digest, request, identity;
  char key[DIGEST_HEX_BYTES];
  char *arch, *entry; /* of the key text, NUL-terminated */
  uint32_t kernel_count;
  kjit_phases phases; /* all zero unless this process compiled it */
  struct kjit_artifact as[ORIGINS];
};

static void body_destroy(struct body *body) {
  const struct mem *mem = body->mem;
  entry_image_finish(&body->image, mem);
  mem_free(mem, body->arch);
  mem_free(mem, body->entry);
  mem_free(mem, body);
}

/* The key text has the request's fields by their tags, with sizes and without NULs; callers of the API want strings. */
static char *copy_field(const struct body *body, const char *tag) {
  const struct entry_text *text = &body->image.entry.key_text;
  struct key_field field;
  if (!key_find(text->data, text->bytes, tag, &field)) return mem_strdup(body->mem, "");
  return mem_duplicate(body->mem, field.value, field.value_bytes);
}

static uint32_t count_kernels(const struct entry_text *text) {
  struct symbols symbols;
  struct symbol symbol;
  uint32_t count = 0;
  symbols_init(&symbols, text->data, text->bytes);
  while (symbols_next(&symbols, &symbol))
    count += symbol.is_kernel;
  return count;
}

/* Compute what follows from the image: digests, strings, handles. False when out of memory. */
static bool body_fill(struct body *body) {
  const struct entry_text *text = &body->image.entry.key_text;
  digest_of(&body->digest, text->data, text->bytes);
  digest_of(&body->request, text->data, key_request_part(text->data, text->bytes));
  digest_to_hex(&body->digest, body->key);
  body->arch = copy_field(body, KEY_TAG_TARGET);
  body->entry = copy_field(body, KEY_TAG_ENTRY);
  body->kernel_count = count_kernels(&body->image.entry.symbols);
  for (int origin = 0; origin < ORIGINS; origin++)
    body->as[origin] = (struct kjit_artifact){body, (kjit_origin)origin};
  return body->arch && body->entry;
}

/* The image is taken over whether this succeeds or not, so that no caller has to know how far it came. */
kjit_status artifact_create(kjit_artifact **out, const struct mem *mem, struct entry_image *image,
                            const struct digest *identity, kjit_origin origin, kjit_error *error) {
  *out = NULL;
  struct body *body = mem_alloc(mem, sizeof *body);
  if (!body) {
    entry_image_finish(image, mem);
    return error_no_memory(error);
  }
  atomic_init(&body->references, 1);
  body->mem = mem;
  body->image = *image;
  body->identity = *identity;
  *image = (struct entry_image){0};
  if (!body_fill(body)) {
    body_destroy(body);
    return error_no_memory(error);
  }
  *out = &body->as[origin];
  return KJIT_OK;
}

kjit_artifact *artifact_as(kjit_artifact *artifact, kjit_origin origin) {
  return &artifact->body->as[origin];
}

const struct entry_image *artifact_image(const kjit_artifact *artifact) {
  return &artifact->body->image;
}

const struct digest *artifact_identity(const kjit_artifact *artifact) {
  return &artifact->body->identity;
}

const struct digest *artifact_digest(const kjit_artifact *artifact) {
  return &artifact->body->digest;
}

bool artifact_same(const kjit_artifact *a, const kjit_artifact *b) {
  return a->body == b->body;
}

bool artifact_is_shared(const kjit_artifact *artifact) {
  return atomic_load_explicit(&artifact->body->references, memory_order_acquire) > 1;
}

void artifact_entry_name(const kjit_artifact *artifact, struct entry_name *name) {
  entry_name_make(name, &artifact->body->request, &artifact->body->digest);
}

kjit_artifact *kjit_artifact_retain(kjit_artifact *artifact) {
  if (artifact) atomic_fetch_add_explicit(&artifact->body->references, 1, memory_order_relaxed);
  return artifact;
}

void kjit_artifact_release(kjit_artifact *artifact) {
  if (artifact && atomic_fetch_sub_explicit(&artifact->body->references, 1, memory_order_acq_rel) == 1)
    body_destroy(artifact->body);
}

kjit_status kjit_artifact_get_info(const kjit_artifact *artifact, kjit_artifact_info *info, kjit_error *error) {
  error_clear(error);
  if (!artifact) return error_invalid(error, "artifact", "must not be NULL");
  const struct body *body = artifact->body;
  const struct entry *entry = &body->image.entry;
  const struct entry_figures *figures = &entry->figures;
  kjit_artifact_info known = {0};
  known.key = body->key;
  known.key_text = entry->key_text.data;
  known.arch = body->arch;
  known.entry = body->entry;
  known.cubin = entry->cubin_bytes ? entry->cubin : NULL;
  known.cubin_bytes = entry->cubin_bytes;
  known.log = entry->log.data;
  known.registers = figures->registers;
  known.spill_bytes = figures->spill_bytes;
  known.local_bytes = figures->local_bytes;
  known.shared_bytes = figures->shared_bytes;
  known.max_threads = figures->max_threads;
  known.origin = (uint32_t)artifact->origin;
  known.compile_ms = (double)figures->compile_ns / 1e6;
  known.kernel_count = body->kernel_count;
  return struct_fill(info, &known, sizeof known, "info", error);
}

/* The mangled name that a name expression such as "kernel<float>" got. Kernels are in the same list by their own
 * names. */
bool artifact_lowered(const kjit_artifact *artifact, const char *expression, const char **linkage, size_t *bytes) {
  const struct entry_text *const text = &artifact->body->image.entry.symbols;
  const size_t expression_bytes = strlen(expression);
  struct symbols symbols;
  struct symbol symbol;
  symbols_init(&symbols, text->data, text->bytes);
  while (symbols_next(&symbols, &symbol)) {
    if (symbol.is_kernel || symbol.expression_bytes != expression_bytes) continue;
    if (memcmp(symbol.expression, expression, expression_bytes) != 0) continue;
    *linkage = symbol.linkage;
    *bytes = symbol.linkage_bytes;
    return true;
  }
  return false;
}

void artifact_set_phases(kjit_artifact *artifact, const struct compile_result *result, int64_t includes_ns) {
  const struct compile_phases *const known = &result->phases;
  artifact->body->phases = (kjit_phases){.includes_ms = (double)includes_ns / 1e6,
                                         .compile_ms = (double)result->compile_ns / 1e6,
                                         .front_end_ms = known->front_end_ms,
                                         .optimizer_ms = known->optimizer_ms,
                                         .ptxas_ms = known->ptxas_ms,
                                         .link_ms = known->link_ms};
}

void artifact_set_publish(kjit_artifact *artifact, int64_t publish_ns) {
  artifact->body->phases.publish_ms = (double)publish_ns / 1e6;
}

kjit_status kjit_artifact_get_phases(const kjit_artifact *artifact, kjit_phases *phases, kjit_error *error) {
  error_clear(error);
  if (!artifact) return error_invalid(error, "artifact", "must not be NULL");
  kjit_phases known = artifact->body->phases;
  return struct_fill(phases, &known, sizeof known, "phases", error);
}

/* The expression that was lowered to this name, if any. */
static void find_expression(const struct entry_text *text, kjit_kernel_info *info) {
  struct symbols symbols;
  struct symbol symbol;
  symbols_init(&symbols, text->data, text->bytes);
  while (symbols_next(&symbols, &symbol)) {
    if (symbol.is_kernel || symbol.linkage_bytes != info->name_bytes) continue;
    if (memcmp(symbol.linkage, info->name, info->name_bytes) != 0) continue;
    info->expression = symbol.expression;
    info->expression_bytes = symbol.expression_bytes;
    return;
  }
}

kjit_status kjit_artifact_get_kernel(const kjit_artifact *artifact, uint32_t index, kjit_kernel_info *info,
                                     kjit_error *error) {
  struct symbols symbols;
  struct symbol symbol;
  uint32_t at = 0;
  error_clear(error);
  if (!artifact) return error_invalid(error, "artifact", "must not be NULL");
  const struct entry_text *const text = &artifact->body->image.entry.symbols;
  symbols_init(&symbols, text->data, text->bytes);
  while (symbols_next(&symbols, &symbol)) {
    if (!symbol.is_kernel || at++ != index) continue;
    kjit_kernel_info known = {.name = symbol.linkage, .name_bytes = symbol.linkage_bytes, .expression = ""};
    known.registers = symbol.figures.registers;
    known.spill_bytes = symbol.figures.spill_bytes;
    known.local_bytes = symbol.figures.local_bytes;
    known.shared_bytes = symbol.figures.shared_bytes;
    known.max_threads = symbol.figures.max_threads;
    find_expression(text, &known);
    return struct_fill(info, &known, sizeof known, "info", error);
  }
  return error_set(error, KJIT_ERR_INVALID_ARG, "index: %u; the artifact has %u kernels", index, at);
}

/* Without a compiler's identity the whole key is not known, only the request's part; then both digests are equal, and
 * `key` stays empty. */
kjit_status kjit_artifact_get_key(const kjit_artifact *artifact, kjit_key *key, kjit_error *error) {
  error_clear(error);
  if (!artifact) return error_invalid(error, "artifact", "must not be NULL");
  const struct body *body = artifact->body;
  kjit_key known = {0};
  if (!digest_equal(&body->digest, &body->request)) memcpy(known.key, body->key, sizeof known.key);
  digest_to_hex(&body->request, known.request);
  return struct_fill(key, &known, sizeof known, "key", error);
}

const char *kjit_origin_name(kjit_origin origin) {
  static const char *const names[ORIGINS] = {"none", "memory", "bundle", "site", "user", "remote", "built"};
  return (unsigned)origin < ORIGINS ? names[origin] : names[KJIT_ORIGIN_NONE];
}
