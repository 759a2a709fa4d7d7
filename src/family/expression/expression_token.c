/* Splits an expression into numbers, names (with a label behind a dot: "epilogue.bias") and signs.
 *
 * Threads: nothing is shared. */
#include "family/expression/expression_token.h"

#include <string.h>

#include "base/error.h"

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

static const char *const family_signs[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%",
                                           "(",  ")",  "<",  ">",  "!",  "~",  "&",  "|",  "^", "?", ":", ","};

const struct token_dialect family_dialect = {family_signs, sizeof family_signs / sizeof *family_signs,
                                             EXPRESSION_TEXT_MAX, false};

static size_t offset_of(const struct tokens *tokens, const char *at) {
  return (size_t)(at - tokens->source->text);
}

static bool is_word(char letter) {
  return letter && strchr(LETTERS DIGITS, letter);
}

static int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return 16;
}

/* Digits, a point, an exponent. Every digit behind the 18th counts as 0: a float keeps nine. The C library's strtod()
 * would ask the program's locale for the point. */
static kjit_status read_fraction(struct tokens *tokens, const char *start) {
  int64_t digits = 0, exponent = 0, written = 0;
  bool point = false, negative = false;
  const char *at = start;
  for (; strchr(DIGITS ".", *at) && *at; at++) {
    if (*at == '.' && point) break;
    if (*at == '.') {
      point = true;
    } else if (digits < INT64_C(100000000000000000)) {
      digits = 10 * digits + (*at - '0');
      exponent -= point;
    } else {
      exponent += !point;
    }
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    negative = *at == '-';
    at += *at == '-' || *at == '+';
    if (!*at || !strchr(DIGITS, *at))
      return expression_refuse(tokens->source, offset_of(tokens, at), KJIT_ERR_PARSE, tokens->error,
                               "an exponent has digits: 1e-3");
    for (; *at && strchr(DIGITS, *at); at++)
      if (written < 100000) written = 10 * written + (*at - '0');
  }
  if (is_word(*at) || *at == '.')
    return expression_refuse(tokens->source, offset_of(tokens, at), KJIT_ERR_PARSE, tokens->error,
                             "a number ends before a letter or a second point");
  exponent += negative ? -written : written;
  const uint64_t magnitude = (uint64_t)(exponent < 0 ? -exponent : exponent);
  long double value = (long double)digits, power = 10.0L;
  for (int bit = 0; bit < 21 && value != 0; bit++) { /* an exponent is below 2^21 */
    if (magnitude >> bit & 1) value = exponent < 0 ? value / power : value * power;
    power *= power;
  }
  tokens->current = (struct token){TOKEN_FRACTION, start, (size_t)(at - start), 0, (double)value};
  tokens->next = at;
  return KJIT_OK;
}

/* A fraction begins with a point and a digit, or has a point or an exponent behind its digits. Families compute with
 * integers alone, where "1.5" is refused as a number, and a label may follow a point. */
static bool begins_fraction(const struct tokens *tokens, const char *start) {
  if (!tokens->dialect->has_fractions) return false;
  const char *const behind = start + strspn(start, DIGITS);
  if (start[0] == '.') return start[1] && strchr(DIGITS, start[1]);
  return behind > start && (*behind == '.' || *behind == 'e' || *behind == 'E');
}

/* A number that runs into a letter is refused instead of read as two words, since "4x" is a slip for "4 * x" or for a
 * name. */
static kjit_status read_number(struct tokens *tokens, const char *start) {
  const bool hex = start[0] == '0' && (start[1] == 'x' || start[1] == 'X');
  const int base = hex ? 16 : 10;
  const char *at = start + (hex ? 2 : 0), *const first = at;
  int64_t number = 0;
  for (; digit_of(*at) < base; at++) {
    if (__builtin_mul_overflow(number, base, &number) || __builtin_add_overflow(number, digit_of(*at), &number))
      return expression_refuse(tokens->source, offset_of(tokens, start), KJIT_ERR_PARSE, tokens->error,
                               "the number does not fit 64 bits");
  }
  if (at == first || is_word(*at) || *at == '.')
    return expression_refuse(tokens->source, offset_of(tokens, at), KJIT_ERR_PARSE, tokens->error,
                             "numbers are whole, decimal or behind 0x, and end before a letter");
  tokens->current = (struct token){TOKEN_NUMBER, start, (size_t)(at - start), number, 0};
  tokens->next = at;
  return KJIT_OK;
}

