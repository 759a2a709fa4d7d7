/* kjit cache show --cubin, --sass and --source: the machine code of an entry, and what was compiled.
 *
 * nvdisasm is looked for near NVRTC, then where the environment says that CUDA is, then in /usr/local/cuda and in PATH.
 * It gets the cubin as a temporary file, which is removed afterwards. One thread. */
#include "bundle.h"
#include "cache_entries.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* One visit: what is done with the entry, and how that ended. */
struct code_visit {
  const char *path;
  kjit_error error;
};

static int cubin_write(void *user, const kjit_cache_entry *entry) {
  struct code_visit *visit = user;
  const struct output_piece piece = {entry->cubin, entry->cubin_bytes};
  if (entry->cubin == NULL)
    error_say(&visit->error, KJIT_ERR_CORRUPT, "key %.12s: its entry is damaged: %s", entry->key, entry->damage);
  else
    (void)output_file_write(visit->path, 0644, &piece, 1, &visit->error);
  return 1;
}

static kjit_status cubin_get(kjit_runtime *runtime, const char *key, const char *path, kjit_error *error) {
  struct code_visit visit = {.path = path};
  const kjit_status status = kjit_cache_show(runtime, key, cubin_write, &visit, error);
  if (status != KJIT_OK) return status;
  if (visit.error.status != KJIT_OK) *error = visit.error;
  return (kjit_status)visit.error.status;
}

int cache_entries_cubin(kjit_runtime *runtime, const char *key, const char *path) {
  kjit_error error = {0};
  return cubin_get(runtime, key, path, &error) == KJIT_OK ? EXIT_DONE : report_failure(false, &error, NULL);
}

/* -- Disassembly -------------------------------------------------------------------------------------------------- */

static bool tool_is(char out[PATH_BYTES], const char *folder, const char *below) {
  return folder != NULL && folder[0] != '\0' &&
         snprintf(out, PATH_BYTES, "%s%s/nvdisasm", folder, below) < PATH_BYTES && access(out, X_OK) == 0;
}

static bool tool_is_in_path(char out[PATH_BYTES]) {
  for (const char *at = getenv("PATH"); at != NULL && *at != '\0';) {
    const size_t bytes = strcspn(at, ":");
    if (bytes > 0 && snprintf(out, PATH_BYTES, "%.*s/nvdisasm", (int)bytes, at) < PATH_BYTES && access(out, X_OK) == 0)
      return true;
    at += bytes + (at[bytes] == ':');
  }
  return false;
}

/* NVRTC lies in lib64, or in targets/NAME/lib, of its toolkit. */
static bool tool_find(kjit_runtime *runtime, char out[PATH_BYTES]) {
  kjit_doctor_report report = {.struct_size = sizeof report};
  char *file = NULL;
  bool found = false;
  if (kjit_doctor(runtime, &report, NULL) == KJIT_OK && report.nvrtc_path[0] != '\0')
    file = realpath(report.nvrtc_path, NULL);
  char *slash = file != NULL ? strrchr(file, '/') : NULL;
  if (slash != NULL) {
    *slash = '\0';
    found = tool_is(out, file, "/../bin") || tool_is(out, file, "/../../../bin");
  }
  free(file);
  return found || tool_is(out, getenv("CUDA_HOME"), "/bin") || tool_is(out, getenv("CUDA_PATH"), "/bin") ||
         tool_is(out, "/usr/local/cuda", "/bin") || tool_is_in_path(out);
}

/* Run it on a file; its output is this process's. */
static int tool_run(char *tool, char *file) {
  char option[] = "--print-code";
  char *const arguments[] = {tool, option, file, NULL};
  pid_t child;
  int ended = 0;
  const int cause = posix_spawn(&child, tool, NULL, NULL, arguments, environ);
  if (cause != 0) return failure("%s: %s", tool, strerror(cause));
  while (waitpid(child, &ended, 0) < 0)
    if (errno != EINTR) return failure("%s: %s", tool, strerror(errno));
  return WIFEXITED(ended) && WEXITSTATUS(ended) == 0 ? EXIT_DONE : failure("%s failed", tool);
}

int cache_entries_sass(kjit_runtime *runtime, const char *key) {
  char tool[PATH_BYTES], file[] = "/tmp/kjit-cubin-XXXXXX";
  kjit_error error = {0};
  if (!tool_find(runtime, tool))
    return failure("nvdisasm is missing: it is neither beside NVRTC, nor in $CUDA_HOME/bin, /usr/local/cuda/bin or "
                   "PATH; install the CUDA toolkit's binary utilities, or take the cubin by --cubin FILE");
  const int descriptor = mkstemp(file);
  if (descriptor < 0) return failure("%s: %s", file, strerror(errno));
  close(descriptor);
  const kjit_status status = cubin_get(runtime, key, file, &error);
  const int code = status == KJIT_OK ? tool_run(tool, file) : report_failure(false, &error, NULL);
  unlink(file);
  return code;
}

/* -- Source ------------------------------------------------------------------------------------------------------- */

/* The value of a field at its "tag length:"; NULL when the text ends or is no key. */
static const char *value_at(const char *field, size_t *bytes) {
  char *end = NULL;
  const char *space = strchr(field, ' ');
  *bytes = space != NULL ? strtoul(space + 1, &end, 10) : 0;
  return end != NULL && *end == ':' && strlen(end + 1) > *bytes ? end + 1 : NULL;
}

static int source_print(void *user, const kjit_cache_entry *entry) {
  const char *name = "", *at = strchr(entry->key_text, '\n');
  size_t bytes, name_bytes = 0;
  (void)user;
  while (at != NULL && at[1] != '\0') {
    const char *const field = at + 1, *value = value_at(field, &bytes);
    if (value == NULL) break;
    if (strncmp(field, "prologue ", 9) == 0) printf("%.*s", (int)bytes, value);
    if (strncmp(field, "digest ", 7) == 0) printf("// %.*s  %.*s\n", (int)bytes, value, (int)name_bytes, name);
    name = value;
    name_bytes = bytes;
    at = value + bytes;
  }
  return ferror(stdout);
}

int cache_entries_source(kjit_runtime *runtime, const char *key) {
  kjit_error error = {0};
  const kjit_status status = kjit_cache_show(runtime, key, source_print, NULL, &error);
  return status == KJIT_OK ? print_text("") : report_failure(false, &error, NULL);
}
