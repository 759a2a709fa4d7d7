/* Family files at random: fields of every kind, rules, derived constants, a canonical form and a cross product. The
 * same seed gives the same file everywhere. */
#ifndef KJIT_TESTS_UNIT_FAMILY_RANDOM_FAMILY_H
#define KJIT_TESTS_UNIT_FAMILY_RANDOM_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

struct random_family {
  uint64_t state;
  int fields, derived;
};

/* xorshift64*. */
static inline uint32_t random_family_below(struct random_family *r, uint32_t bound) {
  r->state ^= r->state >> 12;
  r->state ^= r->state << 25;
  r->state ^= r->state >> 27;
  return (uint32_t)((r->state * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % bound;
}

static inline void random_family_field(struct random_family *r, int index, struct text *out) {
  text_appendf(out, "  f%d: {kind: ", index);
  switch (random_family_below(r, 5)) {
  case 0:
    text_append(out, "bool, default: true}\n");
    break;
  case 1:
    text_append(out, "dtype, values: [fp16, bf16, int8], default: bf16}\n");
    break;
  case 2:
    text_append(out, "enum, values: [none, one, two, three], default: two}\n");
    break;
  case 3: {
    const int least = (int)random_family_below(r, 7) - 3;
    text_appendf(out, "int, range: [%d, %d], step: 2, default: %d}\n", least, least + 6, least + 2);
    break;
  }
  default:
    text_append(out, "int, values: [5, -7, 64, 0], default: 64}\n");
  }
}

/* An expression over the fields and the derived constants so far; it may well divide by zero. */
static inline void random_family_expression(struct random_family *r, int depth, struct text *out) {
  static const char *const signs[] = {"+", "-", "*", "/", "%", "<", "==", "!=", ">=", "and", "or", "&", "|", "<<"};
  if (depth == 0 || random_family_below(r, 4) == 0) {
    const uint32_t what = random_family_below(r, 6);
    if (what == 0)
      text_appendf(out, "%u", random_family_below(r, 70));
    else if (what == 1 && r->derived)
      text_appendf(out, "d%u", random_family_below(r, (uint32_t)r->derived));
    else
      text_appendf(out, "f%u", random_family_below(r, (uint32_t)r->fields));
    return;
  }
  const bool negated = random_family_below(r, 8) == 0;
  text_append(out, negated ? "(not (" : "(");
  random_family_expression(r, depth - 1, out);
  text_appendf(out, " %s ", signs[random_family_below(r, sizeof signs / sizeof *signs)]);
  random_family_expression(r, depth - 1, out);
  text_append(out, negated ? "))" : ")");
}

static inline void random_family_rules(struct random_family *r, struct text *out) {
  const uint32_t rules = random_family_below(r, 4);
  if (rules) text_append(out, "rules:\n");
  for (uint32_t i = 0; i < rules; i++) {
    text_append(out, "  - {because: so it is, require: \"");
    random_family_expression(r, 2, out);
    text_append(out, "\"}\n");
  }
}

static inline void random_family_canonical(struct random_family *r, struct text *out) {
  const int from = (int)random_family_below(r, (uint32_t)r->fields);
  text_append(out, "means_nothing_when:\n");
  for (int i = from; i < r->fields; i++) {
    text_appendf(out, "  f%d: \"", i);
    random_family_expression(r, 2, out);
    text_append(out, "\"\n");
  }
}

static inline void random_family_sets(struct random_family *r, struct text *out) {
  text_append(out, "sets:\n  product:\n    cross: {f0: all");
  if (r->fields > 1) text_append(out, ", f1: all");
  if (r->fields > 2) text_append(out, ", f2: all");
  text_append(out, "}\n    where: \"");
  random_family_expression(r, 2, out);
  text_append(out, "\"\n");
}

static inline void random_family_write(struct random_family *r, uint64_t seed, struct text *out) {
  *r = (struct random_family){.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
  r->fields = 1 + (int)random_family_below(r, 6);
  text_append(out, "family: random\nsource: random.cu\nentry: k\nfields:\n");
  for (int i = 0; i < r->fields; i++)
    random_family_field(r, i, out);
  const int derived = (int)random_family_below(r, 4);
  if (derived) text_append(out, "derived:\n");
  for (int i = 0; i < derived; i++) {
    text_appendf(out, "  d%d: \"", i);
    random_family_expression(r, 2, out);
    text_append(out, "\"\n");
    r->derived = i + 1;
  }
  random_family_rules(r, out);
  if (random_family_below(r, 2)) random_family_canonical(r, out);
  if (random_family_below(r, 3) == 0) random_family_sets(r, out);
}

#endif
