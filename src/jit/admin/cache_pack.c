/* Export and import: entries in one file.
 *
 *   file   = "kjit-export 1\n" *record end
 *   record = u64 size of the entry, little-endian, not zero; the entry
 *   end    = u64 zero; u64 number of records */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "jit/admin/cache_admin_internal.h"
#include "jit/admin/cache_bundle.h"
#include "jit/admin/entry_filter.h"
#include "jit/cache/cache_usage.h"
#include "jit/cache/cache_walk.h"

#define PACK_HEAD "kjit-export 1\n"

struct pack {
  struct builder *builder;
  const struct entry_filter *filter;
  int file;
  off_t at;
  uint64_t file_bytes; /* of what is imported */
  _Bool unpublished;   /* it was the cache folder that failed */
  kjit_cache_report report;
};

static int pack_write(struct pack *pack, const void *data, size_t bytes) {
  const int done = file_write_all(pack->builder->ops, pack->file, data, bytes, pack->at);
  pack->at += (off_t)bytes;
  return done;
}

static int pack_write_u64(struct pack *pack, uint64_t value) {
  uint8_t bytes[8];
  bytes_put_u64(bytes, value);
  return pack_write(pack, bytes, sizeof bytes);
}

/* A negative result is a failed write; what cannot be read is left out. */
static int export_entry(void *user, int folder, const struct entry_name *name) {
  struct pack *pack = user;
  struct disk_cache *cache = &pack->builder->user;
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  (void)folder;
  int done = disk_cache_read(cache, name, &image, &status, &damage);
  if (done == -ENOMEM) return done;
  pack->report.damaged += done == -EBADMSG;
  if (done < 0) return 0;
  if (entry_filter_accepts(pack->filter, name, &image.entry)) {
    done = pack_write_u64(pack, image.bytes);
    if (done == 0) done = pack_write(pack, image.data, image.bytes);
    pack->report.entries++;
    pack->report.bytes += image.bytes;
  }
  entry_image_finish(&image, cache->mem);
  return done;
}

static int write_pack(struct pack *pack) {
  int done = pack_write(pack, PACK_HEAD, strlen(PACK_HEAD));
  if (done == 0) done = cache_walk(&pack->builder->user, export_entry, pack);
  if (done == 0) done = pack_write_u64(pack, 0);
  if (done == 0) done = pack_write_u64(pack, pack->report.entries);
  return done == 0 ? pack->builder->ops->sync(pack->builder->ops->user, pack->file) : done;
}

static kjit_status pack_failed(const char *what, const char *path, int code, kjit_error *error) {
  if (code == -ENOMEM) return error_no_memory(error);
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "cannot %s %s: %s", what, path, strerror(-code));
}

/* Under a name of its own beside `path`, then renamed over it. */
static kjit_status export_to(struct pack *pack, const char *path, kjit_error *error) {
  const struct file_ops *ops = pack->builder->ops;
  struct text temp;
  uint64_t random = 0;
  text_init(&temp, pack->builder->mem, CACHE_DIR_MAX_BYTES);
  int done = ops->random(ops->user, &random, sizeof random);
  text_appendf(&temp, "%s.%016llx", path, (unsigned long long)random);
  if (done == 0 && temp.failed) done = -ENAMETOOLONG;
  if (done == 0) {
    pack->file = ops->open_path(ops->user, temp.data, O_RDWR | O_CREAT | O_EXCL, 0666);
    done = pack->file < 0 ? pack->file : write_pack(pack);
    if (pack->file >= 0) (void)ops->close(ops->user, pack->file);
    if (done == 0) done = ops->rename(ops->user, AT_FDCWD, temp.data, AT_FDCWD, path);
    if (done < 0 && pack->file >= 0) (void)ops->unlink(ops->user, AT_FDCWD, temp.data);
  }
  text_finish(&temp);
  return done < 0 ? pack_failed("write", path, done, error) : KJIT_OK;
}

kjit_status builder_cache_export(struct builder *builder, const char *path, const char *filter,
                                 kjit_cache_report *report, kjit_error *error) {
  struct entry_filter parsed;
  struct pack pack = {.builder = builder, .filter = &parsed, .file = -1};
  error_clear(error);
  if (!path || !*path) return error_invalid(error, "path", "must name a file");
  kjit_status status = cache_admin_check_report(report, error);
  if (status == KJIT_OK) status = entry_filter_parse(&parsed, filter, error);
  if (status == KJIT_OK) status = export_to(&pack, path, error);
  return status == KJIT_OK ? cache_admin_fill_report(report, &pack.report, error) : status;
}

