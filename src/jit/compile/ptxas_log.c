/* Reads ptxas's figures (registers, spills, shared memory) from NVRTC's log, and takes the lines that hold them out of
 * it, so that what is left are warnings. Asked for by -v, the lines are, for each kernel of the program, behind "ptxas
 * info    : ":
 *
 *   Compiling entry function 'k' for 'sm_80'
 *   Function properties for k
 *   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
 *   Used 8 registers, used 0 barriers, 256 bytes smem, 360 bytes cmem[0]
 *   Compile time = 3.176 ms
 *
 * and, once, "0 bytes gmem". Functions that were not inlined have properties of their own, which are not counted. Pure;
 * any thread. */
#include "jit/compile/ptxas_log.h"

#include <stdbool.h>
#include <string.h>

/* What stands in front of every figure. */
#define INFO_PREFIX "ptxas info    : "

/* The same from nvJitLink when it links machine code, which says nothing of spills:
 *   info    : Function properties for 'k':
 *   info    : used 24 registers, used 0 barriers, 0 stack, 0 bytes smem, 536 bytes cmem[0], 0 bytes lmem */
#define LINK_PREFIX "info    : "

struct reader {
  const char *entry;
  struct ptxas_figures *figures;
  bool in_entry;    /* the last "Compiling entry function" named it */
  bool in_function; /* the last "Function properties" did */
};

static const char *after(const char *line, const char *prefix) {
  const size_t bytes = strlen(prefix);
  return strncmp(line, prefix, bytes) == 0 ? line + bytes : NULL;
}

/* The number in front of `unit`: 256 in "…, 256 bytes smem". 0 when there is none. */
static uint32_t number_before(const char *line, const char *unit) {
  const char *at = strstr(line, unit);
  uint64_t value = 0, scale = 1;
  while (at && at > line && at[-1] >= '0' && at[-1] <= '9' && scale <= 1000000000u) {
    value += (uint64_t)(*--at - '0') * scale;
    scale *= 10;
  }
  return value <= UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static bool names_entry(const struct reader *reader, const char *name, char end) {
  const char *rest = after(name, reader->entry);
  return rest && *rest == end;
}

/* True for a line like "0 bytes gmem", which is about the whole program. */
static bool is_memory_line(const char *text) {
  const size_t digits = strspn(text, "0123456789");
  return digits && (after(text + digits, " bytes gmem") || after(text + digits, " bytes cmem"));
}

/* One of the linker's own. */
static bool read_link_line(struct reader *reader, const char *info) {
  struct ptxas_figures *const figures = reader->figures;
  const char *text;
  if ((text = after(info, "Function properties for '"))) {
    reader->in_function = names_entry(reader, text, '\'');
    return true;
  }
  if (!after(info, "used ") || !strstr(info, " registers")) return is_memory_line(info);
  if (reader->in_function) {
    figures->registers = number_before(info, " registers");
    figures->shared_bytes = number_before(info, " bytes smem");
    figures->local_bytes = number_before(info, " stack");
  }
  return true;
}

/* Read one line. Returns true when it holds figures, and so is to be taken out of the log. */
static bool read_line(struct reader *reader, const char *line) {
  struct ptxas_figures *figures = reader->figures;
  const char *text;
  if (strstr(line, " bytes stack frame, ")) {
    if (reader->in_function) {
      figures->local_bytes = number_before(line, " bytes stack frame");
      figures->spill_bytes = number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    }
    return true;
  }
  if ((text = after(line, LINK_PREFIX))) return read_link_line(reader, text);
  const char *info = after(line, INFO_PREFIX);
  if (!info) return false;
  if ((text = after(info, "Compiling entry function '"))) {
    reader->in_entry = names_entry(reader, text, '\'');
    return true;
  }
  if ((text = after(info, "Function properties for "))) {
    reader->in_function = names_entry(reader, text, '\0');
    return true;
  }
  if (after(info, "Used ") && strstr(info, " registers")) {
    if (reader->in_entry) {
      figures->registers = number_before(info, " registers");
      figures->shared_bytes = number_before(info, " bytes smem");
    }
    return true;
  }
  return after(info, "Compile time = ") || is_memory_line(info);
}

/* Every line of the log in turn, cut off behind it for the time; with `strip` those of the figures go.
 * @return the end of what stays */
static char *read_lines(struct reader *reader, char *log, bool strip) {
  char *out = log;
  for (char *line = log, *next; *line; line = next) {
    char *newline = strchr(line, '\n');
    next = newline ? newline + 1 : line + strlen(line);
    if (newline) *newline = '\0';
    const bool taken = read_line(reader, line);
    if (newline) *newline = '\n';
    if (taken || !strip) continue;
    memmove(out, line, (size_t)(next - line));
    out += next - line;
  }
  return out;
}

/* Cut blank space off the log's end; if there was a newline, one stays. */
static void trim_end(char *log, char *stop) {
  char *end = stop;
  while (end > log && strchr(" \t\r\n", end[-1]))
    end--;
  if (end > log && end < stop) *end++ = '\n';
  *end = '\0';
}

void ptxas_log_update(char *log, const char *entry, struct ptxas_figures *figures) {
  struct reader reader = {.entry = entry, .figures = figures};
  (void)read_lines(&reader, log, 0);
}

void ptxas_log_find(char *log, const char *entry, struct ptxas_figures *figures) {
  *figures = (struct ptxas_figures){0};
  ptxas_log_update(log, entry, figures);
}

void ptxas_log_strip(char *log) {
  struct ptxas_figures unused = {0};
  struct reader reader = {.entry = "", .figures = &unused};
  trim_end(log, read_lines(&reader, log, 1));
}
