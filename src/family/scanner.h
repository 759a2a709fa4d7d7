/* Reading one line of text token by token, with errors that say where. For the short form and other small grammars. */
#ifndef KJIT_FAMILY_SCANNER_H
#define KJIT_FAMILY_SCANNER_H

#include <stdbool.h>

#include <kjit/common.h>

struct scanner {
  const char *start; /* of the text, NUL-terminated */
  const char *at;    /* what is read next */
  kjit_error *error; /* may be NULL */
};

/* Letters, digits and underscores from `text` on. */
size_t scan_word_length(const char *text);

/* Skip exactly this word. False, and nothing is skipped, when another one or none stands here. */
bool scan_word(struct scanner *scanner, const char *word);

void scan_blanks(struct scanner *scanner); /* spaces and tabs */

/* KJIT_ERR_PARSE: "column 12: expected <expected>, found <what stands here>". Columns count bytes, from 1. */
kjit_status scan_unexpected(const struct scanner *scanner, const char *expected);

/* Skip blanks, then this character. */
kjit_status scan_character(struct scanner *scanner, char wanted);

/* Skip blanks, then the end of the text. */
kjit_status scan_end(struct scanner *scanner);

/* Decimal digits that fit int32_t, whatever follows them. */
kjit_status scan_digits(struct scanner *scanner, const char *expected, int32_t *value);

/* As scan_digits(), with an optional minus in front, and no letter or underscore behind. */
kjit_status scan_integer(struct scanner *scanner, const char *expected, int32_t *value);

#endif
