/* Reads manifests: text files with one request a line, "FAMILY ARCH[,ARCH...] CONFIG". Empty lines and those that begin
 * with '#' are skipped. Each line becomes a request for each of its architectures; messages begin with file, line and
 * column. A first word that ends in ".request" is a request that was recorded with its sources. One thread. */
#include "manifest.h"

#include "attention_text.h"
#include "command.h"
#include "serving_spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* As long as the longest path that Linux takes. */
#define PATH_BYTES 4096

static const char blanks[] = " \t";

/* A line's three parts: family, architectures, and the rest, which the family reads. */
struct line_parts {
  char family[MANIFEST_LINE_MAX]; /* or the path of a family file */
  char archs[MANIFEST_LINE_MAX];
  char request[MANIFEST_LINE_MAX]; /* with blanks in front, so that columns are those of the line */
};

static kjit_status part_copy(const char *line, const char **at, char *out, size_t capacity, const char *what,
                             kjit_error *error) {
  const size_t bytes = strcspn(*at, blanks);
  const size_t column = (size_t)(*at - line) + 1;
  if (bytes == 0) return error_say(error, KJIT_ERR_PARSE, "column %zu: %s is missing", column, what);
  if (bytes >= capacity)
    return error_say(error, KJIT_ERR_PARSE, "column %zu: '%.40s…': %s is expected", column, *at, what);
  memcpy(out, *at, bytes);
  out[bytes] = '\0';
  *at += bytes + strspn(*at + bytes, blanks);
  return KJIT_OK;
}

static kjit_status line_split(const char *line, struct line_parts *parts, kjit_error *error) {
  const char *at = line + strspn(line, blanks);
  kjit_status status =
      part_copy(line, &at, parts->family, sizeof parts->family,
                "a family (flash_forward, attention_sm90, attention, serving, or a family file)", error);
  if (status == KJIT_OK) status = part_copy(line, &at, parts->archs, sizeof parts->archs, "an architecture", error);
  if (status != KJIT_OK) return status;
  const size_t column = (size_t)(at - line) + 1;
  if (*at == '\0') return error_say(error, KJIT_ERR_PARSE, "column %zu: a configuration is missing", column);
  snprintf(parts->request, sizeof parts->request, "%*s%s", (int)(column - 1), "", at);
  return KJIT_OK;
}

/* What lines are read with. */
struct manifest_terms {
  const char *archs;  /* in place of the lines' own; NULL: theirs */
  const char *folder; /* that family files are relative to; NULL: the working folder */
};

/* True for the file of a request that was recorded with its sources. */
static bool is_recorded(const char *name) {
  static const char suffix[] = ".request";
  const size_t bytes = strlen(name), tail = sizeof suffix - 1;
  return bytes > tail && strcmp(name + bytes - tail, suffix) == 0;
}

/* True for a path that stays in its folder: a manifest of a stranger must not lead to other files of this machine. */
static bool stays_below(const char *path) {
  if (*path == '/') return false;
  for (const char *part = path; part != NULL; part = strchr(part, '/')) {
    part += *part == '/';
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return false;
  }
  return true;
}

/* Append a request that was recorded with its sources. Its label is the rest of the line, for people. */
static kjit_status recorded_add(const struct line_parts *parts, const char *arch, const char *folder,
                                struct request_list *list, kjit_error *error) {
  char path[PATH_BYTES];
  if (!stays_below(parts->family))
    return error_say(error, KJIT_ERR_INVALID_ARG,
                     "%.200s: a recorded request lies in the manifest's folder or below it, so neither '..' nor a '/' "
                     "in front may stand here",
                     parts->family);
  if (strcmp(arch, parts->archs) != 0)
    return error_say(error, KJIT_ERR_UNSUPPORTED,
                     "%.100s: recorded for %.16s; for %s its sources may be others, so record it there", parts->family,
                     parts->archs, arch);
  const int bytes =
      snprintf(path, sizeof path, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "", parts->family);
  if (bytes < 0 || (size_t)bytes >= sizeof path)
    return error_say(error, KJIT_ERR_INVALID_ARG, "a path is longer than %d bytes: %.60s…", PATH_BYTES - 1, path);
  return request_list_add_recorded(list, path, parts->request + strspn(parts->request, blanks), arch, error);
}

/* Append every kernel that serving a model needs. */
static kjit_status model_add(const char *request, const char *arch, struct request_list *list, kjit_error *error) {
  kjit_serving_model model;
  kjit_config configs[KJIT_SERVING_KERNELS_MAX];
  size_t count = 0;
  kjit_status status = serving_spec_parse(request, &model, error);
  if (status == KJIT_OK) status = kjit_attention_serving_kernels(&model, arch, configs, &count, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    status = request_check(&configs[i], arch, error);
    if (status == KJIT_OK) status = request_list_add(list, &configs[i], arch, error);
  }
  return status;
}

