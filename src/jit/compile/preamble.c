/* Where the preamble of a source ends, what it is, and what NVRTC says about it. Pure functions.
 *
 * The preamble is the longest beginning of the main file that consists of comments, empty lines and the directives
 * #include, #define, #undef and #pragma once, cut behind its last #include. It ends before anything that is harder to
 * judge (a condition, a line that is continued, a raw text), because all that is lost is time. */
#include "jit/compile/preamble.h"

#include <string.h>

#include "jit/request/link_plan.h"

/* Where the preamble of a main file ends. */
struct extent {
  size_t bytes;  /* of the main file; 0: there is no #include in front */
  uint32_t line; /* of what follows, from 1 on */
};

static const char *skip_blanks(const char *at) {
  return at + strspn(at, " \t\r\v\f");
}

/* Skip the comment that begins here. Returns NULL when it has no end; `*lines` is counted up. */
static const char *skip_comment(const char *at, uint32_t *lines) {
  const char *end = strstr(at + 2, "*/");
  if (!end) return NULL;
  for (; at < end; at++)
    *lines += *at == '\n';
  return end + 2;
}

static bool is_word(const char **at, const char *word) {
  const size_t bytes = strlen(word);
  if (strncmp(*at, word, bytes) != 0 || !strchr(" \t\"<\r\n", (*at)[bytes])) return false;
  *at += bytes;
  return true;
}

enum line_kind { LINE_EMPTY, LINE_INCLUDE, LINE_OTHER_DIRECTIVE, LINE_END };

/* Bytes of a directive without a line comment at its end; 0 when a "//" in it may belong to the directive. */
static size_t directive_bytes(const char *line, size_t bytes) {
  for (size_t i = 1; i + 1 < bytes; i++) {
    if (line[i] != '/' || line[i + 1] != '/') continue;
    const bool quoted = memchr(line + i, '"', bytes - i) || memchr(line + i, '>', bytes - i);
    return strchr(" \t", line[i - 1]) && !quoted ? i : 0;
  }
  return bytes;
}

/* Classify a line that begins with '#'. A line that is continued, or opens a comment that may be, ends the preamble. */
static enum line_kind directive_kind(const char *line, size_t bytes) {
  const char *at = skip_blanks(line + 1);
  if (!directive_bytes(line, bytes) || memchr(line, '\\', bytes)) return LINE_END;
  for (size_t i = 0; i + 1 < bytes; i++)
    if (line[i] == '/' && line[i + 1] == '*') return LINE_END;
  if (is_word(&at, "include")) return LINE_INCLUDE;
  if (is_word(&at, "define") || is_word(&at, "undef")) return LINE_OTHER_DIRECTIVE;
  if (is_word(&at, "pragma") && !strncmp(skip_blanks(at), "once", 4)) return LINE_OTHER_DIRECTIVE;
  return LINE_END;
}

/* One step through the text; `directives` (may be NULL) gets each directive of it. */
static enum line_kind step(const char **text, uint32_t *line, struct text *directives) {
  const char *at = skip_blanks(*text);
  if (!strncmp(at, "/*", 2)) {
    at = skip_comment(at, line);
    *text = at;
    return at ? LINE_EMPTY : LINE_END;
  }
  const size_t bytes = strcspn(at, "\n");
  const bool comment = !strncmp(at, "//", 2) && !memchr(at, '\\', bytes);
  if (!at[bytes] || (bytes && *at != '#' && !comment)) return LINE_END;
  const enum line_kind kind = bytes && !comment ? directive_kind(at, bytes) : LINE_EMPTY;
  if (kind == LINE_END) return kind;
  if (kind != LINE_EMPTY && directives) {
    text_append_bytes(directives, at, directive_bytes(at, bytes));
    text_append(directives, "\n");
  }
  *text = at + bytes + 1;
  ++*line;
  return kind;
}

static struct extent find_extent(const char *source) {
  struct extent extent = {0, 1};
  uint32_t line = 1;
  for (const char *at = source;;) {
    const enum line_kind kind = step(&at, &line, NULL);
    if (kind == LINE_END) return extent;
    if (kind == LINE_INCLUDE) extent = (struct extent){(size_t)(at - source), line};
  }
}

