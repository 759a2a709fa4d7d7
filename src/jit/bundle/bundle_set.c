/* The bundles of one builder, in the order in which they are asked.
 *
 * Bundles that the options name must all open, because the program cannot work without them. Bundles of $KJIT_BUNDLE
 * are opened only if the options name none, and one that does not open is logged and left out: an environment
 * variable often outlives the files that it names, and must not stop a program.
 *
 * The set does not change after it was opened, so any number of threads may look kernels up. */
#include "jit/bundle/bundle_set.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

static kjit_status open_one(struct bundle_set *set, const struct bundle_source *source, kjit_error *error) {
  struct bundle *bundle;
  const kjit_status status = bundle_open(&bundle, set->mem, source, &set->trust, error);
  if (status == KJIT_OK) set->bundles[set->count++] = bundle;
  return status;
}

static kjit_status open_options(struct bundle_set *set, const kjit_runtime_options *options, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < options->bundle_blob_count && status == KJIT_OK; i++) {
    const kjit_bundle_blob *const blob = &options->bundle_blobs[i];
    const struct bundle_source source = {NULL, blob->data, blob->bytes};
    status = open_one(set, &source, error);
  }
  for (size_t i = 0; i < options->bundle_count && status == KJIT_OK; i++) {
    const struct bundle_source source = {options->bundle_paths[i], NULL, 0};
    if (!source.path || !*source.path)
      status = error_set(error, KJIT_ERR_INVALID_ARG, "bundle_paths[%zu]: must name a file", i);
    else
      status = open_one(set, &source, error);
  }
  return status;
}

/* Open one bundle of $KJIT_BUNDLE. Only missing memory is an error to the caller. */
static kjit_status open_named(struct bundle_set *set, const char *path, size_t bytes, kjit_error *error) {
  kjit_error found = {0};
  char *const copy = mem_duplicate(set->mem, path, bytes);
  const struct bundle_source source = {copy, NULL, 0};
  if (!copy) return error_no_memory(error);
  const kjit_status status = open_one(set, &source, &found);
  if (status != KJIT_OK) {
    count_add(set->counters, COUNT_cache_errors, 1);
    log_write(set->log, KJIT_LOG_WARNING, "KJIT_BUNDLE: %s", found.message);
  }
  mem_free(set->mem, copy);
  return status == KJIT_ERR_NO_MEMORY ? error_no_memory(error) : KJIT_OK;
}

static kjit_status open_environment(struct bundle_set *set, const char *paths, kjit_error *error) {
  kjit_status status = KJIT_OK;
  while (*paths && status == KJIT_OK && set->count < BUNDLE_SET_MAX) {
    const size_t bytes = strcspn(paths, ":");
    if (bytes) status = open_named(set, paths, bytes, error);
    paths += bytes + (paths[bytes] == ':');
  }
  return status;
}

static kjit_status check_options(const kjit_runtime_options *options, kjit_error *error) {
  if (options->bundle_count && !options->bundle_paths)
    return error_invalid(error, "bundle_paths", "must not be NULL, because its count is not 0");
  if (options->bundle_blob_count && !options->bundle_blobs)
    return error_invalid(error, "bundle_blobs", "must not be NULL, because its count is not 0");
  if (options->bundle_count <= BUNDLE_SET_MAX && options->bundle_blob_count <= BUNDLE_SET_MAX - options->bundle_count)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "bundle_paths and bundle_blobs: at most %d together", BUNDLE_SET_MAX);
}

static size_t count_paths(const char *paths) {
  size_t count = 1;
  for (; *paths; paths++)
    count += *paths == ':';
  return count < BUNDLE_SET_MAX ? count : BUNDLE_SET_MAX;
}

kjit_status bundle_set_open(struct bundle_set *set, const kjit_runtime_options *options, const char *environment,
                            kjit_error *error) {
  const size_t given = options->bundle_count + options->bundle_blob_count;
  kjit_status status = check_options(options, error);
  if (status == KJIT_OK)
    status = trust_init(&set->trust, set->mem, options->trusted_keys, options->trusted_key_count, error);
  if (status != KJIT_OK || (!given && !environment)) return status;
  set->bundles = mem_alloc_array(set->mem, given ? given : count_paths(environment), sizeof *set->bundles);
  if (!set->bundles) return error_no_memory(error);
  return given ? open_options(set, options, error) : open_environment(set, environment, error);
}

void bundle_set_close(struct bundle_set *set) {
  for (size_t i = 0; i < set->count; i++)
    bundle_close(set->bundles[i]);
  if (!set->mem) return;
  mem_free(set->mem, set->bundles);
  trust_finish(&set->trust, set->mem);
}

/* Does the entry answer the request? The digests are equal, but the key texts decide. */
static bool answers(const struct key *key, const struct entry *entry) {
  return entry->key_text.bytes >= key->request_bytes &&
         !memcmp(entry->key_text.data, key->text.data, key->request_bytes);
}

static kjit_status get_from(const struct bundle_set *set, struct bundle *bundle, const struct key *key,
                            struct entry_image *image, kjit_error *error) {
  uint32_t index;
  kjit_error found = {0};
  if (!bundle_table_find(bundle_table(bundle), &key->request, &index)) return KJIT_ERR_NOT_FOUND;
  kjit_status status = bundle_read(bundle, index, image, &found);
  if (status == KJIT_OK && !answers(key, &image->entry)) {
    entry_image_finish(image, set->mem);
    status = error_set(&found, KJIT_ERR_CORRUPT, "%s: kernel %u: the entry of another key", bundle_name(bundle), index);
  }
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status == KJIT_OK) return KJIT_OK;
  count_add(set->counters, COUNT_rebuilt_entries, 1);
  log_write(set->log, KJIT_LOG_WARNING, "a kernel of a bundle is refused: %s", found.message);
  return error_set(error, KJIT_ERR_NOT_FOUND, "%s", found.message);
}

kjit_status bundle_set_get(const struct bundle_set *set, const struct key *key, struct entry_image *image,
                           kjit_error *error) {
  kjit_status status = KJIT_ERR_NOT_FOUND;
  *image = (struct entry_image){0};
  for (size_t i = 0; i < set->count && status == KJIT_ERR_NOT_FOUND; i++)
    status = get_from(set, set->bundles[i], key, image, error);
  if (status == KJIT_OK) count_add(set->counters, COUNT_bytes_read, image->bytes);
  return status;
}
