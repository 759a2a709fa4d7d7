/* The expression of an #if: its operators (`defined`, `__has_include`) while the line is expanded, then the arithmetic
 * by recursive descent, in 64 bits with C's rules for signed and unsigned values. Pure but for the headers that
 * __has_include asks the caller for. */
#include "jit/source/condition.h"

#include <string.h>

/* Deepest nesting of brackets that is evaluated; deeper ones are left to the compiler. */
#define DEPTH_LIMIT 200

struct value {
  uint64_t bits;
  bool is_unsigned;
};

struct parser {
  const struct token *at;
  size_t depth;
  bool failed;
};

/* -- Operators that are names ------------------------------------------------------------------------------------- */

/* The operand of `defined`: "(name)" or "name". */
static int64_t is_defined(struct macro_expansion *expansion, struct token **at) {
  const struct token *token = (*at)->next;
  const bool brackets = token_is(token, "(");
  if (brackets) token = token->next;
  if (!token || token->kind != TOKEN_NAME) return -1;
  const bool defined = macro_is_defined(expansion->table, token->text, token->bytes);
  if (brackets && !token_is(token->next, ")")) return -1;
  *at = brackets ? token->next->next : token->next;
  return defined;
}

/* Behind the ")" that closes the "(" at `token`; NULL with `*closed` false when none does. */
static struct token *skip_brackets(struct token *token, bool *closed) {
  size_t depth = 0;
  for (; token; token = token->next) {
    if (token_is(token, "(")) depth++;
    if (token_is(token, ")") && --depth == 0) break;
  }
  *closed = token != NULL;
  return token ? token->next : NULL;
}

/* The tokens between the brackets, as the text of a header's name: "name" or <name>. */
static bool read_header_name(struct macro_expansion *expansion, struct token *from, const struct token *end,
                             struct macro_expansion *plain, char *name, size_t capacity) {
  struct token *first = NULL, **last = &first;
  for (; from && from != end && !(from->next == end && token_is(from, ")")); from = from->next) {
    struct token *copy = arena_alloc(expansion->table->arena, sizeof *copy);
    if (!copy) return false;
    *copy = *from;
    copy->next = NULL;
    *last = copy;
    last = &copy->next;
  }
  if (first && first->kind == TOKEN_NAME) first = macro_expand(plain, first);
  size_t length = 0;
  for (const struct token *token = first; token; token = token->next) {
    if (token->bytes + length + 2 > capacity) return false;
    if (token->blank && token != first) name[length++] = ' ';
    memcpy(name + length, token->text, token->bytes);
    length += token->bytes;
  }
  name[length] = '\0';
  const char close = *name == '<' ? '>' : '"';
  return length > 2 && (*name == '<' || *name == '"') && name[length - 1] == close;
}

/* __has_include and __has_include_next: asks the caller whether the header exists. -1 when the question is malformed.
 */
static int64_t has_include(struct macro_expansion *expansion, struct token **at, bool next) {
  bool closed = false;
  char name[1024];
  struct token *open = (*at)->next;
  if (!token_is(open, "(")) return -1;
  struct token *end = skip_brackets(open, &closed);
  struct macro_expansion plain = {.table = expansion->table, .steps = expansion->steps};
  if (!closed) return -1;
  const bool readable = read_header_name(expansion, open->next, end, &plain, name, sizeof name);
  expansion->steps = plain.steps;
  *at = end;
  return readable && expansion->has_include(expansion->user, name + 1, strlen(name) - 2, *name == '<', next);
}

