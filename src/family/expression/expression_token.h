/* The words of an expression, one after the other. Two languages have them: the integer expressions of families, and
 * the score and mask functions of attention variants, which have fractions and more signs. */
#ifndef KJIT_FAMILY_EXPRESSION_TOKEN_H
#define KJIT_FAMILY_EXPRESSION_TOKEN_H

#include <stdbool.h>

#include "family/expression/expression.h"

enum token_kind { TOKEN_END, TOKEN_NUMBER, TOKEN_FRACTION, TOKEN_NAME, TOKEN_SIGN };

/* What differs between the languages. */
struct token_dialect {
  const char *const *signs; /* those of more characters first, so that "<=" is not read as "<" */
  size_t sign_count;
  size_t text_bytes_max;
  bool has_fractions; /* 0.5, 1e-3; and no labels behind a dot */
};

struct token {
  enum token_kind kind;
  const char *start; /* in the text */
  size_t bytes;
  int64_t number;  /* of TOKEN_NUMBER */
  double fraction; /* of TOKEN_FRACTION */
};

struct tokens {
  const struct token_dialect *dialect;
  const struct expression_source *source;
  const char *next;     /* behind the current word */
  struct token current; /* looked at, not taken */
  kjit_error *error;
};

/* The integer expressions of families. */
extern const struct token_dialect family_dialect;

/* Read the first word. KJIT_ERR_PARSE for what is no word of the language. */
kjit_status tokens_begin(struct tokens *tokens, const struct token_dialect *dialect,
                         const struct expression_source *source, kjit_error *error);

/* Go on to the next. */
kjit_status tokens_advance(struct tokens *tokens);

/* Is the current word this name or sign? */
bool expression_token_is(const struct token *token, const char *spelling);

/* KJIT_ERR_PARSE at the current word: "expected <expected>, found <it>". */
kjit_status tokens_unexpected(const struct tokens *tokens, const char *expected);

#endif
