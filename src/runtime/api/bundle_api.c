/* The public functions of include/kjit/bundle.h over jit/bundle: opening, listing and signing bundles, and making them.
 * A kjit_bundle and a writer use malloc() and need no runtime, so that a tool can inspect a bundle without one. An open
 * bundle is only read, by any thread; a writer belongs to one thread. */
#include <kjit/bundle.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/admin/cache_bundle.h"
#include "jit/artifact.h"
#include "jit/bundle/bundle.h"
#include "jit/bundle/bundle_visit.h"
#include "jit/bundle/bundle_writer.h"
#include "runtime/runtime_state.h"

struct kjit_bundle {
  struct mem mem;
  struct bundle *bundle;
};

struct kjit_bundle_writer {
  struct mem mem;
  struct bundle_writer *writer;
  void *blob;
};

/* Open a bundle from a file or from memory, with the trusted keys checked first. */
static kjit_status open_source(kjit_bundle **out, const struct bundle_source *source, const char *const *keys,
                               size_t key_count, kjit_error *error) {
  struct trust trust = {0};
  struct mem mem;
  (void)mem_init(&mem, NULL);
  kjit_bundle *bundle = mem_alloc(&mem, sizeof *bundle);
  if (!bundle) return error_no_memory(error);
  bundle->mem = mem;
  kjit_status status = trust_init(&trust, &mem, keys, key_count, error);
  if (status == KJIT_OK) status = bundle_open(&bundle->bundle, &bundle->mem, source, &trust, error);
  trust_finish(&trust, &mem);
  if (status == KJIT_OK)
    *out = bundle;
  else
    kjit_bundle_close(bundle);
  return status;
}

kjit_status kjit_bundle_open(kjit_bundle **out, const char *path, const kjit_bundle_blob *blob,
                             const char *const *trusted_keys, size_t trusted_key_count, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!path == !blob) return error_invalid(error, "path", "or blob must be given, and not both");
  if (path && !*path) return error_invalid(error, "path", "must name a file");
  const struct bundle_source source = {path, blob ? blob->data : NULL, blob ? blob->bytes : 0};
  return open_source(out, &source, trusted_keys, trusted_key_count, error);
}

/* The allocator is copied, because it lies in the memory that is freed. */
void kjit_bundle_close(kjit_bundle *bundle) {
  if (!bundle) return;
  const struct mem mem = bundle->mem;
  bundle_close(bundle->bundle);
  mem_free(&mem, bundle);
}

/* Digests and keys are both 32 bytes, so one function writes either. */
static void key_to_hex(const uint8_t *key, char hex[DIGEST_HEX_BYTES]) {
  struct digest digest;
  memcpy(digest.bytes, key, sizeof digest.bytes);
  digest_to_hex(&digest, hex);
}

/* Opening has checked the table, so these are numbers that hold, whoever wrote the bundle. */
kjit_status kjit_bundle_get_info(const kjit_bundle *bundle, kjit_bundle_info *info, kjit_error *error) {
  error_clear(error);
  if (!bundle) return error_invalid(error, "bundle", "must not be NULL");
  const struct bundle_table *const table = bundle_table(bundle->bundle);
  const uint8_t *const signature = bundle_signature(bundle->bundle);
  kjit_bundle_info known = {.bytes = bundle_file_bytes(bundle->bundle), .body_bytes = table->body_bytes};
  known.entries = table->record_count;
  known.archs = table->group_count;
  key_to_hex(table->data + BUNDLE_AT_TABLE_DIGEST, known.digest);
  if (signature) key_to_hex(signature + SIGNATURE_AT_KEY, known.signer);
  return struct_fill(info, &known, sizeof known, "info", error);
}

kjit_status kjit_bundle_list(kjit_bundle *bundle, kjit_cache_visit visit, void *user, kjit_error *error) {
  error_clear(error);
  if (!bundle) return error_invalid(error, "bundle", "must not be NULL");
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  return bundle_visit(bundle->bundle, &bundle->mem, visit, user, error);
}

