/* include/kjit/sealed.h: opening sealed programs through a runtime's builder, and making them. A sealer has its own
 * memory, and the runtime that compiles for it is named with each request. */
#include <kjit/sealed.h>

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "jit/builder_sealed.h"
#include "jit/bundle/sealed_writer.h"
#include "runtime/program.h"
#include "runtime/runtime_state.h"

/* The program that was made stays with its sealer, which a signature is made over. */
struct kjit_sealer {
  struct mem mem;
  struct sealed_writer *writer;
  void *blob;
};

/* ---- Opening ---- */

/* A sealed program is a program whose request is empty: what would stand in it is read from the file. On success the
 * program owns `sealed`. */
static kjit_status open_source(kjit_runtime *runtime, const char *path, const void *data, size_t bytes,
                               kjit_program **out, kjit_error *error) {
  const kjit_build_request none = {.struct_size = sizeof none};
  struct sealed *sealed;
  kjit_status status = builder_open_sealed(runtime->builder, path, data, bytes, &sealed, error);
  if (status != KJIT_OK) return status;
  status = program_make(runtime, &none, sealed, out, error);
  if (status != KJIT_OK) sealed_close(sealed);
  return status;
}

kjit_status kjit_program_open(kjit_runtime *runtime, const char *path, const kjit_bundle_blob *blob, kjit_program **out,
                              kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!path == !blob) return error_invalid(error, "path", "or blob must be given, and not both");
  if (path && !*path) return error_invalid(error, "path", "must name a file");
  return open_source(runtime, path, blob ? blob->data : NULL, blob ? blob->bytes : 0, out, error);
}

/* One visit for each kernel. A unit is one compile, whose kernels share target, defines and sources. */
static int visit_unit(const struct sealed *sealed, const struct sealed_unit *unit, kjit_program_visit visit,
                      void *user) {
  kjit_program_kernel kernel = {.struct_size = sizeof kernel, .source = unit->label};
  kernel.variant = (kjit_program_variant){.struct_size = sizeof kernel.variant,
                                          .arch = unit->target.name,
                                          .defines = unit->defines,
                                          .define_count = unit->define_count};
  kernel.files = (uint32_t)unit->set.count;
  kernel.has_texts = sealed_has_texts(sealed);
  int stop = 0;
  for (size_t i = 0; i < unit->entry_count && !stop; i++) {
    kernel.variant.entry = unit->entries[i];
    stop = visit(user, &kernel);
  }
  return stop;
}

kjit_status kjit_program_list(const kjit_program *program, kjit_program_visit visit, void *user, kjit_error *error) {
  error_clear(error);
  if (!program) return error_invalid(error, "program", "must not be NULL");
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  const struct sealed *sealed = program_sealed(program);
  if (!sealed) return error_invalid(error, "program", "must be a sealed one, of kjit_program_open()");
  for (size_t i = 0; i < sealed->unit_count; i++)
    if (visit_unit(sealed, &sealed->units[i], visit, user)) break;
  return KJIT_OK;
}

/* ---- Making ---- */

kjit_status kjit_sealer_create(kjit_sealer **out, kjit_compress_fn compress, void *user, kjit_error *error) {
  struct mem mem;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  (void)mem_init(&mem, NULL);
  kjit_sealer *sealer = mem_alloc(&mem, sizeof *sealer);
  if (!sealer) return error_no_memory(error);
  sealer->mem = mem;
  sealer->writer = sealed_writer_create(&sealer->mem, compress, user);
  if (!sealer->writer) {
    kjit_sealer_destroy(sealer);
    return error_no_memory(error);
  }
  *out = sealer;
  return KJIT_OK;
}

void kjit_sealer_destroy(kjit_sealer *sealer) {
  if (!sealer) return;
  const struct mem mem = sealer->mem;
  sealed_writer_destroy(sealer->writer);
  mem_free(&mem, sealer->blob);
  mem_free(&mem, sealer);
}

