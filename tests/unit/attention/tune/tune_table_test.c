#include "unit/attention/tune/tune_fixture.h"

#include "attention/flash/flash_call.h"

/* What the planner says of a problem with the world's table beside the rules. */
static struct attention_choice choose(struct tune_world *w, const kjit_attention_problem *problem) {
  const struct attention_measured measured = tune_attention_measured(w->table);
  struct attention_choice choice;
  assert_status(KJIT_OK, attention_choose(problem, &tune_place, &measured, false, &choice, &w->error), &w->error);
  return choice;
}

static void test_tune_table__row_decides_for_its_neighbourhood(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  static const int64_t lengths[] = {4096, 4095, 4097, 3000, 5000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    const kjit_attention_problem problem = tune_problem(lengths[i], 128);
    const struct attention_choice choice = choose(w, &problem);
    assert_int_equal(choice.decided_by, KJIT_DECIDED_BY_TABLE);
    assert_int_equal(tune_sm90(&choice)->stages, 3);
    assert_int_equal(tune_sm90(&choice)->tile_n, 64);
  }
}

static void test_tune_table__other_classes_are_left_to_the_rules(void **state) {
  struct tune_world *w = *state;
  kjit_attention_problem others[6];
  kjit_attention_sm90_config rules;
  tune_fill(w);
  for (int i = 0; i < 6; i++)
    others[i] = tune_problem(4096, 128);
  others[0].seq_q = 8192;
  others[1].seq_kv = 512;
  others[2].dtype = KJIT_FP16;
  others[3].heads_kv = 4;
  others[4].batch = 16;
  others[5].flags = KJIT_ATTENTION_CAUSAL;
  for (int i = 0; i < 6; i++) {
    const struct attention_choice choice = choose(w, &others[i]);
    assert_int_equal(choice.decided_by, KJIT_DECIDED_BY_RULES);
    assert_status(KJIT_OK, usual_sm90_choose(&others[i], 132, &rules, NULL), NULL);
    assert_int_equal(memcmp(choice.values, &rules, sizeof rules), 0);
  }
}

static void test_tune_table__where_the_rules_won_they_decide(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  kjit_attention_problem problem = tune_problem(1024, 64);
  assert_int_equal(choose(w, &problem).decided_by, KJIT_DECIDED_BY_TABLE);
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(choose(w, &problem).decided_by, KJIT_DECIDED_BY_RULES);
  assert_int_equal(atomic_load(&w->table->misfits), 0);
}

static void test_tune_table__row_that_does_not_fit_is_counted(void **state) {
  struct tune_world *w = *state;
  kjit_attention_problem problem = tune_problem((INT64_C(1) << 30) - 1024, 128);
  problem.batch = problem.heads_q = problem.heads_kv = 1;
  struct tune_row row = tune_row_of(&problem);
  tune_add(w, &row);
  assert_int_equal(choose(w, &problem).decided_by, KJIT_DECIDED_BY_TABLE);
  problem.seq_q++; /* beyond what the kernel can index, still of the class */
  struct attention_choice choice;
  assert_false(tune_attention_choose(w->table, &problem, &choice));
  assert_int_equal(atomic_load(&w->table->misfits), 1);
}

static void test_tune_table__flash_forward_is_chosen_by_row_too(void **state) {
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  static const struct attention_measured nothing;
  const struct family_place place = {"sm_80", 108, 166912, {0}};
  struct attention_choice rules, choice;
  assert_status(KJIT_OK, attention_choose(&problem, &place, &nothing, false, &rules, &w->error), &w->error);
  assert_ptr_equal(rules.family, &flash_attention);
  struct tune_row row = {.family = rules.family->family, .ns = 1000, .rules_ns = 2000};
  memcpy(row.values, rules.values, sizeof rules.values);
  tune_class_of(&problem, class_in(&row));
  ((struct flash_variant *)row.values)->config.B_c = 32;
  assert_status(KJIT_OK, tune_row_check(&tune_attention, &row, &place, &w->error), &w->error);
  tune_add(w, &row);
  const struct attention_measured measured = tune_attention_measured(w->table);
  assert_status(KJIT_OK, attention_choose(&problem, &place, &measured, false, &choice, &w->error), &w->error);
  assert_int_equal(choice.decided_by, KJIT_DECIDED_BY_TABLE);
  assert_ptr_equal(choice.family, &flash_attention);
  assert_int_equal(flash_variant_view(choice.values)->config.B_c, 32);
}

static void test_tune_table__a_row_is_replaced_or_kept(void **state) {
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  struct tune_row row = tune_row_of(&problem);
  tune_add(w, &row);
  row.ns = 1;
  row.origin = TUNE_SHIPPED;
  assert_status(KJIT_OK, tune_table_add(w->table, &row, 0, NULL), NULL);
  assert_int_equal(tune_table_find(w->table, row.class)->ns, 400500);
  assert_status(KJIT_OK, tune_table_add(w->table, &row, 1, NULL), NULL);
  assert_int_equal(tune_table_find(w->table, row.class)->ns, 1);
  assert_int_equal(w->table->count, 1);
  assert_int_equal(w->table->rows_of[TUNE_USER], 0);
  assert_int_equal(w->table->rows_of[TUNE_SHIPPED], 1);
}

static void test_tune_table__full_one_takes_no_more(void **state) {
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  struct tune_row row = tune_row_of(&problem);
  for (int32_t i = 0; i < TUNE_ROWS_MAX; i++) {
    class_in(&row)->group = i + 1;
    tune_add(w, &row);
  }
  tune_add(w, &row); /* is there already */
  class_in(&row)->group++;
  assert_status(KJIT_ERR_UNSUPPORTED, tune_table_add(w->table, &row, 1, &w->error), &w->error);
  assert_string_equal(w->error.message, "a tuned table has at most 16384 rows");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNE_TEST(test_tune_table__row_decides_for_its_neighbourhood),
      TUNE_TEST(test_tune_table__other_classes_are_left_to_the_rules),
      TUNE_TEST(test_tune_table__where_the_rules_won_they_decide),
      TUNE_TEST(test_tune_table__row_that_does_not_fit_is_counted),
      TUNE_TEST(test_tune_table__flash_forward_is_chosen_by_row_too),
      TUNE_TEST(test_tune_table__a_row_is_replaced_or_kept),
      TUNE_TEST(test_tune_table__full_one_takes_no_more),
  };
  return cmocka_run_group_tests_name("tune_table", tests, NULL, NULL);
}