/* A name takes a label with it, "epilogue.bias", where the dialect has no fractions, whose point would be ambiguous. */
static void read_name(struct tokens *tokens, const char *start) {
  size_t bytes = strspn(start, LETTERS DIGITS);
  if (!tokens->dialect->has_fractions && start[bytes] == '.' && start[bytes + 1] && strchr(LETTERS, start[bytes + 1]))
    bytes += 1 + strspn(start + bytes + 1, LETTERS DIGITS);
  tokens->current = (struct token){TOKEN_NAME, start, bytes, 0, 0};
  tokens->next = start + bytes;
}

/* The list has longer signs before those that they begin with, so that "<=" is not read as "<" and "=". */
static kjit_status read_sign(struct tokens *tokens, const char *start) {
  for (size_t i = 0; i < tokens->dialect->sign_count; i++) {
    const size_t bytes = strlen(tokens->dialect->signs[i]);
    if (strncmp(start, tokens->dialect->signs[i], bytes) != 0) continue;
    tokens->current = (struct token){TOKEN_SIGN, start, bytes, 0, 0};
    tokens->next = start + bytes;
    return KJIT_OK;
  }
  if (*start == '=')
    return expression_refuse(tokens->source, offset_of(tokens, start), KJIT_ERR_PARSE, tokens->error,
                             "nothing is assigned here: equality is written ==");
  return expression_refuse(tokens->source, offset_of(tokens, start), KJIT_ERR_PARSE, tokens->error,
                           *start > ' ' && *start < 0x7F ? "'%c' means nothing in an expression"
                                                         : "byte 0x%02X means nothing in an expression",
                           (unsigned)(unsigned char)*start);
}

kjit_status tokens_advance(struct tokens *tokens) {
  const char *const start = tokens->next + strspn(tokens->next, " \t\r\n");
  if (!*start) {
    tokens->current = (struct token){TOKEN_END, start, 0, 0, 0};
    tokens->next = start;
    return KJIT_OK;
  }
  if (begins_fraction(tokens, start)) return read_fraction(tokens, start);
  if (strchr(DIGITS, *start)) return read_number(tokens, start);
  if (!strchr(LETTERS, *start)) return read_sign(tokens, start);
  read_name(tokens, start);
  return KJIT_OK;
}

kjit_status tokens_begin(struct tokens *tokens, const struct token_dialect *dialect,
                         const struct expression_source *source, kjit_error *error) {
  *tokens = (struct tokens){.dialect = dialect, .source = source, .next = source->text, .error = error};
  if (strnlen(source->text, dialect->text_bytes_max + 1) <= dialect->text_bytes_max) return tokens_advance(tokens);
  return expression_refuse(source, 0, KJIT_ERR_PARSE, error, "the expression is longer than %zu bytes",
                           dialect->text_bytes_max);
}

bool expression_token_is(const struct token *token, const char *spelling) {
  return (token->kind == TOKEN_NAME || token->kind == TOKEN_SIGN) && strlen(spelling) == token->bytes &&
         !memcmp(spelling, token->start, token->bytes);
}

kjit_status tokens_unexpected(const struct tokens *tokens, const char *expected) {
  const struct token *const token = &tokens->current;
  const size_t at = offset_of(tokens, token->start);
  if (token->kind == TOKEN_END)
    return expression_refuse(tokens->source, at, KJIT_ERR_PARSE, tokens->error, "expected %s, found the end", expected);
  return expression_refuse(tokens->source, at, KJIT_ERR_PARSE, tokens->error, "expected %s, found \"%.*s\"", expected,
                           token->bytes < 40 ? (int)token->bytes : 40, token->start);
}
