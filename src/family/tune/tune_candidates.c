/* Candidates for tuning: the rules' choice and its neighbours in one or two fields, or a set's configs.
 *
 * 1. Each field that the problem leaves open becomes an axis of values: hints, 0 and 1, or the nearest legal numbers.
 * 2. Every value of one axis, and of two, makes a candidate; each is judged by the family's rules.
 * 3. Sorted by distance; what is the same kernel as a nearer one, or beyond the bound, is refused with the reason.
 *
 * Threads: pure. */
#include "family/tune/tune_candidates.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "family/config.h"
#include "family/definition/definition.h"

/* The values that an INT or LOAD field is tried at: small counts, then edges of tiles. */
static const int32_t values_tried[] = {0,  1,  2,   3,   4,   5,   6,   7,   8,   16,  32,  48, 64,
                                       80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256};
enum { TRIED_COUNT = sizeof values_tried / sizeof *values_tried };

/* A field that the planner decides, and the values that it is tried at. */
struct axis {
  const kjit_field_info *field;
  int32_t values[TRIED_COUNT + 1]; /* without the present one */
  uint32_t steps[TRIED_COUNT + 1]; /* how many legal values each is away from the present one */
  size_t count;
  bool is_ordered; /* values have neighbours: only the nearest legal ones stay */
};

/* A config's values, to be copied as one. */
struct candidate_values {
  int32_t of[KJIT_FIELD_COUNT_MAX];
};

struct making {
  struct tune_candidates *out;
  const struct tune_start *start;
  struct candidate_values base;
  struct axis axes[KJIT_FIELD_COUNT_MAX];
  size_t axis_count;
};

static kjit_status judge(const struct making *making, const struct candidate_values *config, kjit_error *error) {
  const struct tune_start *start = making->start;
  struct candidate_values fitted = *config;
  const kjit_status status = start->fit(start->problem, fitted.of, error);
  return status == KJIT_OK ? config_check(start->family, fitted.of, start->place, error) : status;
}

static bool is_legal(const struct making *making, const struct candidate_values *config) {
  return judge(making, config, NULL) == KJIT_OK;
}

/* ---- Axes ---- */

static const struct field_hint *find_hint(const kjit_family *family, const kjit_field_info *field) {
  for (const struct field_hint *hint = family->hints; hint && hint->field; hint++) {
    if (!strcmp(hint->field, field->name)) return hint;
  }
  return NULL;
}

static void add_values(struct axis *axis, const int32_t *values, size_t count, int32_t present) {
  for (size_t i = 0; i < count; i++) {
    if (values[i] == present) continue;
    axis->steps[axis->count] = 1;
    axis->values[axis->count++] = values[i];
  }
}

static int compare_values(const void *left, const void *right) {
  const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  return (a > b) - (a < b);
}

/* A field of a user's family: all its values if they are few, else those of the general list that are legal. */
static void add_defined(struct axis *axis, const struct definition_field *field, int32_t present) {
  int32_t values[TRIED_COUNT];
  const size_t all = definition_value_count(field);
  size_t count = 0;
  for (size_t i = 0; i < all && all <= TRIED_COUNT; i++)
    values[count++] = definition_value_at(field, i);
  for (size_t i = 0; i < TRIED_COUNT && all > TRIED_COUNT; i++)
    if (definition_is_legal(field, values_tried[i])) values[count++] = values_tried[i];
  qsort(values, count, sizeof *values, compare_values);
  add_values(axis, values, count, present);
}

/* Make a field an axis, with the values that it is tried at: those of its hint, those that the family defines, 0 and 1
 * for a BOOL, or the general list. A field that the class decides is no axis. */
static void add_axis(struct making *making, const kjit_field_info *field) {
  static const int32_t booleans[] = {0, 1};
  int32_t given;
  const struct tune_start *start = making->start;
  if (start->subject->gives(start->subject, start->class, field, &given)) return;
  const struct field_hint *hint = find_hint(start->family, field);
  const struct family_definition *definition = start->family->definition;
  const int32_t present = field_get(field, making->base.of);
  struct axis *axis = &making->axes[making->axis_count++];
  *axis = (struct axis){.field = field};
  if (hint)
    add_values(axis, hint->values, hint->count, present);
  else if (definition)
    add_defined(axis, &definition->fields[field - start->family->table.fields], present);
  else if (field->kind == KJIT_FIELD_BOOL)
    add_values(axis, booleans, 2, present);
  else
    add_values(axis, values_tried, TRIED_COUNT, present);
  axis->is_ordered = !hint && (field->kind == KJIT_FIELD_INT || field->kind == KJIT_FIELD_LOAD);
}