static void put_directives(struct text *out, const char *source, const struct extent *extent) {
  uint32_t line = 1;
  for (const char *at = source; at < source + extent->bytes;)
    if (step(&at, &line, out) == LINE_END) return;
}

/* Find the "#line 1 …" at the end of the prologue, which names the main file. NULL when the prologue ends otherwise. */
static const char *find_line_directive(const char *prologue) {
  static const char start[] = "#line 1 \"";
  const size_t bytes = strlen(prologue);
  if (!bytes || prologue[bytes - 1] != '\n') return NULL;
  const char *line = prologue + bytes - 1;
  while (line > prologue && line[-1] != '\n')
    line--;
  return strncmp(line, start, sizeof start - 1) == 0 ? line : NULL;
}

bool preamble_write(const struct jit_request *request, bool alone, struct text *out) {
  if (!request->sources->count) return false;
  const struct source_file *main_file = &request->sources->files[0];
  const char *named = find_line_directive(request->prologue);
  const struct extent extent = find_extent(main_file->text);
  if (!named || !extent.bytes) return false;
  text_append_bytes(out, request->prologue, (size_t)(named - request->prologue));
  put_directives(out, main_file->text, &extent);
  text_append(out, "#pragma nv_hdrstop\n");
  if (!alone) {
    text_appendf(out, "#line %u %s", extent.line, named + strlen("#line 1 "));
    text_append(out, main_file->text + extent.bytes);
  }
  return !out->failed;
}

static void digest_string(struct digest_state *state, const char *string) {
  const uint64_t bytes = strlen(string);
  digest_add(state, &bytes, sizeof bytes);
  digest_add(state, string, bytes);
}

/* True for options that put file names into the code. A kernel with debug information or line tables would name the
 * program in which the header was precompiled. */
static bool names_lines(const char *option) {
  static const char *const options[] = {"-G", "--device-debug", "-lineinfo", "--generate-line-info"};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (!strcmp(option, options[i])) return true;
  return false;
}

bool preamble_identify(const struct jit_request *request, const char *identity, struct digest *digest) {
  const struct source_set *sources = request->sources;
  const char *named = find_line_directive(request->prologue);
  size_t header_bytes = 0;
  struct digest_state state;
  if (!sources->count) return false;
  for (size_t i = 1; i < sources->count; i++)
    header_bytes += sources->files[i].bytes;
  const struct extent extent = find_extent(sources->files[0].text);
  if (header_bytes < PREAMBLE_LEAST_BYTES || !named || !extent.bytes) return false;
  digest_begin(&state);
  digest_string(&state, identity);
  digest_string(&state, request->target.name);
  for (size_t i = 0; i < request->option_count; i++) {
    if (names_lines(request->options[i])) return false;
    digest_string(&state, request->options[i]);
  }
  /* What the compiler is told so that its output can be linked, as compile.c does. */
  const char *const unit_option = link_plan_of(request).unit_option;
  digest_string(&state, unit_option ? unit_option : "");
  const uint64_t counts[] = {request->option_count, (uint64_t)(named - request->prologue)};
  digest_add(&state, counts, sizeof counts);
  digest_add(&state, request->prologue, counts[1]);
  char buffer[8192];
  struct text directives;
  text_init_fixed(&directives, buffer, sizeof buffer);
  put_directives(&directives, sources->files[0].text, &extent);
  if (directives.failed) return false;
  digest_add(&state, directives.data, directives.bytes);
  for (size_t i = 1; i < sources->count; i++) {
    digest_string(&state, sources->files[i].name);
    digest_add(&state, sources->files[i].digest.bytes, DIGEST_BYTES);
  }
  digest_end(&state, digest);
  return true;
}

bool preamble_take_note(char *log) {
  char *note = strstr(log, ": using precompiled header file \"");
  if (!note) note = strstr(log, ": creating precompiled header file \"");
  if (!note) return false;
  char *begin = note;
  while (begin > log && begin[-1] != '\n')
    begin--;
  char *end = note + strcspn(note, "\n");
  for (int newlines = 0; newlines < 2 && *end == '\n'; newlines++) /* NVRTC writes an empty line behind it */
    end++;
  memmove(begin, end, strlen(end) + 1);
  return true;
}
