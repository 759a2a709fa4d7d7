/* Recording requests as manifest lines, so that `kjit warm` can build them on another machine.
 *
 * Steps of record_request(): look whether this process has recorded the request (a table by its identity); claim it,
 * so that one thread writes it; format the line, which for a caller's own source means to write the sources beside the
 * file first (record_sources.c); open and lock the file; look whether another process has written the line; append it
 * with one write.
 *
 * The mutex protects the path and the table and is not held across a file call, so a slow disk delays only the
 * thread that writes. Processes exclude each other by a lock on the file. Recording never fails a request: errors
 * are counted and logged. */
#include "jit/record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/table.h"
#include "base/text.h"
#include "jit/record/record_sources.h"

/* The longest line that the reader of manifests takes. */
#define RECORD_LINE_MAX 4096
/* The file is read before each new line. A longer file was never a record of requests. */
#define RECORD_FILE_MAX ((uint64_t)64 << 20)
/* A healthy holder of the lock needs some 100 us. After 200 ms the line is written without the lock, because a line
 * that appears twice is better than a request that waits for a stopped process. */
#define RECORD_LOCK_TRIES    200
#define RECORD_LOCK_PAUSE_NS 1000000

/* A request that this process has recorded. */
struct seen {
  struct digest request;
  UT_hash_handle hh;
};

struct record {
  const struct mem *mem;
  const struct log *log;
  const struct file_ops *ops;
  struct cache_counters *counters;
  pthread_mutex_t lock; /* path and seen; never held across a file call */
  char *path;
  struct seen *seen;
  atomic_bool on;
};

struct record *record_create(const struct mem *mem, const struct log *log, const struct file_ops *ops,
                             struct cache_counters *counters) {
  struct record *record = mem_alloc(mem, sizeof *record);
  if (!record) return NULL;
  record->mem = mem;
  record->log = log;
  record->ops = ops;
  record->counters = counters;
  atomic_init(&record->on, 0);
  if (!pthread_mutex_init(&record->lock, NULL)) return record;
  mem_free(mem, record);
  return NULL;
}

static void forget_seen(struct record *record) {
  const struct mem *const mem = record->mem;
  struct seen *seen, *next;
  HASH_ITER(hh, record->seen, seen, next) {
    HASH_DEL(record->seen, seen);
    mem_free(mem, seen);
  }
}

void record_destroy(struct record *record) {
  if (!record) return;
  forget_seen(record);
  pthread_mutex_destroy(&record->lock);
  mem_free(record->mem, record->path);
  mem_free(record->mem, record);
}

kjit_status record_to(struct record *record, const char *path, kjit_error *error) {
  if (path && !*path) return error_invalid(error, "path", "must name a file");
  char *const copy = mem_strdup(record->mem, path);
  if (path && !copy) return error_no_memory(error);
  pthread_mutex_lock(&record->lock);
  char *const before = record->path;
  record->path = copy;
  forget_seen(record);
  atomic_store(&record->on, copy != NULL);
  pthread_mutex_unlock(&record->lock);
  mem_free(record->mem, before);
  return KJIT_OK;
}

void record_fork_prepare(struct record *record) {
  pthread_mutex_lock(&record->lock);
}

void record_fork_done(struct record *record) {
  pthread_mutex_unlock(&record->lock);
}

bool record_is_on(const struct record *record) {
  return atomic_load_explicit(&record->on, memory_order_relaxed);
}

static bool is_seen(struct record *record, const struct digest *digest) {
  struct seen *known = NULL;
  pthread_mutex_lock(&record->lock);
  HASH_FIND(hh, record->seen, digest, sizeof *digest, known);
  pthread_mutex_unlock(&record->lock);
  return known != NULL;
}

/* Claim the request for this thread: the path to record to (mem_free), or NULL when another thread has claimed it, when
 * recording is off, or when there is no memory. */
static char *claim(struct record *record, const struct digest *digest) {
  const struct mem *const mem = record->mem;
  struct seen *known = NULL, *made = is_seen(record, digest) ? NULL : mem_alloc(mem, sizeof *made);
  char *path = NULL;
  bool added = true;
  if (!made) return NULL;
  made->request = *digest;
  pthread_mutex_lock(&record->lock);
  HASH_FIND(hh, record->seen, digest, sizeof *digest, known);
  if (!known && record->path) path = mem_strdup(record->mem, record->path);
  if (path) {
    HASH_ADD(hh, record->seen, request, sizeof made->request, made);
    if (added) made = NULL;
  }
  pthread_mutex_unlock(&record->lock);
  mem_free(mem, made);
  return path;
}

/* The family file as the manifest at `path` names it: relative where it lies in the manifest's folder or below, so that
 * both can be moved together. */
static const char *file_from(const char *path, const char *file) {
  char folder[PATH_MAX];
  const char *const slash = strrchr(path, '/');
  char *const copy = slash ? strndup(path, (size_t)(slash - path) + (slash == path)) : strdup(".");
  const char *const found = copy ? realpath(copy, folder) : NULL;
  free(copy);
  if (!found) return file;
  const size_t bytes = strlen(folder);
  return !strncmp(file, folder, bytes) && file[bytes] == '/' ? file + bytes + 1 : file;
}

/* Would the reader of manifests take it as one word that names a file? */
static bool is_word(const char *file) {
  return !strpbrk(file, " \t\r\n") && strpbrk(file, "./") != NULL;
}

