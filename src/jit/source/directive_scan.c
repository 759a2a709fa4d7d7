/* Step 1 of finding what a source includes: the text is read once, byte by byte. Comments, strings and raw strings
 * outside directives are skipped, so that a '#' in them is none; a directive's line is cleaned and kept. Pure functions
 * over the caller's text and arena. */
#include "jit/source/directive_scan.h"

#include <string.h>

/* Longest delimiter of a raw string, by the C++ standard. */
#define DELIMITER_BYTES 16

struct scanner {
  const char *text;
  size_t bytes, at, line;
  struct arena *arena;
  struct directive_list *list;
};

static const struct {
  const char *name;
  enum directive_kind kind;
} names[] = {
    {"include", DIRECTIVE_INCLUDE}, {"include_next", DIRECTIVE_INCLUDE_NEXT},
    {"if", DIRECTIVE_IF},           {"ifdef", DIRECTIVE_IFDEF},
    {"ifndef", DIRECTIVE_IFNDEF},   {"elif", DIRECTIVE_ELIF},
    {"elifdef", DIRECTIVE_ELIFDEF}, {"elifndef", DIRECTIVE_ELIFNDEF},
    {"else", DIRECTIVE_ELSE},       {"endif", DIRECTIVE_ENDIF},
    {"define", DIRECTIVE_DEFINE},   {"undef", DIRECTIVE_UNDEF},
    {"pragma", DIRECTIVE_PRAGMA},
};

static bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c >= 0x80;
}