/* True when any other single change makes this value legal. */
static bool is_legal_with_another(const struct making *making, const struct candidate_values *changed,
                                  const struct axis *but) {
  for (size_t i = 0; i < making->axis_count; i++) {
    const struct axis *axis = &making->axes[i];
    for (size_t j = 0; axis != but && j < axis->count; j++) {
      struct candidate_values config = *changed;
      field_put(axis->field, config.of, axis->values[j]);
      if (is_legal(making, &config)) return true;
    }
  }
  return false;
}

/* Drop the values that are never legal, and count the steps to the others. The values are in ascending order. */
static void keep_legal(const struct making *making, struct axis *axis) {
  size_t kept = 0;
  for (size_t i = 0; i < axis->count; i++) {
    struct candidate_values config = making->base;
    field_put(axis->field, config.of, axis->values[i]);
    if (is_legal(making, &config) || is_legal_with_another(making, &config, axis))
      axis->values[kept++] = axis->values[i];
  }
  axis->count = kept;
}

/* Keep the values that are nearest to the present one on either side. */
static void keep_near(const struct making *making, struct axis *axis) {
  const int32_t present = field_get(axis->field, making->base.of);
  size_t below = 0, kept = 0;
  while (below < axis->count && axis->values[below] < present)
    below++;
  for (size_t i = 0; i < axis->count; i++) {
    const size_t steps = i < below ? below - i : i - below + 1;
    if (steps > TUNE_STEPS) continue;
    axis->values[kept] = axis->values[i];
    axis->steps[kept++] = (uint32_t)steps;
  }
  axis->count = kept;
}

/* Step 1: the axes and the values that are left of each. */
static void make_axes(struct making *making) {
  const struct field_table *fields = &making->start->family->table;
  for (size_t i = 0; i < fields->count; i++)
    add_axis(making, &fields->fields[i]);
  /* All axes are made before any is narrowed, because a value of one may need a far value of another. */
  for (size_t i = 0; i < making->axis_count; i++) {
    if (making->axes[i].is_ordered) keep_legal(making, &making->axes[i]);
  }
  for (size_t i = 0; i < making->axis_count; i++) {
    if (making->axes[i].is_ordered) keep_near(making, &making->axes[i]);
  }
}

/* ---- Candidates ---- */

/* One more candidate, all zero. NULL when out of memory. */
static struct tune_candidate *grow(struct tune_candidates *out) {
  struct tune_candidate *items = mem_grow(out->mem, out->items, out->count, &out->capacity, sizeof *items);
  if (!items) return NULL;
  out->items = items;
  return &out->items[out->count++];
}

/* Step 2 for one config: add it to the list, in canonical form, or with the reason why it is refused. */
static kjit_status add(struct making *making, const struct candidate_values *config, uint32_t changes, uint32_t steps,
                       kjit_error *error) {
  kjit_error why;
  error_clear(&why);
  struct tune_candidate *candidate = grow(making->out);
  if (!candidate) return error_no_memory(error);
  candidate->number = (uint32_t)making->out->count;
  memcpy(candidate->values, config->of, sizeof candidate->values);
  candidate->changes = changes;
  candidate->steps = steps;
  if (judge(making, config, &why) == KJIT_OK)
    config_canonicalize(making->start->family, candidate->values);
  else
    snprintf(candidate->refused, sizeof candidate->refused, "%.255s", why.message);
  return KJIT_OK;
}

/* Add a candidate for every value of one axis, and for those of the axes behind it on top of that. */
static kjit_status add_changes(struct making *making, const struct candidate_values *from, size_t first,
                               uint32_t changes, uint32_t steps, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = first; i < making->axis_count; i++) {
    const struct axis *axis = &making->axes[i];
    for (size_t j = 0; j < axis->count && status == KJIT_OK; j++) {
      struct candidate_values config = *from;
      field_put(axis->field, config.of, axis->values[j]);
      status = add(making, &config, changes + 1, steps + axis->steps[j], error);
    }
  }
  return status;
}

/* Add a candidate for every two values of two axes. The second axis comes after the first, so that no pair is made
 * twice. */
static kjit_status add_pairs(struct making *making, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < making->axis_count; i++) {
    const struct axis *axis = &making->axes[i];
    for (size_t j = 0; j < axis->count && status == KJIT_OK; j++) {
      struct candidate_values config = making->base;
      field_put(axis->field, config.of, axis->values[j]);
      status = add_changes(making, &config, i + 1, 1, axis->steps[j], error);
    }
  }
  return status;
}

