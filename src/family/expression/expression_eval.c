/* Runs an expression's program on a stack of 64-bit integers. Each step that can fail is checked with the compiler's
 * overflow built-ins before its result is used; the error names the place of the operator and both numbers.
 *
 * Threads: a program is read only; everything that changes is on the caller's stack. */
#include <inttypes.h>
#include <stdbool.h>

#include "base/error.h"
#include "family/element.h"
#include "family/expression/expression.h"
#include "family/expression/expression_step.h"

/* What an error needs to name its place: the expression and the step at hand. */
struct machine {
  const struct expression *expression;
  const struct expression_step *step;
  kjit_error *error;
};

static kjit_status fail(const struct machine *machine, int64_t a, const char *sign, int64_t b, const char *why) {
  return expression_refuse(&machine->expression->source, machine->step->at, KJIT_ERR_INVALID_CONFIG, machine->error,
                           "%" PRId64 " %s %" PRId64 " %s", a, sign, b, why);
}

static kjit_status fail_one(const struct machine *machine, const char *name, int64_t a, const char *why) {
  return expression_refuse(&machine->expression->source, machine->step->at, KJIT_ERR_INVALID_CONFIG, machine->error,
                           "%s(%" PRId64 ") %s", name, a, why);
}

static const char too_large[] = "does not fit 64 bits";
static const char by_zero[] = "is a division by zero";

/* A limit that is not known is an error and no number. A rule such as `shared <= shared_per_block` would otherwise
 * hold or fail by accident where nobody has named a card. */
static kjit_status push(const struct machine *machine, const struct expression_values *values, int64_t *top) {
  const size_t index = (size_t)machine->step->operand;
  switch (machine->step->operation) {
  case STEP_NUMBER:
    *top = machine->step->operand;
    return KJIT_OK;
  case STEP_FIELD:
    *top = values->fields[index];
    return KJIT_OK;
  case STEP_DERIVED:
    *top = values->derived[index];
    return KJIT_OK;
  case STEP_PARAMETER:
    *top = values->parameters[index];
    return KJIT_OK;
  default:
    *top = values->limits ? values->limits[index] : -1;
    if (*top >= 0) return KJIT_OK;
    return expression_refuse(&machine->expression->source, machine->step->at, KJIT_ERR_INVALID_CONFIG, machine->error,
                             "%s is not known here", expression_limit_names[index]);
  }
}

static int64_t log2_of(int64_t value) {
  int64_t log = 0;
  while (value >>= 1)
    log++;
  return log;
}

/* Operations on one number. The last case is sizeof, whose operand the parser has seen to be a dtype; a field's value
 * may still be none. */
static kjit_status run_one(const struct machine *machine, int64_t *top) {
  const int64_t value = *top;
  switch (machine->step->operation) {
  case STEP_MINUS:
    if (value == INT64_MIN) return fail_one(machine, "-", value, too_large);
    *top = -value;
    return KJIT_OK;
  case STEP_NOT:
    *top = !value;
    return KJIT_OK;
  case STEP_COMPLEMENT:
    *top = ~value;
    return KJIT_OK;
  case STEP_TRUTH:
    *top = value != 0;
    return KJIT_OK;
  case STEP_ABS:
    if (value == INT64_MIN) return fail_one(machine, "abs", value, too_large);
    *top = value < 0 ? -value : value;
    return KJIT_OK;
  case STEP_IS_POW2:
    *top = value > 0 && (value & (value - 1)) == 0;
    return KJIT_OK;
  case STEP_LOG2:
    if (value < 1) return fail_one(machine, "log2", value, "is not defined: log2 takes numbers of at least 1");
    *top = log2_of(value);
    return KJIT_OK;
  default: {
    const struct element *const element = element_from_number(value);
    if (!element) return fail_one(machine, "sizeof", value, "is not defined: the number is no dtype");
    *top = element->bytes;
    return KJIT_OK;
  }
  }
}

static kjit_status divide(const struct machine *machine, int64_t a, int64_t b, int64_t *out) {
  const bool remainder = machine->step->operation == STEP_REMAINDER;
  if (!b) return fail(machine, a, remainder ? "%" : "/", b, by_zero);
  if (b == -1) { /* INT64_MIN / -1 does not fit, and its remainder traps on x86 */
    if (!remainder && a == INT64_MIN) return fail(machine, a, "/", b, too_large);
    *out = remainder ? 0 : -a;
    return KJIT_OK;
  }
  *out = remainder ? a % b : a / b;
  return KJIT_OK;
}

/* A shift to the left is a product, so bits that would be lost are an overflow as they are there. */
static kjit_status shift(const struct machine *machine, int64_t a, int64_t b, int64_t *out) {
  const bool left = machine->step->operation == STEP_LEFT;
  const char *const sign = left ? "<<" : ">>";
  if (b < 0 || b > 63) return fail(machine, a, sign, b, "is not defined: shifts are by 0 to 63");
  if (!left) { /* the sign is kept, whatever the compiler does with negative numbers */
    *out = a < 0 ? ~(~a >> b) : a >> b;
    return KJIT_OK;
  }
  if (b == 63 ? a != 0 && a != -1 : a > INT64_MAX >> b || a < -(INT64_MAX >> b) - 1)
    return fail(machine, a, sign, b, too_large);
  *out = (int64_t)((uint64_t)a << b);
  return KJIT_OK;
}

