#include "unit/attention/tune/tune_fixture.h"

#include <stdbool.h>

#include "attention/tune/tune_attention.h"

struct subject {
  kjit_attention_problem problem;
  struct family_place place;
};

/* Lengths with masks and groups of heads, over round, odd and unequal head sizes, on both families' cards. */
static const struct subject *subjects(size_t *count) {
  static const struct family_place places[] = {
      {"sm_90a", 132, 232448, {0}}, {"sm_80", 108, 166912, {0}}, {"sm_86", 84, 101376, {0}}};
  static const int64_t heads[][2] = {{40, 40}, {64, 64}, {128, 128}, {192, 128}, {256, 256}};
  static const struct {
    int64_t length, heads_kv;
    uint32_t flags;
  } kinds[] = {{1, 16, 0}, {100, 16, KJIT_ATTENTION_CAUSAL}, {4096, 4, 0}};
  static struct subject made[3 * 5 * 3];
  *count = sizeof made / sizeof *made;
  for (size_t i = 0; i < *count; i++) {
    made[i] = (struct subject){tune_problem(kinds[i % 3].length, heads[i / 3 % 5][0]), places[i / 15]};
    made[i].problem.head_dim_v = heads[i / 3 % 5][1];
    made[i].problem.heads_kv = kinds[i % 3].heads_kv;
    made[i].problem.flags = kinds[i % 3].flags;
  }
  return made;
}

/* As kjit_tune_candidates_create() makes them. Finish it in every case. */
static kjit_status make_of(struct tune_candidates *made, struct tune_world *w, const kjit_attention_problem *problem,
                           const struct family_place *place) {
  struct tune_attention_start start;
  *made = (struct tune_candidates){.mem = &w->mem};
  const kjit_status status = tune_attention_start_init(&start, problem, place, &w->error);
  return status == KJIT_OK ? tune_candidates_make(made, &w->mem, &start.start, &w->error) : status;
}

static void make(struct tune_world *w, struct tune_candidates *made, const struct subject *subject) {
  assert_status(KJIT_OK, make_of(made, w, &subject->problem, &subject->place), &w->error);
}

static void test_tune_candidates__first_is_the_rules_choice(void **state) {
  struct tune_world *w = *state;
  size_t count;
  const struct subject *all = subjects(&count);
  for (size_t i = 0; i < count; i++) {
    struct tune_candidates made;
    static const struct attention_measured nothing;
    struct attention_choice choice = {0};
    make(w, &made, &all[i]);
    assert_status(KJIT_OK, attention_choose(&all[i].problem, &all[i].place, &nothing, false, &choice, &w->error),
                  &w->error);
    const struct tune_candidate *first = made.items;
    assert_true(choice.family && made.family == choice.family->family);
    assert_non_null(first);
    if (!first) return;
    assert_int_equal(first->changes, 0);
    assert_string_equal(first->refused, "");
    assert_int_equal(memcmp(first->values, choice.values, sizeof choice.values), 0);
    tune_candidates_finish(&made);
  }
}

/* A row has what its class says, as kjit_tune_publish() writes it. */
static void give_class(struct tune_row *row) {
  const struct field_table *fields = &row->family->table;
  for (size_t i = 0; i < fields->count; i++) {
    int32_t given;
    if (tune_class_gives(class_in(row), &fields->fields[i], &given)) field_put(&fields->fields[i], row->values, given);
  }
}

static void test_tune_candidates__each_is_a_row_that_a_table_takes(void **state) {
  struct tune_world *w = *state;
  size_t count;
  const struct subject *all = subjects(&count);
  for (size_t i = 0; i < count; i++) {
    struct tune_candidates made;
    make(w, &made, &all[i]);
    for (size_t j = 0; j < made.count; j++) {
      struct tune_row row = {.ns = 1, .rules_ns = 1};
      if (made.items[j].refused[0]) continue;
      tune_class_of(&all[i].problem, class_in(&row));
      row.family = made.family;
      memcpy(row.values, made.items[j].values, sizeof row.values);
      give_class(&row);
      assert_status(KJIT_OK, tune_row_check(&tune_attention, &row, &all[i].place, &w->error), &w->error);
    }
    tune_candidates_finish(&made);
  }
}

static void test_tune_candidates__no_two_are_the_same_kernel(void **state) {
  struct tune_world *w = *state;
  size_t count;
  const struct subject *all = subjects(&count);
  for (size_t i = 0; i < count; i++) {
    struct tune_candidates made;
    size_t kept = 0;
    make(w, &made, &all[i]);
    for (size_t a = 0; a < made.count; a++) {
      if (made.items[a].refused[0]) continue;
      kept++;
      for (size_t b = 0; b < a; b++)
        assert_true(made.items[b].refused[0] ||
                    memcmp(made.items[a].values, made.items[b].values, sizeof made.items[a].values) != 0);
    }
    assert_true(kept > 1 && kept <= TUNE_CANDIDATES_MAX);
    tune_candidates_finish(&made);
  }
}

