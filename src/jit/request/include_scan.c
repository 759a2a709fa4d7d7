#include "jit/request/include_scan.h"

#include <string.h>

/* C++ asks compilers for 256 levels of #if. Deeper ones count as conditions, which is the safe side. */
#define GUARD_LEVELS 256

/* Longest delimiter of a raw string, by the C++ standard. */
#define DELIMITER_BYTES 16

struct scanner {
  const char *text;
  size_t bytes, at, line;
  size_t depth;              /* of #if */
  size_t guards;             /* how many of those levels are include guards */
  _Bool guard[GUARD_LEVELS]; /* which */
  const char *candidate;     /* NAME of an #ifndef that the next directive may make a guard; NULL: none */
  size_t candidate_bytes;
  include_visit visit;
  void *user;
};

struct word {
  const char *text;
  size_t bytes;
};

static _Bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c >= 0x80;
}

static _Bool is_blank(int c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

/* Bytes of a backslash and newline at `at`; 0 if there is none. */
static size_t splice_bytes(const struct scanner *s, size_t at) {
  if (at >= s->bytes || s->text[at] != '\\') return 0;
  if (at + 1 < s->bytes && s->text[at + 1] == '\n') return 2;
  return at + 2 < s->bytes && s->text[at + 1] == '\r' && s->text[at + 2] == '\n' ? 3 : 0;
}

/* The next byte, -1 at the end. Joins spliced lines. */
static int peek(struct scanner *s) {
  for (size_t skip; (skip = splice_bytes(s, s->at)); s->at += skip)
    s->line++;
  return s->at < s->bytes ? (unsigned char)s->text[s->at] : -1;
}

static void advance(struct scanner *s) {
  if (s->text[s->at++] == '\n') s->line++;
}

static int peek_second(const struct scanner *s) {
  size_t at = s->at + 1;
  for (size_t skip; (skip = splice_bytes(s, at));)
    at += skip;
  return at < s->bytes ? (unsigned char)s->text[at] : -1;
}

static _Bool skip_comment(struct scanner *s) {
  const int second = peek(s) == '/' ? peek_second(s) : -1;
  if (second == '/') {
    for (int c; (c = peek(s)) >= 0 && c != '\n';)
      advance(s);
    return 1;
  }
  if (second != '*') return 0;
  advance(s);
  (void)peek(s);
  advance(s);
  for (int c, last = 0; (c = peek(s)) >= 0; last = c) {
    advance(s);
    if (last == '*' && c == '/') break;
  }
  return 1;
}

static void skip_blanks(struct scanner *s) {
  for (;;) {
    if (is_blank(peek(s)))
      advance(s);
    else if (peek_second(s) == '/' || !skip_comment(s)) /* a line comment ends the directive */
      return;
  }
}

/* A spliced word keeps its backslash, and then matches nothing; nobody writes #inc\newline#lude. */
static struct word read_word(struct scanner *s) {
  struct word word = {s->text + s->at, 0};
  if (!is_word(peek(s))) return word;
  word.text = s->text + s->at;
  const size_t start = s->at;
  while (is_word(peek(s)))
    advance(s);
  word.bytes = s->at - start;
  return word;
}

static _Bool word_is(struct word word, const char *text) {
  return word.bytes == strlen(text) && !memcmp(word.text, text, word.bytes);
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

/* R"x(…)x", where nothing is an escape or a splice. At the opening quote. */
static void skip_raw_string(struct scanner *s) {
  char end[DELIMITER_BYTES + 2] = ")";
  size_t length = 1;
  const size_t open = s->at + 1;
  while (open + length - 1 < s->bytes && length <= DELIMITER_BYTES && s->text[open + length - 1] != '(') {
    end[length] = s->text[open + length - 1];
    length++;
  }
  if (open + length - 1 >= s->bytes || s->text[open + length - 1] != '(') {
    skip_literal(s);
    return;
  }
  end[length++] = '"';
  const char *from = s->text + open, *found = memmem(from, s->bytes - open, end, length);
  const size_t stop = found ? (size_t)(found - s->text) + length : s->bytes;
  while (s->at < stop)
    advance(s);
}

/* Conditions that are not include guards enclose the current place. */
static _Bool is_conditional(const struct scanner *s) {
  return s->depth > s->guards;
}

/* <name> or "name", or the macro of a computed #include. Anything else is malformed, and left to the compiler. */
static kjit_status visit_name(struct scanner *s, _Bool optional) {
  struct include include = {.line = s->line, .optional = optional || is_conditional(s)};
  const int open = peek(s), close = open == '<' ? '>' : '"';
  if (is_word(open)) {
    const struct word macro = read_word(s);
    include.name = macro.text;
    include.name_bytes = macro.bytes;
    include.computed = 1;
    return s->visit(s->user, &include);
  }
  if (open != '<' && open != '"') return KJIT_OK;
  const char *from = s->text + s->at + 1;
  const char *newline = memchr(from, '\n', s->bytes - s->at - 1);
  const size_t rest = newline ? (size_t)(newline - from) : s->bytes - s->at - 1;
  const char *end = memchr(from, close, rest);
  if (!end || end == from) return KJIT_OK;
  include.name = from;
  include.name_bytes = (size_t)(end - from);
  include.angled = open == '<';
  s->at += include.name_bytes + 2;
  return s->visit(s->user, &include);
}

static void open_condition(struct scanner *s) {
  if (s->depth < GUARD_LEVELS) s->guard[s->depth] = 0;
  s->depth++;
}

static void end_guard(struct scanner *s) {
  if (!s->depth || s->depth > GUARD_LEVELS || !s->guard[s->depth - 1]) return;
  s->guard[s->depth - 1] = 0;
  s->guards--;
}

static void close_condition(struct scanner *s) {
  end_guard(s);
  if (s->depth) s->depth--;
}

/* #ifndef NAME followed by #define NAME. */
static void make_guard(struct scanner *s, struct word name, struct word candidate) {
  if (!candidate.text || !s->depth || s->depth > GUARD_LEVELS) return;
  if (name.bytes != candidate.bytes || memcmp(name.text, candidate.text, name.bytes) != 0) return;
  s->guard[s->depth - 1] = 1;
  s->guards++;
}

/* What follows '#', as far as it matters here; the rest of the line is read as any other text. */
static kjit_status read_directive(struct scanner *s) {
  const struct word candidate = {s->candidate, s->candidate_bytes};
  s->candidate = NULL;
  skip_blanks(s);
  const struct word directive = read_word(s);
  skip_blanks(s);
  if (word_is(directive, "include")) return visit_name(s, 0);
  if (word_is(directive, "if") || word_is(directive, "ifdef")) open_condition(s);
  if (word_is(directive, "else") || word_is(directive, "elif")) end_guard(s);
  if (word_is(directive, "endif")) close_condition(s);
  if (word_is(directive, "define")) make_guard(s, read_word(s), candidate);
  if (word_is(directive, "ifndef")) {
    open_condition(s);
    const struct word name = read_word(s);
    if (name.bytes) s->candidate = name.text;
    s->candidate_bytes = name.bytes;
  }
  return KJIT_OK;
}

static _Bool opens_raw_string(struct word word) {
  return word_is(word, "R") || word_is(word, "u8R") || word_is(word, "uR") || word_is(word, "UR") ||
         word_is(word, "LR");
}

/* A name, a number with its digit separators, or the prefix of a literal. */
static kjit_status read_token(struct scanner *s) {
  const struct word word = read_word(s);
  if (word.text[0] >= '0' && word.text[0] <= '9') {
    while (peek(s) == '\'' && is_word(peek_second(s))) {
      advance(s);
      (void)read_word(s);
    }
    return KJIT_OK;
  }
  if (peek(s) == '"' && opens_raw_string(word)) skip_raw_string(s);
  if (!word_is(word, "__has_include")) return KJIT_OK;
  skip_blanks(s);
  if (peek(s) != '(') return KJIT_OK;
  advance(s);
  skip_blanks(s);
  return peek(s) == '<' || peek(s) == '"' ? visit_name(s, 1) : KJIT_OK;
}

/* '#', or its other spelling "%:". */
static _Bool skip_hash(struct scanner *s) {
  const int c = peek(s);
  if (c != '#' && (c != '%' || peek_second(s) != ':')) return 0;
  advance(s);
  if (c == '%' && peek(s) == ':') advance(s);
  return 1;
}

kjit_status include_scan(const char *text, size_t bytes, include_visit visit, void *user) {
  struct scanner s = {.text = text, .bytes = bytes, .line = 1, .visit = visit, .user = user};
  kjit_status status = KJIT_OK;
  _Bool line_start = 1;
  for (int c; status == KJIT_OK && (c = peek(&s)) >= 0;) {
    if (c == '\n' || is_blank(c)) {
      line_start |= c == '\n';
      advance(&s);
    } else if (skip_comment(&s)) {
      continue;
    } else if (line_start && skip_hash(&s)) {
      line_start = 0;
      status = read_directive(&s);
    } else {
      line_start = 0;
      if (is_word(c))
        status = read_token(&s);
      else if (c == '"' || c == '\'')
        skip_literal(&s);
      else
        advance(&s);
    }
  }
  return status;
}
