/* A scanner over the text of a config: blanks, punctuation, words and numbers, and the error that names a column. The
 * first fault stays and ends the reading. A scanner belongs to one thread. */
#include "family/scanner.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Enough of a word to recognise it by in a message. */
#define WORD_SHOWN 40

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t scan_word_length(const char *text) {
  size_t length = 0;
  while (is_word(text[length]))
    length++;
  return length;
}

bool scan_word(struct scanner *scanner, const char *word) {
  const size_t length = strlen(word);
  if (scan_word_length(scanner->at) != length || memcmp(scanner->at, word, length) != 0) return false;
  scanner->at += length;
  return true;
}

void scan_blanks(struct scanner *scanner) {
  while (*scanner->at == ' ' || *scanner->at == '\t')
    scanner->at++;
}

/* A word cut to a sensible length, one character, or the end. */
static void describe(const char *at, char *out, size_t capacity) {
  const size_t length = scan_word_length(at);
  if (*at == '\0')
    snprintf(out, capacity, "the end");
  else if (length > WORD_SHOWN)
    snprintf(out, capacity, "\"%.*s...\"", WORD_SHOWN, at);
  else if (length)
    snprintf(out, capacity, "\"%.*s\"", (int)length, at);
  else if (*at > ' ' && *at < 0x7F)
    snprintf(out, capacity, "\"%c\"", *at);
  else
    snprintf(out, capacity, "byte 0x%02X", (unsigned)(unsigned char)*at);
}

kjit_status scan_unexpected(const struct scanner *scanner, const char *expected) {
  char found[WORD_SHOWN + 8];
  describe(scanner->at, found, sizeof found);
  return error_set(scanner->error, KJIT_ERR_PARSE, "column %zu: expected %s, found %s",
                   (size_t)(scanner->at - scanner->start) + 1, expected, found);
}

kjit_status scan_character(struct scanner *scanner, char wanted) {
  const char expected[] = {'"', wanted, '"', '\0'};
  scan_blanks(scanner);
  if (*scanner->at != wanted) return scan_unexpected(scanner, expected);
  scanner->at++;
  return KJIT_OK;
}

kjit_status scan_end(struct scanner *scanner) {
  scan_blanks(scanner);
  return *scanner->at ? scan_unexpected(scanner, "the end of the text") : KJIT_OK;
}

static kjit_status read_number(struct scanner *scanner, bool minus, const char *expected, int32_t *value) {
  const char *at = scanner->at + minus;
  int64_t number = 0;
  if (!is_digit(*at)) return scan_unexpected(scanner, expected);
  for (; is_digit(*at); at++) {
    number = 10 * number + (*at - '0');
    if (number > (int64_t)INT32_MAX + minus) return scan_unexpected(scanner, "a number that fits 32 bits");
  }
  *value = (int32_t)(minus ? -number : number);
  scanner->at = at;
  return KJIT_OK;
}

kjit_status scan_digits(struct scanner *scanner, const char *expected, int32_t *value) {
  return read_number(scanner, 0, expected, value);
}

kjit_status scan_integer(struct scanner *scanner, const char *expected, int32_t *value) {
  const struct scanner before = *scanner;
  const kjit_status status = read_number(scanner, *scanner->at == '-', expected, value);
  return status == KJIT_OK && is_word(*scanner->at) ? scan_unexpected(&before, expected) : status;
}