/* The caller compresses, because zstd's compressor is not in the library, whose programs only read bundles. */
kjit_status kjit_bundle_writer_create(kjit_bundle_writer **out, kjit_compress_fn compress, void *user,
                                      kjit_error *error) {
  struct mem mem;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  (void)mem_init(&mem, NULL);
  kjit_bundle_writer *writer = mem_alloc(&mem, sizeof *writer);
  if (!writer) return error_no_memory(error);
  writer->mem = mem;
  writer->writer = bundle_writer_create(&writer->mem, compress, user);
  if (!writer->writer) {
    kjit_bundle_writer_destroy(writer);
    return error_no_memory(error);
  }
  *out = writer;
  return KJIT_OK;
}

void kjit_bundle_writer_destroy(kjit_bundle_writer *writer) {
  if (!writer) return;
  const struct mem mem = writer->mem;
  bundle_writer_destroy(writer->writer);
  mem_free(&mem, writer->blob);
  mem_free(&mem, writer);
}

kjit_status kjit_bundle_writer_add(kjit_bundle_writer *writer, const kjit_artifact *artifact, kjit_error *error) {
  error_clear(error);
  if (!writer) return error_invalid(error, "writer", "must not be NULL");
  if (!artifact) return error_invalid(error, "artifact", "must not be NULL");
  return bundle_writer_add_entry(writer->writer, &artifact_image(artifact)->entry, error);
}

kjit_status kjit_bundle_writer_add_cache(kjit_bundle_writer *writer, kjit_runtime *runtime, const char *filter,
                                         kjit_cache_report *report, kjit_error *error) {
  error_clear(error);
  if (!writer) return error_invalid(error, "writer", "must not be NULL");
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return builder_cache_bundle(runtime->builder, writer->writer, filter, report, error);
}

/* The blob is the writer's, so that a caller has one thing to free; a second call ends the first one's blob. */
kjit_status kjit_bundle_writer_finish(kjit_bundle_writer *writer, kjit_bundle_blob *blob, kjit_error *error) {
  error_clear(error);
  if (!blob) return error_invalid(error, "blob", "must not be NULL");
  *blob = (kjit_bundle_blob){NULL, 0};
  if (!writer) return error_invalid(error, "writer", "must not be NULL");
  mem_free(&writer->mem, writer->blob);
  size_t bytes = 0;
  const kjit_status status = bundle_writer_build(writer->writer, &writer->blob, &bytes, error);
  if (status == KJIT_OK) *blob = (kjit_bundle_blob){writer->blob, bytes};
  return status;
}

/* The secret key is Ed25519's seed, from which the rest follows; the copy on this stack is wiped. */
kjit_status kjit_bundle_keygen(char secret_key[65], char public_key[65], kjit_error *error) {
  struct trust_key seed, key;
  error_clear(error);
  if (!secret_key || !public_key) return error_invalid(error, "keys", "must not be NULL");
  trust_generate(&seed, &key);
  key_to_hex(seed.bytes, secret_key);
  key_to_hex(key.bytes, public_key);
  explicit_bzero(&seed, sizeof seed);
  return KJIT_OK;
}

/* Every payload is checked before the signature is made, because it vouches for them all, and a bundle that was damaged
 * on its way here would otherwise be signed as it is. */
kjit_status kjit_bundle_sign(const kjit_bundle *bundle, const char *secret_key,
                             uint8_t signature[KJIT_BUNDLE_SIGNATURE_BYTES], kjit_error *error) {
  struct digest seed;
  struct trust_key key;
  _Static_assert(KJIT_BUNDLE_SIGNATURE_BYTES == BUNDLE_SIGNATURE_BYTES, "the public header states the format's size");
  error_clear(error);
  if (!bundle) return error_invalid(error, "bundle", "must not be NULL");
  if (!signature) return error_invalid(error, "signature", "must not be NULL");
  if (!secret_key || !digest_from_hex(&seed, secret_key, strnlen(secret_key, DIGEST_HEX_BYTES)))
    return error_invalid(error, "secret_key", "must be 64 lower-case hex digits");
  const kjit_status status = bundle_check_payloads(bundle->bundle, error);
  memcpy(key.bytes, seed.bytes, sizeof key.bytes);
  if (status == KJIT_OK) trust_sign(bundle_table(bundle->bundle)->data, &key, signature);
  explicit_bzero(&seed, sizeof seed);
  explicit_bzero(&key, sizeof key);
  return status;
}
