/* Between the cache folder and bundles.
 *
 * A walk over the folder adds its sound entries to a bundle writer (builder_cache_bundle). An export is that bundle,
 * stored without compression and written to a file: under a random name first, then renamed, so that a reader sees the
 * old file or the whole new one. A symbolic link to a file stays, and that file is replaced; a device, a pipe or a
 * socket is refused. The command's output_file.c has the same rules for the files that it writes itself: it uses the
 * public API alone, and the calls here go through file_ops, which tests replace. An import opens a bundle, which checks
 * its index and, where keys are trusted, its signature, and publishes each kernel under the name that its own key text
 * gives.
 *
 * Every function works on the calling thread and holds no lock; the folder may change meanwhile. */
#include "jit/admin/cache_bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/admin/admin_common.h"
#include "jit/admin/cache_admin.h"
#include "jit/admin/entry_filter.h"
#include "jit/cache/cache_publish.h"
#include "jit/cache/cache_usage.h"
#include "jit/cache/cache_walk.h"

struct adding {
  struct builder *builder;
  struct bundle_writer *writer;
  const struct entry_filter *filter;
  kjit_cache_report report;
  kjit_status status;
  kjit_error *error;
};

/* Visit one entry. A positive result ends the walk, and adding->status says why. An entry that cannot be read is left
 * out, because another process may have removed it since its folder was listed. */
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
  kjit_status status = admin_check_report(report, error);
  if (status == KJIT_OK) status = entry_filter_parse(&parsed, filter, error);
  if (status != KJIT_OK) return status;
  const int done = builder->user.dir.folder < 0 ? 0 : cache_walk(&builder->user, add_entry, &adding);
  if (done < 0) return admin_failed(builder, "read", done, error);
  return adding.status == KJIT_OK ? admin_fill_report(report, &adding.report, error) : adding.status;
}

/* ---- Export ---- */

/* Write a new file and make it durable. `*made` says whether there is a file to remove after a failure. */
static int write_new(const struct file_ops *ops, const char *path, const void *data, size_t bytes, bool *made) {
  const int file = ops->open_path(ops->user, path, O_RDWR | O_CREAT | O_EXCL, 0666);
  *made = file >= 0;
  if (file < 0) return file;
  int done = file_write_all(ops, file, data, bytes, 0);
  if (done == 0) done = ops->sync(ops->user, file);
  const int closed = ops->close(ops->user, file);
  return done < 0 ? done : closed;
}

/* Write beside `path` under a random name, then rename over `path`. */
static int replace_file(const struct builder *builder, const char *path, const void *data, size_t bytes) {
  const struct file_ops *ops = builder->ops;
  struct text temp;
  uint64_t random = 0;
  bool made = false;
  text_init(&temp, builder->mem, CACHE_DIR_MAX_BYTES);
  int done = ops->random(ops->user, &random, sizeof random);
  text_appendf(&temp, "%s.%016llx", path, (unsigned long long)random);
  if (done == 0 && temp.failed) done = -ENAMETOOLONG;
  if (done == 0) done = write_new(ops, temp.data, data, bytes, &made);
  if (done == 0) done = ops->rename(ops->user, AT_FDCWD, temp.data, AT_FDCWD, path);
  if (done < 0 && made) (void)ops->unlink(ops->user, AT_FDCWD, temp.data);
  text_finish(&temp);
  return done;
}

static kjit_status write_failed(const char *path, int code, kjit_error *error) {
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "cannot write %s: %s", path, strerror(-code));
}

/* `real` becomes the path that the rename replaces: what `path` leads to, or `path` itself where nothing is there. The
 * rename would take the place of a device, a pipe or a socket, for root that of /dev/null too. A folder refuses it by
 * itself. stat_path() looks at what is there, because /dev/stdout can lead to a pipe, which has no path. */
static kjit_status find_target(const struct file_ops *ops, const char *path, char real[PATH_MAX], kjit_error *error) {
  struct stat there;
  int done = ops->stat_path(ops->user, path, &there);
  if (done == -ENOENT) {
    done = snprintf(real, PATH_MAX, "%s", path) < PATH_MAX ? 0 : -ENAMETOOLONG;
    return done < 0 ? write_failed(path, done, error) : KJIT_OK;
  }
  if (done == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
    return error_set(error, KJIT_ERR_IO, "cannot write %s: it is there, and is no regular file", path);
  if (done == 0) done = ops->real_path(ops->user, path, real);
  return done < 0 ? write_failed(path, done, error) : KJIT_OK;
}

static kjit_status export_to(struct builder *builder, struct bundle_writer *writer, const char *path,
                             kjit_error *error) {
  void *data = NULL;
  size_t bytes = 0;
  const kjit_status status = bundle_writer_build(writer, &data, &bytes, error);
  const int done = status == KJIT_OK ? replace_file(builder, path, data, bytes) : 0;
  mem_free(builder->mem, data);
  if (done == -ENOMEM) return error_no_memory(error);
  return done < 0 ? write_failed(path, done, error) : status;
}

kjit_status builder_cache_export(struct builder *builder, const char *path, const char *filter,
                                 kjit_cache_report *report, kjit_error *error) {
  char real[PATH_MAX];
  error_clear(error);
  if (!path || !*path) return error_invalid(error, "path", "must name a file");
  kjit_status status = find_target(builder->ops, path, real, error);
  if (status != KJIT_OK) return status;
  /* Without a compressor, because the library can only unpack; `kjit bundle create` compresses. */
  struct bundle_writer *writer = bundle_writer_create(builder->mem, NULL, NULL);
  if (!writer) return error_no_memory(error);
  status = builder_cache_bundle(builder, writer, filter, report, error);
  if (status == KJIT_OK) status = export_to(builder, writer, real, error);
  bundle_writer_destroy(writer);
  return status;
}

/* ---- Import ---- */

/* Name the entry by its own key text, so that it answers that key here whatever it was called elsewhere. */
static int publish(struct builder *builder, const struct entry_image *image) {
  struct entry_name name;
  const struct entry_text *const text = &image->entry.key_text;
  entry_name_of_key(&name, text->data, text->bytes);
  return cache_publish(&builder->user, &name, image->data, image->bytes);
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
  return admin_failed(builder, "write to", done, error);
}

static kjit_status import_bundle(struct builder *builder, const char *path, kjit_cache_report *report,
                                 kjit_error *error) {
  struct bundle *bundle;
  const struct bundle_source source = {path, NULL, 0};
  kjit_status status = bundle_open(&bundle, builder->mem, &source, &builder->bundles.trust, error);
  for (uint32_t i = 0; status == KJIT_OK && i < bundle_table(bundle)->record_count; i++)
    status = import_record(builder, bundle, i, report, error);
  bundle_close(bundle);
  return status;
}

kjit_status builder_cache_import(struct builder *builder, const char *path, kjit_cache_report *report,
                                 kjit_error *error) {
  kjit_cache_report found = {0};
  error_clear(error);
  if (!path || !*path) return error_invalid(error, "path", "must name a file");
  kjit_status status = admin_check_report(report, error);
  if (status == KJIT_OK) status = admin_need_writable(builder, error);
  if (status != KJIT_OK) return status;
  cache_usage_be_patient(&builder->user);
  status = import_bundle(builder, path, &found, error);
  const kjit_status filled = admin_fill_report(report, &found, error);
  return status == KJIT_OK ? filled : status;
}