/* The request's line where a family's name or file says all; false for one that must be recorded with its sources. */
static bool put_plain(struct text *line, const char *path, const struct jit_request *request) {
  const char *file = request->family;
  if (request->has_no_line) return false;
  if (request->is_users || !strcmp(request->family, "custom")) {
    file = request->family_file ? file_from(path, request->family_file) : "/";
    if (*file == '/' || !is_word(file)) return false;
  }
  text_appendf(line, "%s %s %s\n", file, request->target.name, request->label);
  return true;
}

/* Why a request cannot be recorded with its sources: NULL when it can. A manifest whose own name has a blank cannot be
 * named in its lines. */
static const char *find_obstacle(const char *base, const struct jit_request *request) {
  if (strpbrk(base, " \t\r\n") || *base == '#')
    return "sources are recorded only beside a manifest whose name has no blank";
  if (request->has_no_line && request->sources->withheld) return "this library was built without its sources";
  return NULL;
}

/* The request's line, and before it the files that the line leads to; a comment for one that cannot have them. */
static kjit_status put_line(struct record *record, struct text *line, const char *path,
                            const struct jit_request *request, kjit_error *error) {
  char name[RECORDED_NAME_BYTES];
  if (put_plain(line, path, request)) return KJIT_OK;
  const char *const slash = strrchr(path, '/'), *const base = slash ? slash + 1 : path;
  const char *const obstacle = find_obstacle(base, request);
  if (obstacle) {
    text_appendf(line, "# %s %s %s: %s\n", request->family, request->target.name, request->label, obstacle);
    return KJIT_OK;
  }
  const bool is_own = !request->is_users && !request->has_no_line; /* a family's label says all */
  const kjit_status status = record_sources(record->mem, record->ops, path, request, name, error);
  if (status == KJIT_OK)
    text_appendf(line, "%s" RECORDED_FOLDER_SUFFIX "/%s %s %s %s%s%s\n", base, name, request->target.name,
                 request->family, request->label, is_own ? " " : "", is_own ? request->entry : "");
  return status;
}

/* Does the file have this line already? */
static bool has_line(const char *data, size_t bytes, const struct text *line) {
  const char *at = data;
  while (bytes && (at = memmem(at, bytes - (size_t)(at - data), line->data, line->bytes))) {
    if (at == data || at[-1] == '\n') return true;
    at++;
  }
  return false;
}

static int read_whole(struct record *record, int file, char **data, size_t *bytes) {
  struct stat status;
  *data = NULL;
  *bytes = 0;
  int done = record->ops->stat(record->ops->user, file, &status);
  if (done < 0) return done;
  if (!S_ISREG(status.st_mode)) return -EINVAL;
  if ((uint64_t)status.st_size > RECORD_FILE_MAX) return -EFBIG;
  *data = mem_alloc(record->mem, (size_t)status.st_size);
  if (!*data) return -ENOMEM;
  while (*bytes < (size_t)status.st_size) {
    const ssize_t got =
        record->ops->read(record->ops->user, file, *data + *bytes, (size_t)status.st_size - *bytes, (off_t)*bytes);
    if (got < 0) return (int)got;
    if (got == 0) break;
    *bytes += (size_t)got;
  }
  return 0;
}

/* Append the line with one write, which a local disk does whole or not at all. If the file's last line has no end, as
 * after a killed writer on a full disk, a line break goes in front. */
static int append(struct record *record, int file, const struct text *line) {
  char *data = NULL;
  size_t bytes = 0;
  char whole[RECORD_LINE_MAX + 2] = "\n";
  int done = read_whole(record, file, &data, &bytes);
  if (done == 0 && !has_line(data, bytes, line)) {
    const size_t start = bytes && data[bytes - 1] != '\n' ? 1 : 0;
    memcpy(whole + start, line->data, line->bytes);
    const ssize_t wrote = record->ops->write(record->ops->user, file, whole, start + line->bytes, (off_t)bytes);
    done = wrote < 0 ? (int)wrote : (size_t)wrote < start + line->bytes ? -ENOSPC : 0;
  }
  mem_free(record->mem, data);
  return done;
}

/* Lock the file, because another process must not write between our reading and our writing. On a mount without locks a
 * line may appear twice, which does no harm. */
static bool lock_file(struct record *record, int file) {
  const struct file_ops *ops = record->ops;
  for (int tries = 0; tries < RECORD_LOCK_TRIES; tries++) {
    const int done = ops->lock(ops->user, file, 0, 1);
    if (done != -EAGAIN) return done == 0;
    ops->sleep_ns(ops->user, RECORD_LOCK_PAUSE_NS);
  }
  return false;
}

static int write_line(struct record *record, const char *path, const struct text *line) {
  const struct file_ops *ops = record->ops;
  const int file = ops->open_path(ops->user, path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) return file;
  (void)lock_file(record, file);
  const int done = append(record, file, line);
  const int closed = ops->close(ops->user, file);
  return done < 0 ? done : closed;
}

void record_request(struct record *record, const struct jit_request *request, const struct digest *digest) {
  char buffer[RECORD_LINE_MAX + 1];
  struct text line;
  char *const path = claim(record, digest);
  if (!path) return;
  text_init_fixed(&line, buffer, sizeof buffer);
  kjit_error error = {0};
  kjit_status status = put_line(record, &line, path, request, &error);
  if (status == KJIT_OK) {
    const int done = line.failed ? -EMSGSIZE : write_line(record, path, &line);
    if (done < 0) status = error_set(&error, KJIT_ERR_IO, "%s", strerror(-done));
  }
  if (status != KJIT_OK) {
    count_add(record->counters, COUNT_cache_errors, 1);
    log_write(record->log, KJIT_LOG_WARNING, "cannot record a request in %s: %s", path, error.message);
  }
  mem_free(record->mem, path);
}
