/* The words of an expression, one after the other. */
#ifndef KJIT_FAMILY_EXPRESSION_TOKEN_H
#define KJIT_FAMILY_EXPRESSION_TOKEN_H

#include <stdbool.h>

#include "family/expression.h"

enum token_kind { TOKEN_END, TOKEN_NUMBER, TOKEN_NAME, TOKEN_SIGN };

struct token {
  enum token_kind kind;
  const char *start; /* in the text */
  size_t bytes;
  int64_t number; /* of TOKEN_NUMBER */
};

struct tokens {
  const struct expression_source *source;
  const char *next;     /* behind the current word */
  struct token current; /* looked at, not taken */
  kjit_error *error;
};

/* Read the first word. KJIT_ERR_PARSE for what is no word of the language. */
kjit_status tokens_begin(struct tokens *tokens, const struct expression_source *source, kjit_error *error);

/* Go on to the next. */
kjit_status tokens_advance(struct tokens *tokens);

/* Is the current word this name or sign? */
bool expression_token_is(const struct token *token, const char *spelling);

/* KJIT_ERR_PARSE at the current word: "expected <expected>, found <it>". */
kjit_status tokens_unexpected(const struct tokens *tokens, const char *expected);

#endif
