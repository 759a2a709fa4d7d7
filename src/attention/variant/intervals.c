/* Derives row intervals from a mask. A comparison is solved for k: what stands around k is brought to the other side,
 * one operation after the other. `and` intersects two unions of intervals, `or` joins them, `not` complements one.
 * Bounds are computed in 64 bits, because a window that stands for "everything" is the greatest integer, and cut to 32
 * at the end.
 *
 * Threads: nothing is shared. */
#include "attention/variant/intervals.h"

#include <string.h>

/* Unions grow while they are intersected; what is larger has more than four intervals in the end. */
#define PIECES_MAX 8
/* Masks whose parts are used again and again would take exponential time. */
#define STEPS_MAX 2000

struct keys {
  struct variant_interval pieces[PIECES_MAX];
  size_t count; /* 0: no key */
};

struct solver {
  struct variant_tree *tree;
  size_t steps;
};

static bool solve_truth(struct solver *solver, variant_node_index node, bool wanted, struct keys *out);

static struct variant_node node_at(const struct solver *solver, variant_node_index index) {
  return solver->tree->nodes[index];
}

static bool has_key(const struct solver *solver, variant_node_index index) {
  return node_at(solver, index).uses & USES_K;
}

/* -- Unions of intervals ------------------------------------------------------------------------------------------ */

static struct variant_interval everything(struct solver *solver) {
  const struct variant_interval all = {variant_integer(solver->tree, INT32_MIN),
                                       variant_integer(solver->tree, INT32_MAX)};
  return all;
}

/* Every key where the condition holds, which does not depend on k, and none where it does not. */
static void keys_if(struct solver *solver, variant_node_index condition, struct keys *out) {
  struct variant_tree *const tree = solver->tree;
  out->count = 0;
  if (variant_is_truth(tree, condition, false)) return;
  out->pieces[out->count++] = (struct variant_interval){
      variant_where(tree, condition, variant_integer(tree, INT32_MIN), variant_integer(tree, INT32_MAX)),
      variant_integer(tree, INT32_MAX)};
}

static bool is_empty(const struct solver *solver, const struct variant_interval *piece) {
  return piece->lo == piece->hi || variant_is_integer(solver->tree, piece->lo, INT32_MAX) ||
         variant_is_integer(solver->tree, piece->hi, INT32_MIN);
}

static bool keys_add(struct solver *solver, struct keys *keys, struct variant_interval piece) {
  if (is_empty(solver, &piece)) return true;
  for (size_t i = 0; i < keys->count; i++)
    if (!memcmp(&keys->pieces[i], &piece, sizeof piece)) return true;
  if (keys->count == PIECES_MAX) return false;
  keys->pieces[keys->count++] = piece;
  return true;
}

static bool keys_join(struct solver *solver, struct keys *out, const struct keys *other) {
  for (size_t i = 0; i < other->count; i++)
    if (!keys_add(solver, out, other->pieces[i])) return false;
  return true;
}

static bool keys_intersect(struct solver *solver, struct keys *out, const struct keys *other) {
  struct variant_tree *const tree = solver->tree;
  const struct keys before = *out;
  out->count = 0;
  for (size_t i = 0; i < before.count; i++) {
    for (size_t j = 0; j < other->count; j++) {
      const struct variant_interval piece = {
          variant_binary(tree, VARIANT_integer_maximum, before.pieces[i].lo, other->pieces[j].lo),
          variant_binary(tree, VARIANT_integer_minimum, before.pieces[i].hi, other->pieces[j].hi)};
      if (!keys_add(solver, out, piece)) return false;
    }
  }
  return true;
}

/* -- Comparisons -------------------------------------------------------------------------------------------------- */

static variant_node_index wide(struct solver *solver, variant_node_index integer) {
  return variant_unary(solver->tree, VARIANT_wide_from_integer, integer);
}

static variant_node_index wide_of(struct solver *solver, int32_t value) {
  return wide(solver, variant_integer(solver->tree, value));
}

static variant_node_index wide_sum(struct solver *solver, variant_node_index a, variant_node_index b) {
  return variant_binary(solver->tree, VARIANT_wide_add, a, b);
}

static variant_node_index wide_difference(struct solver *solver, variant_node_index a, variant_node_index b) {
  return variant_binary(solver->tree, VARIANT_wide_subtract, a, b);
}

/* The keys for which x < bound, or, where `below` is false, x >= bound. The bound is wide and free of k. */
static bool solve(struct solver *solver, variant_node_index x, variant_node_index bound, bool below, struct keys *out);

/* x < bound is -x >= 1 - bound: the comparison of the negated side. */
static bool solve_negated(struct solver *solver, variant_node_index x, variant_node_index bound, bool below,
                          struct keys *out) {
  return solve(solver, x, wide_difference(solver, wide_of(solver, 1), bound), !below, out);
}