/* Append the kernel that a request stands for on one architecture. */
static kjit_status request_add(const struct line_parts *parts, const char *arch, const char *folder,
                               struct request_list *list, kjit_error *error) {
  const kjit_family *family = kjit_family_find(parts->family);
  struct trial_problem problem;
  kjit_config config;
  kjit_status status = KJIT_OK;
  if (is_recorded(parts->family)) return recorded_add(parts, arch, folder, list, error);
  if (family_is_file(parts->family)) status = family_files_find(&list->files, parts->family, folder, &family, error);
  if (status != KJIT_OK) return status;
  if (family != NULL) {
    status = kjit_config_parse(family, parts->request, &config, error);
    if (status == KJIT_OK) status = request_check(&config, arch, error);
    return status == KJIT_OK ? request_list_add(list, &config, arch, error) : status;
  }
  if (strcmp(parts->family, "serving") == 0) return model_add(parts->request, arch, list, error);
  if (strcmp(parts->family, "attention") != 0)
    return error_say(
        error, KJIT_ERR_PARSE,
        "'%.60s': a family (flash_forward, attention_sm90, attention, serving, or a family file) is expected",
        parts->family);
  status = attention_text_parse(parts->request, &problem, error);
  return status == KJIT_OK ? request_list_add_problem(list, &problem, arch, error) : status;
}

/* True for a request that is left out rather than refused: with --arch, a line that was recorded on one architecture
 * may need more shared memory than another has. */
static bool is_left_out(kjit_status status, const char *archs) {
  return archs != NULL && (status == KJIT_ERR_INVALID_CONFIG || status == KJIT_ERR_UNSUPPORTED);
}

static kjit_status line_add(const struct line_parts *parts, const struct manifest_terms *terms,
                            struct request_list *list, kjit_error *error) {
  char arch[ARCH_BYTES];
  const char *const wanted = terms->archs;
  const char *archs = wanted != NULL ? wanted : parts->archs;
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && arch_next(&archs, arch, error)) {
    status = request_add(parts, arch, terms->folder, list, error);
    if (!is_left_out(status, wanted)) continue;
    list->left_out++;
    *error = (kjit_error){0};
    status = KJIT_OK;
  }
  return (kjit_status)error->status;
}

static kjit_status line_read(const char *line, const struct manifest_terms *terms, struct request_list *list,
                             kjit_error *error) {
  const char first = line[strspn(line, blanks)];
  if (first == '\0' || first == '#') return KJIT_OK;
  struct line_parts parts;
  const kjit_status status = line_split(line, &parts, error);
  return status == KJIT_OK ? line_add(&parts, terms, list, error) : status;
}

kjit_status manifest_parse_line(const char *line, struct request_list *list, kjit_error *error) {
  const struct manifest_terms terms = {0};
  return line_read(line, &terms, list, error);
}

/* Put "FILE:LINE: " in front of a message. */
static kjit_status locate(const char *path, size_t number, kjit_error *error) {
  kjit_error located = {.status = error->status, .cause_domain = error->cause_domain, .cause = error->cause};
  const int head = snprintf(located.message, sizeof located.message, "%.200s:%zu: ", path, number);
  snprintf(located.message + head, sizeof located.message - (size_t)head, "%.*s",
           (int)(sizeof located.message - (size_t)head - 1), error->message);
  *error = located;
  return (kjit_status)error->status;
}

/* Cut the line's end off. Returns false when the line has none because it is longer than the buffer. */
static bool line_end(char *line, bool at_end_of_file) {
  char *end = strchr(line, '\n');
  if (end == NULL) return at_end_of_file;
  if (end > line && end[-1] == '\r') end--;
  *end = '\0';
  return true;
}

static kjit_status manifest_read_stream(FILE *stream, const char *path, const struct manifest_terms *terms,
                                        struct request_list *list, kjit_error *error) {
  char line[MANIFEST_LINE_MAX + 2];
  for (size_t number = 1; fgets(line, sizeof line, stream) != NULL; number++) {
    if (!line_end(line, feof(stream) != 0))
      error_say(error, KJIT_ERR_PARSE, "a line is at most %d bytes long", MANIFEST_LINE_MAX);
    else
      (void)!line_read(line, terms, list, error);
    if (error->status != KJIT_OK) return locate(path, number, error);
  }
  return ferror(stream) ? error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno)) : KJIT_OK;
}

kjit_status manifest_read(const char *path, const char *archs, struct request_list *list, kjit_error *error) {
  struct manifest_terms terms = {.archs = archs};
  char folder[PATH_BYTES];
  if (strcmp(path, "-") == 0) return manifest_read_stream(stdin, "standard input", &terms, list, error);
  const char *slash = strrchr(path, '/');
  if (slash != NULL && (size_t)(slash - path) < sizeof folder) {
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + (slash == path), path);
    terms.folder = folder;
  }
  FILE *stream = fopen(path, "r");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  const kjit_status status = manifest_read_stream(stream, path, &terms, list, error);
  fclose(stream);
  return status;
}