static int pack_read(struct pack *pack, void *data, size_t bytes) {
  const int done = file_read_all(pack->builder->ops, pack->file, data, bytes, pack->at);
  pack->at += (off_t)bytes;
  return done == -ENODATA ? -EBADMSG : done;
}

/* Named by its own key text, whatever it was called where it came from. A failure is not worth carrying about. */
static int publish_image(struct pack *pack, const void *image, size_t bytes) {
  struct entry entry;
  struct entry_name name;
  if (entry_read(image, bytes, &entry) || !entry.cubin_bytes) {
    pack->report.damaged++;
    return 0;
  }
  const struct entry_text *text = &entry.key_text;
  entry_name_of_key(&name, text->data, text->bytes);
  const int done = disk_cache_put(&pack->builder->user, &name, image, bytes);
  pack->unpublished = done < 0;
  pack->report.entries += done == 0;
  pack->report.bytes += done == 0 ? bytes : 0;
  return done;
}

static int import_entry(struct pack *pack, uint64_t bytes) {
  const struct mem *mem = pack->builder->mem;
  if (bytes > ENTRY_MAX_BYTES || bytes > pack->file_bytes - (uint64_t)pack->at) return -EBADMSG;
  void *image = mem_alloc(mem, bytes);
  if (!image) return -ENOMEM;
  int done = pack_read(pack, image, bytes);
  if (done == 0) done = publish_image(pack, image, bytes);
  mem_free(mem, image);
  return done;
}

static int import_all(struct pack *pack) {
  const struct file_ops *ops = pack->builder->ops;
  char head[sizeof PACK_HEAD - 1];
  uint8_t size[8];
  uint64_t records = 0, bytes = 0;
  struct stat status;
  int done = ops->stat(ops->user, pack->file, &status);
  pack->file_bytes = done == 0 ? (uint64_t)status.st_size : 0;
  if (done == 0) done = pack_read(pack, head, sizeof head);
  if (done == 0 && memcmp(head, PACK_HEAD, sizeof head)) done = -EBADMSG;
  while (done == 0 && (done = pack_read(pack, size, sizeof size)) == 0 && (bytes = bytes_get_u64(size))) {
    done = import_entry(pack, bytes);
    records++;
  }
  if (done == 0) done = pack_read(pack, size, sizeof size);
  return done == 0 && bytes_get_u64(size) != records ? -EBADMSG : done;
}

static kjit_status import_pack(struct pack *pack, const char *path, kjit_error *error) {
  const struct file_ops *ops = pack->builder->ops;
  if (pack->builder->bundles.trust.count)
    return error_set(error, KJIT_ERR_UNTRUSTED,
                     "%s: an export has no signature, and this runtime takes what one of its trusted keys signed only; "
                     "import a signed bundle",
                     path);
  pack->file = ops->open_path(ops->user, path, O_RDONLY, 0);
  const int done = pack->file < 0 ? pack->file : import_all(pack);
  if (pack->file >= 0) (void)ops->close(ops->user, pack->file);
  if (done == -EBADMSG)
    return error_set(error, KJIT_ERR_CORRUPT, "%s is no whole kjit export; %llu entries were imported", path,
                     (unsigned long long)pack->report.entries);
  if (pack->unpublished) return cache_admin_failed(pack->builder, "write to", done, error);
  return done < 0 ? pack_failed("import", path, done, error) : KJIT_OK;
}

kjit_status builder_cache_import(struct builder *builder, const char *path, kjit_cache_report *report,
                                 kjit_error *error) {
  struct pack pack = {.builder = builder};
  error_clear(error);
  if (!path || !*path) return error_invalid(error, "path", "must name a file");
  kjit_status status = cache_admin_check_report(report, error);
  if (status == KJIT_OK) status = cache_admin_need_writable(builder, error);
  if (status != KJIT_OK) return status;
  cache_usage_be_patient(&builder->user);
  status = cache_bundle_is(path) ? builder_cache_import_bundle(builder, path, &pack.report, error)
                                 : import_pack(&pack, path, error);
  const kjit_status filled = cache_admin_fill_report(report, &pack.report, error);
  return status == KJIT_OK ? filled : status;
}
