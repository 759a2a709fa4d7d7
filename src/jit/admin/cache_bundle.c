#include "jit/admin/cache_bundle.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "jit/admin/cache_admin_internal.h"
#include "jit/admin/entry_filter.h"
#include "jit/cache/cache_walk.h"

struct adding {
  struct builder *builder;
  struct bundle_writer *writer;
  const struct entry_filter *filter;
  kjit_cache_report report;
  kjit_status status;
  kjit_error *error;
};

/* A positive result ends the walk with adding->status. What cannot be read is left out. */
static int add_entry(void *user, int folder, const struct entry_name *name) {
  struct adding *adding = user;
  struct disk_cache *cache = &adding->builder->user;
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  (void)folder;
  const int done = disk_cache_read(cache, name, &image, &status, &damage);
  if (done == -ENOMEM) return done;
  adding->report.damaged += done == -EBADMSG;
  if (done < 0) return 0;
  if (image.entry.cubin_bytes && entry_filter_accepts(adding->filter, name, &image.entry)) {
    adding->status = bundle_writer_add_entry(adding->writer, &image.entry, adding->error);
    adding->report.entries++;
    adding->report.bytes += image.bytes;
  }
  entry_image_finish(&image, cache->mem);
  return adding->status == KJIT_OK ? 0 : 1;
}

kjit_status builder_cache_bundle(struct builder *builder, struct bundle_writer *writer, const char *filter,
                                 kjit_cache_report *report, kjit_error *error) {
  struct entry_filter parsed;
  struct adding adding = {.builder = builder, .writer = writer, .filter = &parsed, .error = error};
  kjit_status status = cache_admin_check_report(report, error);
  if (status == KJIT_OK) status = entry_filter_parse(&parsed, filter, error);
  if (status != KJIT_OK) return status;
  const int done = builder->user.dir.folder < 0 ? 0 : cache_walk(&builder->user, add_entry, &adding);
  if (done < 0) return cache_admin_failed(builder, "read", done, error);
  return adding.status == KJIT_OK ? cache_admin_fill_report(report, &adding.report, error) : adding.status;
}

_Bool cache_bundle_is(const char *path) {
  struct file_map map;
  if (file_map_open(&map, path, SIZE_MAX, NULL) != KJIT_OK) return 0;
  const _Bool is = map.bytes >= BUNDLE_MAGIC_BYTES && !memcmp(map.data, BUNDLE_MAGIC, BUNDLE_MAGIC_BYTES);
  file_map_close(&map);
  return is;
}

/* Named by its own key text. */
static int publish(struct builder *builder, const struct entry_image *image) {
  struct entry_name name;
  const struct entry_text *const text = &image->entry.key_text;
  entry_name_of_key(&name, text->data, text->bytes);
  return disk_cache_put(&builder->user, &name, image->data, image->bytes);
}

static kjit_status import_record(struct builder *builder, struct bundle *bundle, uint32_t index,
                                 kjit_cache_report *report, kjit_error *error) {
  struct entry_image image;
  kjit_error damage = {0};
  const kjit_status status = bundle_read(bundle, index, &image, &damage);
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  if (status != KJIT_OK) {
    report->damaged++;
    log_write(builder->log, KJIT_LOG_WARNING, "not imported: %s", damage.message);
    return KJIT_OK;
  }
  const int done = publish(builder, &image);
  report->entries += done == 0;
  report->bytes += done == 0 ? image.bytes : 0;
  entry_image_finish(&image, builder->mem);
  return cache_admin_failed(builder, "write to", done, error);
}

kjit_status builder_cache_import_bundle(struct builder *builder, const char *path, kjit_cache_report *report,
                                        kjit_error *error) {
  struct bundle *bundle;
  const struct bundle_source source = {path, NULL, 0};
  kjit_status status = bundle_open(&bundle, builder->mem, &source, &builder->bundles.trust, error);
  for (uint32_t i = 0; status == KJIT_OK && i < bundle_table(bundle)->record_count; i++)
    status = import_record(builder, bundle, i, report, error);
  bundle_close(bundle);
  return status;
}