/* One kjit_sealer_add() under way. */
struct sealing {
  kjit_sealer *sealer;
  kjit_runtime *runtime;
  kjit_artifact *artifact;
};

/* A request that was recalled by digests has its texts only once they are asked for. */
static kjit_status add(void *user, const struct jit_request *request, kjit_error *error) {
  struct sealing *sealing = user;
  if (request->part_count)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "parts: a sealed program has sources, not compiled code");
  kjit_artifact_release(sealing->artifact);
  kjit_status status = builder_get(sealing->runtime->builder, request, &sealing->artifact, error);
  const struct source_set *sources = request->sources;
  if (status == KJIT_OK && sources->withheld) status = request->supply(request->supply_user, &sources, error);
  return status == KJIT_OK ? sealed_writer_add(sealing->sealer->writer, request, sources, error) : status;
}

/* The kernel is compiled before it is sealed, so that nothing is shipped that does not compile; of a failed compile the
 * artifact is given for its log. */
kjit_status kjit_sealer_add(kjit_sealer *sealer, kjit_runtime *runtime, const kjit_build_request *request,
                            kjit_artifact **artifact, kjit_error *error) {
  error_clear(error);
  if (artifact) *artifact = NULL;
  if (!sealer) return error_invalid(error, "sealer", "must not be NULL");
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!request) return error_invalid(error, "request", "must not be NULL");
  if (request->flags & JIT_REQUEST_OUTPUT_FLAGS)
    return error_invalid(error, "request.flags", "KJIT_BUILD_OBJECT and KJIT_BUILD_KEEP_UNUSED cannot be sealed");
  struct sealing sealing = {sealer, runtime, NULL};
  const kjit_status status = builder_custom(runtime->builder, request, NULL, NULL, add, &sealing, error);
  if (artifact && (status == KJIT_OK || status == KJIT_ERR_COMPILE))
    *artifact = sealing.artifact;
  else
    kjit_artifact_release(sealing.artifact);
  return status;
}

kjit_status kjit_sealer_finish(kjit_sealer *sealer, uint32_t flags, kjit_bundle_blob *blob, kjit_error *error) {
  size_t bytes = 0;
  error_clear(error);
  if (!blob) return error_invalid(error, "blob", "must not be NULL");
  *blob = (kjit_bundle_blob){NULL, 0};
  if (!sealer) return error_invalid(error, "sealer", "must not be NULL");
  if (flags & ~KJIT_SEAL_WITHOUT_TEXTS) return error_invalid(error, "flags", "only KJIT_SEAL_WITHOUT_TEXTS is known");
  mem_free(&sealer->mem, sealer->blob);
  sealer->blob = NULL;
  const bool with_texts = !(flags & KJIT_SEAL_WITHOUT_TEXTS);
  const kjit_status status = sealed_writer_build(sealer->writer, with_texts, &sealer->blob, &bytes, error);
  if (status == KJIT_OK) *blob = (kjit_bundle_blob){sealer->blob, bytes};
  return status;
}

kjit_status kjit_sealer_sign(const kjit_sealer *sealer, const char *secret_key,
                             uint8_t signature[KJIT_BUNDLE_SIGNATURE_BYTES], kjit_error *error) {
  struct digest seed;
  struct trust_key key;
  error_clear(error);
  if (!sealer || !sealer->blob) return error_invalid(error, "sealer", "must have made a program");
  if (!signature) return error_invalid(error, "signature", "must not be NULL");
  if (!secret_key || !digest_from_hex(&seed, secret_key, strnlen(secret_key, DIGEST_HEX_BYTES)))
    return error_invalid(error, "secret_key", "must be 64 lower-case hex digits");
  memcpy(key.bytes, seed.bytes, sizeof key.bytes);
  trust_sign(sealer->blob, &key, signature);
  explicit_bzero(&seed, sizeof seed);
  explicit_bzero(&key, sizeof key);
  return KJIT_OK;
}