static void test_tune_candidates__nearest_come_first(void **state) {
  struct tune_world *w = *state;
  struct tune_candidates made;
  const struct subject subject = {tune_problem(4096, 128), tune_place};
  make(w, &made, &subject);
  for (size_t i = 1; i < made.count; i++) {
    const struct tune_candidate *a = &made.items[i - 1], *b = &made.items[i];
    assert_true(a->changes < b->changes || (a->changes == b->changes && a->steps <= b->steps));
    assert_in_range(b->changes, 1, 2);
  }
  tune_candidates_finish(&made);
}

/* Fields that no family has yet are tried by their kind alone: so is every planner's field that there is. */
static void test_tune_candidates__every_field_of_the_planner_is_tried(void **state) {
  struct tune_world *w = *state;
  const struct subject subject = {tune_problem(4096, 128), tune_place};
  struct tune_candidates made;
  struct tune_class class;
  tune_class_of(&subject.problem, &class);
  make(w, &made, &subject);
  assert_non_null(made.family);
  for (size_t f = 0; made.family && f < made.family->table.count; f++) {
    const kjit_field_info *field = &made.family->table.fields[f];
    int32_t given;
    size_t tried = 0;
    for (size_t i = 0; i < made.count; i++)
      tried += field_get(field, made.items[i].values) != field_get(field, made.items[0].values);
    if (tune_class_gives(&class, field, &given))
      assert_int_equal(tried, 0);
    else
      assert_true(tried > 0);
  }
  tune_candidates_finish(&made);
}

static bool has(const struct tune_candidates *made, kjit_attention_sm90_config wanted) {
  for (size_t i = 0; i < made->count; i++) {
    if (!made->items[i].refused[0] && memcmp(made->items[i].values, &wanted, sizeof wanted) == 0) return true;
  }
  return false;
}

static void test_tune_candidates__two_fields_make_room_for_each_other(void **state) {
  struct tune_world *w = *state;
  const struct subject subject = {tune_problem(4096, 128), tune_place};
  struct tune_candidates made;
  make(w, &made, &subject);
  kjit_attention_sm90_config config = *sm90_config_view(made.items[0].values);
  assert_int_equal(config.consumers, 2);
  assert_int_equal(config.tile_n, 128);
  config.consumers = 3; /* too many registers with tile_n 128 */
  assert_false(has(&made, config));
  config.tile_n = 96;
  assert_true(has(&made, config));
  tune_candidates_finish(&made);
}

static void test_tune_candidates__refused_ones_say_which_rule(void **state) {
  struct tune_world *w = *state;
  const struct subject subject = {tune_problem(4096, 128), tune_place};
  struct tune_candidates made;
  size_t by_rule = 0;
  make(w, &made, &subject);
  for (size_t i = 0; i < made.count; i++)
    by_rule += strstr(made.items[i].refused, "must be at most") != NULL;
  assert_true(by_rule > 0);
  tune_candidates_finish(&made);
}

static void test_tune_candidates__what_no_family_computes_is_refused(void **state) {
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 260);
  struct tune_candidates made;
  assert_status(KJIT_ERR_UNSUPPORTED, make_of(&made, w, &problem, &tune_place), &w->error);
  tune_candidates_finish(&made);
}

static void test_tune_candidates__every_allocation_may_fail(void **state) {
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    struct tune_candidates made;
    assert_true(n < 100);
    w->error = (kjit_error){0};
    tune_fail_from(w, n);
    status = make_of(&made, w, &problem, &tune_place);
    tune_fail_from(w, FAIL_NEVER);
    assert_true(status == KJIT_OK || status == KJIT_ERR_NO_MEMORY);
    tune_candidates_finish(&made);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNE_TEST(test_tune_candidates__first_is_the_rules_choice),
      TUNE_TEST(test_tune_candidates__each_is_a_row_that_a_table_takes),
      TUNE_TEST(test_tune_candidates__no_two_are_the_same_kernel),
      TUNE_TEST(test_tune_candidates__nearest_come_first),
      TUNE_TEST(test_tune_candidates__every_field_of_the_planner_is_tried),
      TUNE_TEST(test_tune_candidates__two_fields_make_room_for_each_other),
      TUNE_TEST(test_tune_candidates__refused_ones_say_which_rule),
      TUNE_TEST(test_tune_candidates__what_no_family_computes_is_refused),
      TUNE_TEST(test_tune_candidates__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("tune_candidates", tests, NULL, NULL);
}
