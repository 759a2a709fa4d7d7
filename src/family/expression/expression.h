/* Integer expressions of a family: "BM % (16 * warps) == 0". Parsed once into a short program for a stack machine;
 * evaluating it allocates nothing, ends after at most EXPRESSION_STEPS_MAX steps, and has no undefined behaviour: what
 * does not fit 64 bits, a division by zero and a shift by 64 are errors with a sentence.
 *
 * Precedence, from the weakest: ?:   or ||   and &&   not   == != < <= > >=   |   ^   &   << >>   + -   * / %   - ! ~
 * Comparisons do not chain. Bit operators bind stronger than comparisons, as in Python. A division truncates, as in C.
 * The right side of and, or and ?: is evaluated only when it decides. */
#ifndef KJIT_FAMILY_EXPRESSION_H
#define KJIT_FAMILY_EXPRESSION_H

#include <stdbool.h>

#include <kjit/common.h>

#include "base/arena.h"

/* Longer than any rule that a person can check by reading; a program of that many steps runs in microseconds. */
#define EXPRESSION_TEXT_MAX  2000
#define EXPRESSION_STEPS_MAX 256
/* Values on the stack, and parentheses inside one another. */
#define EXPRESSION_DEPTH_MAX 32

/* What may be named besides fields and derived constants. */
enum {
  EXPRESSION_MAY_CALL = 1,  /* parameters of the call */
  EXPRESSION_MAY_PLACE = 2, /* every limit of the card */
  EXPRESSION_MAY_SMS = 4,   /* sm_count alone */
};

/* Numbers of the card, or of the architecture, by name. */
enum expression_limit { LIMIT_SM, LIMIT_ARCH_SPECIFIC, LIMIT_SM_COUNT, LIMIT_SHARED_PER_BLOCK, LIMIT_COUNT };
extern const char *const expression_limit_names[LIMIT_COUNT];

/* A value of an enum field, by name. */
struct expression_label {
  const char *name;
  uint32_t field;
  int32_t value;
};

/* The names that an expression may use; at most 64 of each of the first three. All borrowed. */
struct expression_scope {
  const char *const *fields;
  size_t field_count;
  const char *const *derived;
  size_t derived_count;
  const char *const *parameters; /* NULL in place of one that is no integer */
  size_t parameter_count;
  const struct expression_label *labels;
  size_t label_count;
  uint64_t dtype_fields; /* a bit for each field that holds a dtype: sizeof() takes it */
  unsigned may;          /* EXPRESSION_MAY_* */
};

/* An expression as written, and where. Borrowed. */
struct expression_source {
  const char *text;
  const char *what; /* "rule 3": for messages */
  const char *file; /* NULL: no file */
  uint32_t line, column;
};

struct expression_step {
  uint16_t operation;
  uint16_t at;     /* byte of the text, for messages */
  uint32_t target; /* step of a jump */
  int64_t operand;
};

struct expression {
  struct expression_source source;
  const struct expression_step *steps;
  size_t step_count;
  uint64_t fields, derived, parameters; /* a bit for each that is named */
  uint32_t limits;
};

/* What the names stand for. NULL where the expression names none of them. */
struct expression_values {
  const int32_t *fields;
  const int64_t *derived, *parameters;
  const int64_t *limits; /* LIMIT_COUNT; below 0: not known */
};

/* KJIT_ERR_PARSE: "<file>:<line>:<column>: <what>: …". The source's texts must outlive the expression; its steps are in
 * the arena. */
kjit_status expression_parse(struct expression *out, struct arena *arena, const struct expression_scope *scope,
                             const struct expression_source *source, kjit_error *error);

/* Thread-safe. KJIT_ERR_INVALID_CONFIG: what cannot be computed, with its numbers and place. */
kjit_status expression_evaluate(const struct expression *expression, const struct expression_values *values,
                                int64_t *value, kjit_error *error);

/* An error at byte `at` of an expression's text. */
kjit_status expression_refuse(const struct expression_source *source, size_t at, kjit_status status, kjit_error *error,
                              const char *format, ...) KJIT_PRINTF(5, 6);

/* Is it a word of the language, which no field may be called by? */
bool expression_is_reserved(const char *name);

#endif
