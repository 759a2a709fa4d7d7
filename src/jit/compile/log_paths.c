/* Replaces names by paths in a compiler's log, line by line. A name that is looked up among the request's files stands
 * at the start of a line, with a line number in brackets behind it, or at a line's end, behind "of". Nothing else of
 * the log is changed. Pure; any thread. */
#include "jit/compile/log_paths.h"

#include <stdbool.h>
#include <string.h>

#include "base/text.h"

/* A log has at most 16 MiB; a path may be a hundred times as long as its name. */
#define SHOWN_LIMIT ((size_t)256 << 20)

/* The path of a name; NULL when it equals the name, or when no file has the name. The main file comes first, the others
 * are sorted by name. */
static const char *path_of(const struct source_set *sources, const char *name, size_t bytes) {
  size_t low = 1, high = sources->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const struct source_file *file = &sources->files[middle];
    int order = strncmp(file->name, name, bytes);
    if (!order) order = file->name[bytes] != '\0';
    if (!order) return file->path && strcmp(file->path, file->name) != 0 ? file->path : NULL;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* Bytes of a name at the start of a line, in front of "(12)"; 0 when there is none. */
static size_t name_bytes(const char *line, size_t bytes) {
  for (size_t at = 1; at + 2 < bytes; at++) {
    if (line[at] != '(' || !is_digit(line[at + 1])) continue;
    size_t end = at + 1;
    while (end < bytes && is_digit(line[end]))
      end++;
    if (end < bytes && line[end] == ')') return at;
  }
  return 0;
}

static void show_line(struct text *out, const char *line, size_t bytes, const struct source_set *sources) {
  static const char of[] = " of ";
  const size_t leading = name_bytes(line, bytes);
  const char *path = leading ? path_of(sources, line, leading) : NULL;
  if (path) {
    text_append(out, path);
    text_append_bytes(out, line + leading, bytes - leading);
    return;
  }
  for (size_t at = bytes; at >= sizeof of; at--) {
    const size_t start = at - (sizeof of - 1);
    if (memcmp(line + start, of, sizeof of - 1) != 0) continue;
    path = path_of(sources, line + at, bytes - at);
    if (!path) break;
    text_append_bytes(out, line, at);
    text_append(out, path);
    return;
  }
  text_append_bytes(out, line, bytes);
}

void log_paths_show(char **log, const struct source_set *sources, const struct mem *mem) {
  struct text out;
  if (!*log || !**log) return;
  text_init(&out, mem, SHOWN_LIMIT);
  for (const char *line = *log; *line;) {
    const size_t bytes = strcspn(line, "\n");
    show_line(&out, line, bytes, sources);
    line += bytes;
    if (*line) text_append_bytes(&out, line++, 1);
  }
  char *shown = text_take(&out);
  text_finish(&out);
  if (!shown) return;
  mem_free(mem, *log);
  *log = shown;
}