static bool is_blank(int c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

static int byte_at(const struct scanner *s, size_t at) {
  return at < s->bytes ? (unsigned char)s->text[at] : -1;
}

/* Bytes of a backslash and newline at `at`; 0 if there is none. */
static size_t splice_bytes(const struct scanner *s, size_t at) {
  if (byte_at(s, at) != '\\') return 0;
  if (byte_at(s, at + 1) == '\n') return 2;
  return byte_at(s, at + 1) == '\r' && byte_at(s, at + 2) == '\n' ? 3 : 0;
}

/* The next byte behind continued lines, -1 at the end. */
static inline int peek(struct scanner *s) {
  if (s->at < s->bytes && s->text[s->at] != '\\') return (unsigned char)s->text[s->at];
  for (size_t skip; (skip = splice_bytes(s, s->at)); s->at += skip)
    s->line++;
  return byte_at(s, s->at);
}

static int peek_second(const struct scanner *s) {
  size_t at = s->at + 1;
  for (size_t skip; (skip = splice_bytes(s, at));)
    at += skip;
  return byte_at(s, at);
}

static void advance(struct scanner *s) {
  if (s->text[s->at++] == '\n') s->line++;
}

static bool has_byte(const struct scanner *s, size_t from, size_t to, char byte) {
  return memchr(s->text + from, byte, to - from) != NULL;
}

/* Skip a comment without a backslash in it by the C library's searches, which look at many bytes at once: comments are
 * a third of the toolkit's headers. False for any other, at which nothing is changed. */
static bool skip_simple_comment(struct scanner *s) {
  const size_t from = s->at + 2;
  if (byte_at(s, s->at) != '/' || from > s->bytes) return false;
  const char *text = s->text + from, *found;
  size_t stop = s->bytes;
  if (s->text[from - 1] == '/') {
    found = memchr(text, '\n', s->bytes - from);
    if (found) stop = (size_t)(found - s->text);
  } else {
    found = s->text[from - 1] == '*' ? memmem(text, s->bytes - from, "*/", 2) : NULL;
    if (!found) return false;
    stop = (size_t)(found - s->text) + 2;
  }
  if (has_byte(s, from, stop, '\\')) return false;
  for (const char *end = s->text + stop; (text = memchr(text, '\n', (size_t)(end - text))) != NULL; text++)
    s->line++;
  s->at = stop;
  return true;
}

/* A line splice may stand between the two characters of a comment's mark; peek() hides it. */
static bool skip_comment(struct scanner *s) {
  if (skip_simple_comment(s)) return true;
  const int second = peek(s) == '/' ? peek_second(s) : -1;
  if (second == '/') {
    for (int c; (c = peek(s)) >= 0 && c != '\n';)
      advance(s);
    return true;
  }
  if (second != '*') return false;
  advance(s);
  (void)peek(s);
  advance(s);
  for (int c, last = 0; (c = peek(s)) >= 0; last = c) {
    advance(s);
    if (last == '*' && c == '/') break;
  }
  return true;
}

/* "…" or '…'. One that the line does not end is text of some #error. */
static void skip_literal(struct scanner *s) {
  const int quote = peek(s);
  advance(s);
  for (int c; (c = peek(s)) >= 0 && c != '\n';) {
    advance(s);
    if (c == quote) return;
    if (c == '\\' && peek(s) >= 0 && peek(s) != '\n') advance(s);
  }
}

/* R"x(…)x", where nothing is an escape or a continued line. At the opening quote. */
static void skip_raw_string(struct scanner *s) {
  char end[DELIMITER_BYTES + 2] = ")";
  size_t length = 1;
  const size_t open = s->at + 1;
  while (length <= DELIMITER_BYTES && byte_at(s, open + length - 1) >= 0 && s->text[open + length - 1] != '(') {
    end[length] = s->text[open + length - 1];
    length++;
  }
  if (byte_at(s, open + length - 1) != '(') {
    skip_literal(s);
    return;
  }
  end[length++] = '"';
  const char *from = s->text + open, *found = memmem(from, s->bytes - open, end, length);
  const size_t stop = found ? (size_t)(found - s->text) + length : s->bytes;
  while (s->at < stop)
    advance(s);
}

static bool opens_raw_string(const char *word, size_t bytes) {
  static const char *const prefixes[] = {"R", "u8R", "uR", "UR", "LR"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (strlen(prefixes[i]) == bytes && !memcmp(prefixes[i], word, bytes)) return true;
  return false;
}

/* A name, a number with its digit separators, or a raw string with its prefix. */
static void skip_word(struct scanner *s) {
  const size_t start = s->at;
  const bool number = s->text[start] >= '0' && s->text[start] <= '9';
  for (int c; is_word(c = peek(s)) || (number && c == '\'' && is_word(peek_second(s)));)
    advance(s);
  if (peek(s) == '"' && opens_raw_string(s->text + start, s->at - start)) skip_raw_string(s);
}

/* Skip one comment, literal, word or character of a line. */
static void skip_item(struct scanner *s) {
  const int c = peek(s);
  if (is_word(c))
    skip_word(s);
  else if (c == '"' || c == '\'')
    skip_literal(s);
  else
    advance(s);
}

static void skip_blanks(struct scanner *s) {
  for (;;) {
    if (is_blank(peek(s)))
      advance(s);
    else if (peek_second(s) == '/' || !skip_comment(s)) /* a line comment ends the directive */
      return;
  }
}

/* '#', or its other spelling "%:". */
static bool skip_hash(struct scanner *s) {
  const int c = peek(s);
  if (c != '#' && (c != '%' || peek_second(s) != ':')) return false;
  advance(s);
  if (c == '%' && peek(s) == ':') advance(s);
  return true;
}

static bool has_text(const char *data, size_t bytes, const char *text) {
  return memmem(data, bytes, text, strlen(text)) != NULL;
}

/* A header's <name> is no string: two slashes in it are no comment. */
static void skip_angled(struct scanner *s) {
  const char *newline = memchr(s->text + s->at, '\n', s->bytes - s->at);
  const size_t rest = newline ? (size_t)(newline - s->text) - s->at : s->bytes - s->at;
  const char *close = memchr(s->text + s->at, '>', rest);
  if (close) s->at = (size_t)(close - s->text) + 1;
}

/* What follows the directive's name: find its end, and whether cleaning would change it. */
static bool skip_args(struct scanner *s, enum directive_kind kind) {
  const size_t begin = s->at;
  bool clean = true;
  if (kind <= DIRECTIVE_INCLUDE_NEXT) {
    while (is_blank(byte_at(s, s->at)))
      s->at++;
    if (byte_at(s, s->at) == '<') skip_angled(s);
  }
  for (int c; (c = peek(s)) >= 0 && c != '\n';) {
    if (skip_comment(s))
      clean = false;
    else
      skip_item(s);
  }
  const size_t bytes = s->at - begin;
  return clean && !has_text(s->text + begin, bytes, "\\\n") && !has_text(s->text + begin, bytes, "\\\r\n");
}

/* The line with each comment as one blank, and joined. It is never longer than the raw one. */
static void clean_args(struct scanner *s, struct directive *directive) {
  struct scanner part = {.text = s->text, .bytes = directive->end, .at = directive->begin};
  char *out = arena_alloc(s->arena, directive->end - directive->begin + 1);
  if (!out) return;
  size_t length = 0;
  while (peek(&part) >= 0) {
    if (skip_comment(&part)) {
      out[length++] = ' ';
      continue;
    }
    const size_t from = part.at;
    skip_item(&part);
    for (size_t at = from, skip; at < part.at; at++) {
      while ((skip = splice_bytes(s, at)) && at < part.at)
        at += skip;
      if (at < part.at) out[length++] = s->text[at];
    }
  }
  directive->args = out;
  directive->args_bytes = length;
}

static struct directive *add(struct scanner *s) {
  struct directive_list *list = s->list;
  struct directive *items = arena_grow(s->arena, list->items, list->count, &list->capacity, sizeof *items);
  if (!items) return NULL;
  list->items = items;
  return &list->items[list->count++];
}

static bool is_wanted(const struct directive *directive) {
  if (directive->kind != DIRECTIVE_PRAGMA) return true;
  return has_text(directive->args, directive->args_bytes, "once") ||
         has_text(directive->args, directive->args_bytes, "_macro");
}

/* Read a directive; the scanner is behind the '#'. */
static void read_directive(struct scanner *s, size_t line) {
  skip_blanks(s);
  const size_t start = s->at;
  while (is_word(peek(s)))
    advance(s);
  const size_t bytes = s->at - start;
  size_t i = 0;
  while (i < sizeof names / sizeof *names &&
         (strlen(names[i].name) != bytes || memcmp(names[i].name, s->text + start, bytes) != 0))
    i++;
  if (i == sizeof names / sizeof *names) return;
  struct directive directive = {.kind = names[i].kind, .line = line, .begin = s->at};
  const bool clean = skip_args(s, directive.kind);
  directive.end = s->at;
  directive.args = s->text + directive.begin;
  directive.args_bytes = directive.end - directive.begin;
  if (!clean) clean_args(s, &directive);
  struct directive *slot = is_wanted(&directive) ? add(s) : NULL;
  if (slot) *slot = directive;
}

/* Skip bytes at which nothing can begin, without a closer look. */
static void skip_plain(struct scanner *s) {
  static const bool special[256] = {
      ['\n'] = 1, ['"'] = 1, ['\''] = 1, ['/'] = 1, ['\\'] = 1, ['R'] = 1, ['0'] = 1, ['1'] = 1,
      ['2'] = 1,  ['3'] = 1, ['4'] = 1,  ['5'] = 1, ['6'] = 1,  ['7'] = 1, ['8'] = 1, ['9'] = 1};
  while (s->at < s->bytes && !special[(unsigned char)s->text[s->at]])
    s->at++;
  /* The special byte may belong to a word, so go back to the word's start. */
  while (s->at && is_word((unsigned char)s->text[s->at - 1]) && is_word(byte_at(s, s->at)))
    s->at--;
}

/* Only a "#" that is the first thing of its line begins a directive, and comments do not count. Everything else is
 * passed over by the fastest way that still notices quotes and raw strings, since most of a header's bytes are of
 * that kind. */
bool directive_scan(struct directive_list *list, const char *text, size_t bytes, struct arena *arena) {
  *list = (struct directive_list){0};
  struct scanner s = {.text = text, .bytes = bytes, .line = 1, .arena = arena, .list = list};
  if (bytes >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) s.at = 3;
  bool line_start = true;
  for (int c; !arena->failed && (c = peek(&s)) >= 0;) {
    const size_t line = s.line;
    if (c == '\n' || is_blank(c)) {
      line_start |= c == '\n';
      advance(&s);
    } else if (skip_comment(&s)) {
      continue;
    } else if (line_start && skip_hash(&s)) {
      line_start = false;
      read_directive(&s, line);
    } else {
      line_start = false;
      skip_item(&s);
      skip_plain(&s);
    }
  }
  return !arena->failed;
}

bool directive_header(const char *args, size_t args_bytes, const char **name, size_t *bytes, bool *angled) {
  size_t at = 0;
  while (at < args_bytes && is_blank((unsigned char)args[at]))
    at++;
  if (at == args_bytes || (args[at] != '<' && args[at] != '"')) return false;
  *angled = args[at] == '<';
  const char *end = memchr(args + at + 1, *angled ? '>' : '"', args_bytes - at - 1);
  if (!end || end == args + at + 1) return false;
  *name = args + at + 1;
  *bytes = (size_t)(end - *name);
  return true;
}