/* Rounds towards plus infinity. */
static kjit_status divide_up(const struct machine *machine, int64_t a, int64_t b, int64_t *out) {
  const bool round = machine->step->operation == STEP_ROUNDUP;
  const char *const name = round ? "rounded up to a multiple of" : "divided up by";
  if (b < 1) return fail(machine, a, name, b, "is not defined: the unit must be at least 1");
  const int64_t quotient = a / b + (a % b > 0);
  if (!round)
    *out = quotient;
  else if (__builtin_mul_overflow(quotient, b, out))
    return fail(machine, a, name, b, too_large);
  return KJIT_OK;
}

/* Overflow is an error with both numbers in it. A wrapped product could make a rule hold that a kernel relies on. */
static kjit_status calculate(const struct machine *machine, int64_t a, int64_t b, int64_t *out) {
  switch (machine->step->operation) {
  case STEP_MULTIPLY:
    return __builtin_mul_overflow(a, b, out) ? fail(machine, a, "*", b, too_large) : KJIT_OK;
  case STEP_ADD:
    return __builtin_add_overflow(a, b, out) ? fail(machine, a, "+", b, too_large) : KJIT_OK;
  case STEP_SUBTRACT:
    return __builtin_sub_overflow(a, b, out) ? fail(machine, a, "-", b, too_large) : KJIT_OK;
  case STEP_DIVIDE:
  case STEP_REMAINDER:
    return divide(machine, a, b, out);
  case STEP_LEFT:
  case STEP_RIGHT:
    return shift(machine, a, b, out);
  default:
    return divide_up(machine, a, b, out);
  }
}

/* Operations that cannot fail: on bits, comparisons, minimum and maximum. False: the operation is none of them. */
static bool compare(uint16_t operation, int64_t a, int64_t b, int64_t *out) {
  switch (operation) {
  case STEP_BIT_AND:
    *out = a & b;
    return true;
  case STEP_BIT_XOR:
    *out = a ^ b;
    return true;
  case STEP_BIT_OR:
    *out = a | b;
    return true;
  case STEP_EQUAL:
    *out = a == b;
    return true;
  case STEP_UNEQUAL:
    *out = a != b;
    return true;
  case STEP_LESS:
    *out = a < b;
    return true;
  case STEP_LESS_EQUAL:
    *out = a <= b;
    return true;
  case STEP_GREATER:
    *out = a > b;
    return true;
  case STEP_GREATER_EQUAL:
    *out = a >= b;
    return true;
  case STEP_MIN:
    *out = a < b ? a : b;
    return true;
  case STEP_MAX:
    *out = a > b ? a : b;
    return true;
  default:
    return false;
  }
}

/* The step to go on with; *depth is that of the stack. */
static size_t jump(const struct expression_step *step, size_t next, int64_t *stack, size_t *depth) {
  int64_t *const top = &stack[*depth ? *depth - 1 : 0];
  const bool truth = step->operation != STEP_JUMP && *top != 0;
  switch (step->operation) {
  case STEP_JUMP:
    return step->target;
  case STEP_AND:
    if (!truth) return step->target;
    break;
  case STEP_OR:
    if (truth) *top = 1;
    if (truth) return step->target;
    break;
  default:
    --*depth;
    return truth ? next : step->target;
  }
  --*depth;
  return next;
}

/* The parser has bounded the depth of the stack and the number of steps, and jumps only go forward, so this loop
 * ends and stays within `stack` whatever the family says. */
kjit_status expression_evaluate(const struct expression *expression, const struct expression_values *values,
                                int64_t *value, kjit_error *error) {
  int64_t stack[EXPRESSION_DEPTH_MAX] = {0};
  size_t depth = 0;
  struct machine machine = {.expression = expression, .error = error};
  kjit_status status = KJIT_OK;
  *value = 0;
  for (size_t at = 0; at < expression->step_count && status == KJIT_OK;) {
    machine.step = &expression->steps[at++];
    const uint16_t operation = machine.step->operation;
    if (operation >= STEP_AND) {
      at = jump(machine.step, at, stack, &depth);
    } else if (operation >= STEP_MULTIPLY) {
      depth--;
      int64_t *const left = &stack[depth - 1];
      if (!compare(operation, *left, stack[depth], left)) status = calculate(&machine, *left, stack[depth], left);
    } else if (operation >= STEP_MINUS) {
      status = run_one(&machine, &stack[depth - 1]);
    } else {
      status = push(&machine, values, &stack[depth++]);
    }
  }
  if (status == KJIT_OK) *value = stack[0];
  return status;
}