static bool solve_sum(struct solver *solver, const struct variant_node *x, variant_node_index bound, bool below,
                      struct keys *out) {
  const variant_node_index a = x->operands[0], b = x->operands[1];
  if (has_key(solver, a) && has_key(solver, b)) return false;
  if (x->operation == VARIANT_integer_add) {
    const bool key_left = has_key(solver, a);
    return solve(solver, key_left ? a : b, wide_difference(solver, bound, wide(solver, key_left ? b : a)), below, out);
  }
  if (has_key(solver, a)) return solve(solver, a, wide_sum(solver, bound, wide(solver, b)), below, out);
  /* a - k < bound is k >= a - bound + 1. */
  return solve_negated(solver, b, wide_difference(solver, bound, wide(solver, a)), below, out);
}

/* floor(a / d) < bound is a < bound · d, for d of at least 1. */
static bool solve_quotient(struct solver *solver, const struct variant_node *x, variant_node_index bound, bool below,
                           struct keys *out) {
  struct variant_tree *const tree = solver->tree;
  variant_node_index divisor = x->operands[1];
  if (has_key(solver, divisor)) return false;
  if (x->operation == VARIANT_integer_shift_right) {
    const struct variant_node count = node_at(solver, divisor);
    if (count.operation != VARIANT_CONSTANT || count.payload > 30) return false;
    divisor = variant_integer(tree, INT32_C(1) << count.payload);
  } else {
    divisor = variant_binary(tree, VARIANT_integer_maximum, divisor, variant_integer(tree, 1));
  }
  return solve(solver, x->operands[0], variant_binary(tree, VARIANT_wide_multiply, bound, wide(solver, divisor)), below,
               out);
}

/* max(a, b) < bound where both are; max(a, b) >= bound where one is. min the other way round. */
static bool solve_extreme(struct solver *solver, const struct variant_node *x, variant_node_index bound, bool below,
                          struct keys *out) {
  struct keys other;
  const bool both = (x->operation == VARIANT_integer_maximum) == below;
  if (!solve(solver, x->operands[0], bound, below, out) || !solve(solver, x->operands[1], bound, below, &other))
    return false;
  return both ? keys_intersect(solver, out, &other) : keys_join(solver, out, &other);
}

/* abs(a) < bound where a < bound and -a < bound. */
static bool solve_absolute(struct solver *solver, variant_node_index a, variant_node_index bound, bool below,
                           struct keys *out) {
  struct keys other;
  const variant_node_index negated = wide_difference(solver, wide_of(solver, 1), bound);
  if (!solve(solver, a, bound, below, out) || !solve(solver, a, negated, !below, &other)) return false;
  return below ? keys_intersect(solver, out, &other) : keys_join(solver, out, &other);
}

/* Either branch of a condition that does not depend on k. */
static bool solve_where(struct solver *solver, const struct variant_node *x, variant_node_index bound, bool below,
                        struct keys *out) {
  struct variant_tree *const tree = solver->tree;
  struct keys other, condition;
  if (has_key(solver, x->operands[0])) return false;
  if (!solve(solver, x->operands[1], bound, below, out) || !solve(solver, x->operands[2], bound, below, &other))
    return false;
  keys_if(solver, x->operands[0], &condition);
  if (!keys_intersect(solver, out, &condition)) return false;
  keys_if(solver, variant_unary(tree, VARIANT_truth_not, x->operands[0]), &condition);
  return keys_intersect(solver, &other, &condition) && keys_join(solver, out, &other);
}

static bool solve_key(struct solver *solver, variant_node_index bound, bool below, struct keys *out) {
  const variant_node_index cut = variant_unary(solver->tree, VARIANT_integer_from_wide, bound);
  struct variant_interval piece = everything(solver);
  if (below)
    piece.hi = cut;
  else
    piece.lo = cut;
  out->count = 0;
  return keys_add(solver, out, piece);
}

static bool solve(struct solver *solver, variant_node_index x, variant_node_index bound, bool below, struct keys *out) {
  struct variant_tree *const tree = solver->tree;
  const struct variant_node node = node_at(solver, x);
  if (++solver->steps > STEPS_MAX || !variant_tree_is_whole(tree)) return false;
  if (!(node.uses & USES_K)) {
    variant_node_index condition = variant_binary(tree, VARIANT_wide_less, wide(solver, x), bound);
    if (!below) condition = variant_unary(tree, VARIANT_truth_not, condition);
    keys_if(solver, condition, out);
    return true;
  }
  switch (node.operation) {
  case VARIANT_INPUT:
    return solve_key(solver, bound, below, out);
  case VARIANT_integer_add:
  case VARIANT_integer_subtract:
    return solve_sum(solver, &node, bound, below, out);
  case VARIANT_integer_negate:
    return solve_negated(solver, node.operands[0], bound, below, out);
  case VARIANT_integer_divide:
  case VARIANT_integer_shift_right:
    return solve_quotient(solver, &node, bound, below, out);
  case VARIANT_integer_minimum:
  case VARIANT_integer_maximum:
    return solve_extreme(solver, &node, bound, below, out);
  case VARIANT_integer_absolute:
    return solve_absolute(solver, node.operands[0], bound, below, out);
  case VARIANT_integer_where:
    return solve_where(solver, &node, bound, below, out);
  default:
    return false;
  }
}

