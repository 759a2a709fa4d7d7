/* Dumps: a folder for each kernel that is compiled, so that a person can read what the compiler got and gave.
 *
 * The files are written into a hidden folder first, which is renamed when it is complete; so nobody sees half a dump,
 * and of two processes that compile the same kernel one's folder stays. All names are of this file's making: the
 * label's characters other than letters, digits, '.', '_' and '-' become '_'. Any thread. */
#include "jit/inspect.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define NAME_BYTES  160
#define LABEL_BYTES 96

/* The folder is read by a descriptor of its own, because fdopendir() takes the one that it is given. */
static size_t count_dumps(int folder) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *const list = copy >= 0 ? fdopendir(copy) : NULL;
  size_t count = 0;
  if (!list && copy >= 0) (void)close(copy);
  for (const struct dirent *entry; list && (entry = readdir(list));)
    count += entry->d_name[0] != '.';
  if (list) (void)closedir(list);
  return count;
}

static void make_name(char name[NAME_BYTES], const struct jit_request *request, const struct key *key) {
  char label[LABEL_BYTES], hex[DIGEST_HEX_BYTES];
  const char *base = strrchr(request->label, '/');
  (void)snprintf(label, sizeof label, "%s", base && base[1] ? base + 1 : request->label);
  for (char *at = label; *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("._-", *at)) *at = '_';
  digest_to_hex(&key->digest, hex);
  (void)snprintf(name, NAME_BYTES, "%s.%s.%.12s", *label && *label != '.' ? label : "kernel", request->target.name,
                 hex);
}

/* Write a file of these pieces; nothing where they are empty. errno, or 0. */
static int put(int folder, const char *name, const void *data, size_t bytes, const char *more) {
  const size_t more_bytes = more ? strlen(more) : 0;
  if (bytes + more_bytes == 0) return 0;
  const int file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  FILE *const stream = file >= 0 ? fdopen(file, "w") : NULL;
  if (!stream) {
    const int failed = errno;
    if (file >= 0) (void)close(file);
    return failed;
  }
  const bool written = (bytes == 0 || fwrite(data, 1, bytes, stream) == bytes) &&
                       (more_bytes == 0 || fwrite(more, 1, more_bytes, stream) == more_bytes);
  return fclose(stream) == 0 && written ? 0 : errno ? errno : EIO;
}

static int put_options(int folder, const struct jit_request *request, const struct mem *mem) {
  struct text text;
  text_init(&text, mem, (size_t)1 << 20);
  text_appendf(&text, "--gpu-architecture=%s\n", request->target.name);
  for (size_t i = 0; i < request->option_count; i++)
    text_appendf(&text, "%s\n", request->options[i]);
  for (size_t i = 0; i < request->name_count; i++)
    text_appendf(&text, "name expression: %s\n", request->names[i]);
  const int failed = text.failed ? ENOMEM : put(folder, "options.txt", text.data, text.bytes, NULL);
  text_finish(&text);
  return failed;
}

static int put_times(int folder, const struct compile_result *result) {
  char text[256];
  const struct compile_phases *const phases = &result->phases;
  const int bytes = snprintf(
      text, sizeof text, "compile %.1f ms: front end %.0f, optimizer %.0f, ptxas %.0f, link %.0f\n",
      (double)result->compile_ns / 1e6, phases->front_end_ms, phases->optimizer_ms, phases->ptxas_ms, phases->link_ms);
  return put(folder, "times.txt", text, (size_t)bytes, NULL);
}

/* Every file is written by its own name into the folder that was just made, where nothing can stand in its way. */
static int put_all(int folder, const struct jit_request *request, const struct key *key,
                   const struct compile_result *result, const char *message, const struct mem *mem) {
  const char *const prologue = request->prologue ? request->prologue : "";
  const char *const source = request->sources && request->sources->count ? request->sources->files[0].text : NULL;
  int failed = source ? put(folder, "source.cu", prologue, strlen(prologue), source) : 0;
  if (!failed) failed = put(folder, "key.txt", key->text.data, key->text.bytes, NULL);
  if (!failed) failed = put_options(folder, request, mem);
  if (!failed) failed = put(folder, "log.txt", result->log, result->log ? strlen(result->log) : 0, NULL);
  if (!failed) failed = put(folder, "error.txt", message, strlen(message), *message ? "\n" : NULL);
  if (!failed) failed = put(folder, "kernel.cubin", result->cubin, result->cubin ? result->cubin_bytes : 0, NULL);
  if (!failed) failed = put(folder, "kernel.ptx", result->ptx, result->ptx ? strlen(result->ptx) : 0, NULL);
  return failed ? failed : put_times(folder, result);
}

/* Remove what put_all() made. */
static void remove_all(int parent, const char *name, int folder) {
  static const char *const files[] = {"source.cu", "key.txt",      "options.txt", "log.txt",
                                      "error.txt", "kernel.cubin", "kernel.ptx",  "times.txt"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    (void)unlinkat(folder, files[i], 0);
  (void)unlinkat(parent, name, AT_REMOVEDIR);
}

static atomic_uint serial;

/* A dump is help for a person, and no failure of it fails the compile: it is logged. */
void inspect_dump(const char *path, const struct jit_request *request, const struct key *key,
                  const struct compile_result *result, const char *message, const struct mem *mem,
                  const struct log *log) {
  char name[NAME_BYTES], hidden[64];
  (void)mkdir(path, 0700);
  const int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int failed = parent < 0 ? errno : 0, folder = -1;
  make_name(name, request, key);
  if (!failed && count_dumps(parent) >= INSPECT_DUMP_MAX) failed = EDQUOT;
  (void)snprintf(hidden, sizeof hidden, ".dump-%ld-%u", (long)getpid(), atomic_fetch_add(&serial, 1));
  if (!failed && mkdirat(parent, hidden, 0700)) failed = errno;
  if (!failed) {
    folder = openat(parent, hidden, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    failed = folder < 0 ? errno : put_all(folder, request, key, result, message, mem);
    if (!failed && renameat(parent, hidden, parent, name)) failed = errno;
    if (failed) remove_all(parent, hidden, folder);
  }
  if (!failed) log_write(log, KJIT_LOG_INFO, "%.80s: dumped to %.300s/%s", request->label, path, name);
  if (failed && failed != ENOTEMPTY && failed != EEXIST)
    log_write(log, KJIT_LOG_WARNING, "KJIT_DUMP: %.300s/%s: cannot be written: %s", path, name, strerror(failed));
  if (folder >= 0) (void)close(folder);
  if (parent >= 0) (void)close(parent);
}
