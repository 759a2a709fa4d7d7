/* The operations of the stack machine: shared by the parser that emits them and the loop that runs them. */
#ifndef KJIT_FAMILY_EXPRESSION_STEP_H
#define KJIT_FAMILY_EXPRESSION_STEP_H

enum expression_operation {
  /* Push a value: the operand itself, or what it is the index of. */
  STEP_NUMBER,
  STEP_FIELD,
  STEP_DERIVED,
  STEP_PARAMETER,
  STEP_LIMIT,
  /* One value to one. */
  STEP_MINUS,
  STEP_NOT,
  STEP_COMPLEMENT,
  STEP_TRUTH, /* 0 or 1 */
  STEP_ABS,
  STEP_IS_POW2,
  STEP_LOG2,
  STEP_SIZEOF,
  /* Two values to one. */
  STEP_MULTIPLY,
  STEP_DIVIDE,
  STEP_REMAINDER,
  STEP_ADD,
  STEP_SUBTRACT,
  STEP_LEFT,
  STEP_RIGHT,
  STEP_BIT_AND,
  STEP_BIT_XOR,
  STEP_BIT_OR,
  STEP_EQUAL,
  STEP_UNEQUAL,
  STEP_LESS,
  STEP_LESS_EQUAL,
  STEP_GREATER,
  STEP_GREATER_EQUAL,
  STEP_MIN,
  STEP_MAX,
  STEP_DIVUP,
  STEP_ROUNDUP,
  /* Jumps. */
  STEP_AND,    /* top is 0: leave it and jump; else pop */
  STEP_OR,     /* top is not 0: make it 1 and jump; else pop */
  STEP_BRANCH, /* pop; jump when it was 0 */
  STEP_JUMP,
};

#endif