/* a < b, with k on one side, or on neither. a < k is k >= a + 1. */
static bool solve_less(struct solver *solver, variant_node_index a, variant_node_index b, bool wanted,
                       struct keys *out) {
  if (has_key(solver, a) && has_key(solver, b)) return false;
  if (!has_key(solver, b)) return solve(solver, a, wide(solver, b), wanted, out);
  return solve(solver, b, wide_sum(solver, wide(solver, a), wide_of(solver, 1)), !wanted, out);
}

/* a == b where neither is less. */
static bool solve_equal(struct solver *solver, variant_node_index a, variant_node_index b, bool wanted,
                        struct keys *out) {
  struct keys other;
  if (!solve_less(solver, a, b, !wanted, out) || !solve_less(solver, b, a, !wanted, &other)) return false;
  return wanted ? keys_intersect(solver, out, &other) : keys_join(solver, out, &other);
}

/* -- Conditions --------------------------------------------------------------------------------------------------- */

static bool solve_both(struct solver *solver, const struct variant_node *node, bool wanted, struct keys *out) {
  struct keys other;
  const bool intersect = (node->operation == VARIANT_truth_and) == wanted;
  if (!solve_truth(solver, node->operands[0], wanted, out) || !solve_truth(solver, node->operands[1], wanted, &other))
    return false;
  return intersect ? keys_intersect(solver, out, &other) : keys_join(solver, out, &other);
}

/* condition ? a : b is (condition and a) or (not condition and b). */
static bool solve_choice(struct solver *solver, const struct variant_node *node, bool wanted, struct keys *out) {
  struct keys a, b;
  const variant_node_index condition = node->operands[0];
  if (!solve_truth(solver, condition, true, out) || !solve_truth(solver, node->operands[1], wanted, &a) ||
      !keys_intersect(solver, out, &a))
    return false;
  if (!solve_truth(solver, condition, false, &a) || !solve_truth(solver, node->operands[2], wanted, &b) ||
      !keys_intersect(solver, &a, &b))
    return false;
  return keys_join(solver, out, &a);
}

/* The keys for which a condition is `wanted`. */
static bool solve_truth(struct solver *solver, variant_node_index index, bool wanted, struct keys *out) {
  const struct variant_node node = node_at(solver, index);
  if (++solver->steps > STEPS_MAX || !variant_tree_is_whole(solver->tree)) return false;
  if (!(node.uses & USES_K)) {
    keys_if(solver, wanted ? index : variant_unary(solver->tree, VARIANT_truth_not, index), out);
    return true;
  }
  switch (node.operation) {
  case VARIANT_truth_and:
  case VARIANT_truth_or:
    return solve_both(solver, &node, wanted, out);
  case VARIANT_truth_not:
    return solve_truth(solver, node.operands[0], !wanted, out);
  case VARIANT_truth_where:
    return solve_choice(solver, &node, wanted, out);
  case VARIANT_integer_less:
    return solve_less(solver, node.operands[0], node.operands[1], wanted, out);
  case VARIANT_integer_less_equal: /* a <= b is not b < a */
    return solve_less(solver, node.operands[1], node.operands[0], !wanted, out);
  case VARIANT_integer_equal:
  case VARIANT_integer_unequal:
    return solve_equal(solver, node.operands[0], node.operands[1], wanted == (node.operation == VARIANT_integer_equal),
                       out);
  default:
    return false;
  }
}

void variant_derive_intervals(struct variant_tree *tree, variant_node_index mask, struct variant_row_intervals *out) {
  struct solver solver = {.tree = tree};
  struct keys keys = {.count = 0};
  out->count = 0;
  const bool found = mask != VARIANT_NONE && solve_truth(&solver, mask, true, &keys) && variant_tree_is_whole(tree);
  if (tree->full) { /* too long to be worth it: the mask is judged */
    tree->full = false;
    return;
  }
  if (!found || keys.count > VARIANT_INTERVALS_MAX) return;
  if (!keys.count) keys.pieces[keys.count++] = (struct variant_interval){0, 0}; /* node 0 is 0: no key at all */
  out->count = keys.count;
  memcpy(out->pieces, keys.pieces, keys.count * sizeof *keys.pieces);
}