/* __has_cpp_attribute(x) and the like: no header of the toolkit includes another by them, so one answer will do. */
static bool asks_compiler(const struct token *token) {
  static const char *const names[] = {"__has_attribute", "__has_cpp_attribute",      "__has_builtin",  "__has_feature",
                                      "__has_extension", "__has_declspec_attribute", "__is_identifier"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (token_is(token, names[i])) return true;
  return false;
}

/* The operators that look like names. Returns their value, or -1 when `*at` is none of them. */
int64_t macro_operator(struct macro_expansion *expansion, struct token **at) {
  if (token_is(*at, "defined")) return is_defined(expansion, at);
  if (token_is(*at, "__has_include")) return has_include(expansion, at, 0);
  if (token_is(*at, "__has_include_next")) return has_include(expansion, at, 1);
  if (!*at || !token_is((*at)->next, "(") || !asks_compiler(*at)) return -1;
  bool closed = false;
  struct token *end = skip_brackets((*at)->next, &closed);
  if (!closed) return -1;
  *at = end;
  return 1;
}

/* -- Arithmetic --------------------------------------------------------------------------------------------------- */

static struct value parse_ternary(struct parser *parser);

static struct value truth(bool value) {
  return (struct value){value, 0};
}

static bool take(struct parser *parser, const char *mark) {
  if (!token_is(parser->at, mark)) return false;
  parser->at = parser->at->next;
  return true;
}

static unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return (unsigned)(c - '0');
  if (c >= 'a' && c <= 'f') return (unsigned)(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return (unsigned)(c - 'A') + 10;
  return 16;
}

/* A preprocessor computes in 64 bits, signed unless a suffix or the size says otherwise. Octal and binary forms and
 * digit separators occur in system headers, so they are read as well. */
static struct value read_number(const struct token *token) {
  struct value value = {0};
  const char *at = token->text, *end = token->text + token->bytes;
  unsigned base = 10;
  if (token->bytes > 1 && *at == '0') {
    base = at[1] == 'x' || at[1] == 'X' ? 16 : at[1] == 'b' || at[1] == 'B' ? 2 : 8;
    at += base == 8 ? 1 : 2;
  }
  for (; at < end && (*at == '\'' || digit_of(*at) < base); at++)
    if (*at != '\'') value.bits = value.bits * base + digit_of(*at);
  for (; at < end; at++)
    value.is_unsigned |= *at == 'u' || *at == 'U';
  value.is_unsigned |= value.bits >> 63 != 0;
  return value;
}

/* 'a', '\n', '\0', '\x1f'. */
static struct value read_character(const struct token *token) {
  static const char escapes[] = "a\ab\bf\fn\nr\rt\tv\v";
  if (token->bytes < 3) return truth(0);
  const char *text = token->text + 1;
  if (*text != '\\') return (struct value){(uint64_t)(int64_t)*text, 0};
  const char *found = strchr(escapes, text[1]);
  if (found && (found - escapes) % 2 == 0) return (struct value){(uint64_t)found[1], 0};
  uint64_t bits = 0;
  const unsigned base = text[1] == 'x' ? 16 : 8;
  if (base == 8 && digit_of(text[1]) > 7) return (struct value){(uint64_t)text[1], 0};
  for (size_t i = base == 16 ? 2 : 1; i + 2 < token->bytes && digit_of(text[i]) < base; i++)
    bits = bits * base + digit_of(text[i]);
  return (struct value){bits, 0};
}

/* A name that is left after expansion is 0, as the standard says, and `true` is 1. Whatever is no expression sets
 * `failed`, and the condition then counts as false; the compiler, which reads the same text, reports the fault. */
static struct value parse_primary(struct parser *parser) {
  const struct token *token = parser->at;
  if (!token || parser->failed) {
    parser->failed = 1;
    return truth(0);
  }
  parser->at = token->next;
  if (token->kind == TOKEN_NUMBER) return read_number(token);
  if (token->kind == TOKEN_CHARACTER) return read_character(token);
  if (token->kind == TOKEN_NAME) return truth(token_is(token, "true"));
  if (token_is(token, "(")) {
    const struct value value = parse_ternary(parser);
    if (!take(parser, ")")) parser->failed = 1;
    return value;
  }
  parser->failed = 1;
  return truth(0);
}

/* The depth is bounded because the text may be a stranger's, and each parenthesis or sign is a call. */
static struct value parse_unary(struct parser *parser) {
  if (parser->depth >= DEPTH_LIMIT) parser->failed = 1;
  if (parser->failed) return truth(0);
  parser->depth++;
  struct value value;
  if (take(parser, "!") || take(parser, "not")) {
    value = truth(!parse_unary(parser).bits);
  } else if (take(parser, "-")) {
    value = parse_unary(parser);
    value.bits = 0 - value.bits;
  } else if (take(parser, "~") || take(parser, "compl")) {
    value = parse_unary(parser);
    value.bits = ~value.bits;
  } else if (take(parser, "+")) {
    value = parse_unary(parser);
  } else {
    value = parse_primary(parser);
  }
  parser->depth--;
  return value;
}

enum binary { MUL, DIV, MOD, ADD, SUB, SHL, SHR, LT, GT, LE, GE, EQ, NE, AND, XOR, OR, LAND, LOR };

static const struct {
  const char *mark, *word;
  int level; /* binds more strongly the higher it is */
} binaries[] = {
    [MUL] = {"*", "", 10},      [DIV] = {"/", "", 10},      [MOD] = {"%", "", 10},   [ADD] = {"+", "", 9},
    [SUB] = {"-", "", 9},       [SHL] = {"<<", "", 8},      [SHR] = {">>", "", 8},   [LT] = {"<", "", 7},
    [GT] = {">", "", 7},        [LE] = {"<=", "", 7},       [GE] = {">=", "", 7},    [EQ] = {"==", "", 6},
    [NE] = {"!=", "not_eq", 6}, [AND] = {"&", "bitand", 5}, [XOR] = {"^", "xor", 4}, [OR] = {"|", "bitor", 3},
    [LAND] = {"&&", "and", 2},  [LOR] = {"||", "or", 1},
};

/* A division by zero gives 0 without a complaint: the compiler will report it at the same place, if that place is
 * compiled at all. */
static struct value divide(struct value a, struct value b, bool is_unsigned, bool remainder) {
  struct value value = {0, is_unsigned};
  if (!b.bits) return value;
  if (is_unsigned) {
    value.bits = remainder ? a.bits % b.bits : a.bits / b.bits;
  } else if (b.bits == UINT64_MAX) { /* -1: the one quotient that may overflow */
    value.bits = remainder ? 0 : 0 - a.bits;
  } else {
    value.bits = (uint64_t)(remainder ? (int64_t)a.bits % (int64_t)b.bits : (int64_t)a.bits / (int64_t)b.bits);
  }
  return value;
}

static bool less(struct value a, struct value b, bool is_unsigned) {
  return is_unsigned ? a.bits < b.bits : (int64_t)a.bits < (int64_t)b.bits;
}

static struct value shift(struct value a, uint64_t by, bool right) {
  const uint64_t sign = !a.is_unsigned && a.bits >> 63 ? UINT64_MAX : 0;
  if (by > 63) return (struct value){right ? sign : 0, a.is_unsigned};
  if (!right) return (struct value){a.bits << by, a.is_unsigned};
  return (struct value){by ? a.bits >> by | (sign << (64 - by)) : a.bits, a.is_unsigned};
}

/* Unsigned arithmetic throughout, since overflow of signed numbers is undefined in C and a header may well provoke
 * it. */
static struct value apply(enum binary binary, struct value a, struct value b) {
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;
  switch (binary) {
  case MUL:
    return (struct value){a.bits * b.bits, is_unsigned};
  case ADD:
    return (struct value){a.bits + b.bits, is_unsigned};
  case SUB:
    return (struct value){a.bits - b.bits, is_unsigned};
  case AND:
    return (struct value){a.bits & b.bits, is_unsigned};
  case XOR:
    return (struct value){a.bits ^ b.bits, is_unsigned};
  case OR:
    return (struct value){a.bits | b.bits, is_unsigned};
  case DIV:
    return divide(a, b, is_unsigned, 0);
  case MOD:
    return divide(a, b, is_unsigned, 1);
  case SHL:
    return shift(a, b.bits, 0);
  case SHR:
    return shift(a, b.bits, 1);
  case LT:
    return truth(less(a, b, is_unsigned));
  case GT:
    return truth(less(b, a, is_unsigned));
  case LE:
    return truth(!less(b, a, is_unsigned));
  case GE:
    return truth(!less(a, b, is_unsigned));
  case EQ:
    return truth(a.bits == b.bits);
  case NE:
    return truth(a.bits != b.bits);
  case LAND:
    return truth(a.bits && b.bits);
  case LOR:
    return truth(a.bits || b.bits);
  }
  return truth(0);
}

static bool find_binary(const struct token *token, enum binary *binary) {
  for (size_t i = 0; token && i < sizeof binaries / sizeof *binaries; i++) {
    if (!token_is(token, binaries[i].mark) && !(*binaries[i].word && token_is(token, binaries[i].word))) continue;
    *binary = (enum binary)i;
    return true;
  }
  return false;
}

static struct value parse_binary(struct parser *parser, int level) {
  struct value left = parse_unary(parser);
  for (enum binary binary; !parser->failed && find_binary(parser->at, &binary) && binaries[binary].level >= level;) {
    parser->at = parser->at->next;
    left = apply(binary, left, parse_binary(parser, binaries[binary].level + 1));
  }
  return left;
}

static struct value parse_ternary(struct parser *parser) {
  const struct value condition = parse_binary(parser, 1);
  if (!take(parser, "?")) return condition;
  const struct value yes = parse_ternary(parser);
  if (!take(parser, ":")) parser->failed = 1;
  const struct value no = parser->failed ? truth(0) : parse_ternary(parser);
  return condition.bits ? yes : no;
}

bool condition_holds(struct macro_expansion *expansion, const char *args, size_t bytes) {
  struct token *tokens = macro_tokens(expansion->table->arena, args, bytes);
  struct parser parser = {.at = macro_expand(expansion, tokens)};
  const struct value value = parse_ternary(&parser);
  return !parser.failed && !parser.at && value.bits != 0;
}