/* Order of candidates: the nearest first, then as they were made, so that no two are equal. */
static int compare_candidates(const void *left, const void *right) {
  const struct tune_candidate *a = left, *b = right;
  if (a->changes != b->changes) return a->changes < b->changes ? -1 : 1;
  if (a->steps != b->steps) return a->steps < b->steps ? -1 : 1;
  return a->number < b->number ? -1 : 1;
}

static bool is_known(const struct tune_candidates *out, size_t before) {
  for (size_t i = 0; i < before; i++) {
    if (!out->items[i].refused[0] &&
        field_table_compare(&out->family->table, out->items[i].values, out->items[before].values) == 0)
      return true;
  }
  return false;
}

/* Step 3, after sorting: refuse repetitions of a nearer candidate, and what is beyond the bound. */
static void refuse_the_rest(struct tune_candidates *out, size_t most) {
  size_t kept = 0;
  for (size_t i = 0; i < out->count; i++) {
    struct tune_candidate *candidate = &out->items[i];
    if (candidate->refused[0]) continue;
    if (is_known(out, i))
      snprintf(candidate->refused, sizeof candidate->refused, "the same kernel as a nearer candidate");
    else if (++kept > most)
      snprintf(candidate->refused, sizeof candidate->refused, "beyond the %zu nearest candidates", most);
  }
}

static kjit_status make_near(struct making *making, const char *set, kjit_error *error) {
  (void)set;
  make_axes(making);
  kjit_status status = add(making, &making->base, 0, 0, error);
  if (status == KJIT_OK) status = add_changes(making, &making->base, 0, 0, 0, error);
  if (status == KJIT_OK) status = add_pairs(making, error);
  if (status != KJIT_OK) return status;
  qsort(making->out->items, making->out->count, sizeof *making->out->items, compare_candidates);
  refuse_the_rest(making->out, TUNE_CANDIDATES_MAX);
  return KJIT_OK;
}

static uint32_t count_changes(const struct making *making, const struct candidate_values *config) {
  const struct field_table *fields = &making->start->family->table;
  uint32_t changes = 0;
  for (size_t i = 0; i < fields->count; i++)
    changes += field_get(&fields->fields[i], config->of) != field_get(&fields->fields[i], making->base.of);
  return changes;
}

/* A config of a set serves every problem: what the problem decides is the problem's. */
static kjit_status make_set(struct making *making, const char *set, kjit_error *error) {
  const struct tune_start *start = making->start;
  kjit_config config = {.family = start->family};
  struct candidate_values values;
  size_t count = 0;
  kjit_status status = kjit_family_set(start->family, set, 0, NULL, &count, error);
  if (status == KJIT_OK) status = add(making, &making->base, 0, 0, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    status = kjit_family_set(start->family, set, i, &config, NULL, error);
    if (status != KJIT_OK) return status;
    memcpy(values.of, config.values, sizeof values.of);
    (void)!start->fit(start->problem, values.of, NULL); /* what does not fit is refused by judge(), with the reason */
    status = add(making, &values, count_changes(making, &values), 0, error);
  }
  refuse_the_rest(making->out, SIZE_MAX);
  return status;
}

static kjit_status make_by(kjit_status (*make)(struct making *, const char *, kjit_error *),
                           struct tune_candidates *candidates, const struct mem *mem, const struct tune_start *start,
                           const char *set, kjit_error *error) {
  *candidates = (struct tune_candidates){.mem = mem, .family = start->family};
  struct making *making = mem_alloc(mem, sizeof *making);
  if (!making) return error_no_memory(error);
  making->out = candidates;
  making->start = start;
  memcpy(making->base.of, start->values, start->family->table.config_bytes);
  const kjit_status status = make(making, set, error);
  mem_free(mem, making);
  return status;
}

kjit_status tune_candidates_make(struct tune_candidates *candidates, const struct mem *mem,
                                 const struct tune_start *start, kjit_error *error) {
  return make_by(make_near, candidates, mem, start, NULL, error);
}

kjit_status tune_candidates_make_set(struct tune_candidates *candidates, const struct mem *mem,
                                     const struct tune_start *start, const char *set, kjit_error *error) {
  return make_by(make_set, candidates, mem, start, set, error);
}

void tune_candidates_finish(struct tune_candidates *candidates) {
  if (candidates->mem) mem_free(candidates->mem, candidates->items);
  *candidates = (struct tune_candidates){0};
}
