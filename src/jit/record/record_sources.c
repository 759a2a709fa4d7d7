/* Writing a recorded request's sources.
 *
 * 1. The request's file is put together in memory, and its digest gives its name. It needs no text, only the names and
 *    digests that the key has.
 * 2. If the folder has that file, all that it names is there, because it is written last. Nothing is read then.
 * 3. Otherwise each source and part is written under its digest, unless it is there, and then the request's file.
 *
 * A file is written under a random name and renamed (temp_file.h), so that a reader never sees half of it and two
 * writers of one content do not meet. Those of killed writers are removed by record_sources_sweep(). Any thread;
 * nothing is shared. */
#include "jit/record/record_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/cache/temp_file.h"
#include "jit/key/key.h"
#include "jit/key/key_reader.h"

/* The key, a label and a family's name. */
#define REQUEST_FILE_MAX (2 * KEY_MAX_BYTES)

struct writing {
  const struct mem *mem;
  const struct file_ops *ops;
  int folder;
  kjit_error *error;
};

static kjit_status io_failure(const struct writing *writing, int done, const char *name) {
  return error_set_cause(writing->error, done == -ENOMEM ? KJIT_ERR_NO_MEMORY : KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -done,
                         "%s: %s", name, strerror(-done));
}

/* Open the manifest's folder of sources; with `make`, one that is missing is made with the rights that a new manifest
 * gets. Without, `writing->folder` is -1 when there is none. */
static kjit_status open_folder(struct writing *writing, const char *manifest, bool make) {
  const struct file_ops *const ops = writing->ops;
  struct text path;
  text_init(&path, writing->mem, 1 << 16);
  text_appendf(&path, "%s" RECORDED_FOLDER_SUFFIX, manifest);
  if (path.failed) {
    text_finish(&path);
    return error_no_memory(writing->error);
  }
  const int flags = O_RDONLY | O_DIRECTORY;
  int done = ops->open_path(ops->user, path.data, flags, 0);
  if (done == -ENOENT && make) {
    const int made = ops->make_path(ops->user, path.data, 0777);
    done = made < 0 && made != -EEXIST ? made : ops->open_path(ops->user, path.data, flags, 0);
  }
  const bool is_missing = done == -ENOENT && !make;
  writing->folder = done < 0 ? -1 : done;
  const kjit_status status = done < 0 && !is_missing ? io_failure(writing, done, path.data) : KJIT_OK;
  text_finish(&path);
  return status;
}

static bool has_file(const struct writing *writing, const char *name) {
  struct stat status;
  return writing->ops->stat_at(writing->ops->user, writing->folder, name, &status) == 0 && S_ISREG(status.st_mode);
}

static kjit_status write_file(const struct writing *writing, const char *name, const void *data, size_t bytes) {
  struct temp_file temp;
  int done = temp_file_create_beside(&temp, writing->ops, writing->folder);
  if (done == 0) done = temp_file_write(&temp, writing->ops, data, bytes);
  if (done == 0) done = temp_file_publish(&temp, writing->ops, writing->folder, name);
  temp_file_finish(&temp, writing->ops);
  return done < 0 ? io_failure(writing, done, name) : KJIT_OK;
}

static kjit_status write_content(const struct writing *writing, const struct digest *digest, const void *data,
                                 size_t bytes) {
  char name[DIGEST_HEX_BYTES];
  digest_to_hex(digest, name);
  return has_file(writing, name) ? KJIT_OK : write_file(writing, name, data, bytes);
}

static kjit_status write_contents(const struct writing *writing, const struct jit_request *request) {
  const struct source_set *sources = request->sources;
  kjit_status status = KJIT_OK;
  if (sources->withheld && !request->supply)
    return error_set(writing->error, KJIT_ERR_UNSUPPORTED, "%s: its sources are not there", request->label);
  if (sources->withheld) status = request->supply(request->supply_user, &sources, writing->error);
  for (size_t i = 0; status == KJIT_OK && i < sources->count; i++)
    status = write_content(writing, &sources->files[i].digest, sources->files[i].text, sources->files[i].bytes);
  for (size_t i = 0; status == KJIT_OK && i < request->part_count; i++)
    status = write_content(writing, &request->parts[i].digest, request->parts[i].data, request->parts[i].bytes);
  return status;
}

/* The request's file, and the name that follows from it. */
static kjit_status describe(const struct mem *mem, const struct jit_request *request, struct text *file,
                            char name[RECORDED_NAME_BYTES], kjit_error *error) {
  struct key key;
  struct digest digest;
  kjit_status status = key_make(&key, mem, request, NULL, error);
  if (status == KJIT_OK) {
    text_append(file, RECORDED_HEAD);
    key_put_field(file, RECORDED_TAG_FAMILY, request->family, strlen(request->family));
    key_put_field(file, RECORDED_TAG_LABEL, request->label, strlen(request->label));
    text_append_bytes(file, key.text.data, key.request_bytes);
    if (file->failed) status = error_no_memory(error);
  }
  key_finish(&key);
  if (status != KJIT_OK) return status;
  digest_of(&digest, file->data, file->bytes);
  digest_to_hex(&digest, name);
  strcat(name, RECORDED_SUFFIX);
  return KJIT_OK;
}

kjit_status record_sources(const struct mem *mem, const struct file_ops *ops, const char *manifest,
                           const struct jit_request *request, char name[RECORDED_NAME_BYTES], kjit_error *error) {
  struct writing writing = {mem, ops, -1, error};
  struct text file;
  text_init(&file, mem, REQUEST_FILE_MAX);
  kjit_status status = describe(mem, request, &file, name, error);
  if (status == KJIT_OK) status = open_folder(&writing, manifest, true);
  if (status == KJIT_OK && !has_file(&writing, name)) {
    status = write_contents(&writing, request);
    if (status == KJIT_OK) status = write_file(&writing, name, file.data, file.bytes);
  }
  if (writing.folder >= 0) (void)ops->close(ops->user, writing.folder);
  text_finish(&file);
  return status;
}

kjit_status record_sources_sweep(const struct mem *mem, const struct file_ops *ops, const char *manifest,
                                 uint64_t *removed, kjit_error *error) {
  struct writing writing = {mem, ops, -1, error};
  struct temp_sweep sweep = {.remove = true};
  kjit_status status = open_folder(&writing, manifest, false);
  if (status != KJIT_OK || writing.folder < 0) return status;
  const int done = temp_file_sweep_beside(&sweep, ops, writing.folder);
  if (done < 0) status = io_failure(&writing, done, manifest);
  (void)ops->close(ops->user, writing.folder);
  *removed = sweep.found;
  return status;
}
