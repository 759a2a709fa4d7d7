#include "unit/attention/tune/tune_fixture.h"

static kjit_status read_into(struct tune_world *w, struct tune_table *table, const char *text, size_t bytes) {
  w->error = (kjit_error){0};
  return tune_text_read(table, text, bytes, w->kernels, &tune_place, TUNE_SITE, &w->error);
}

/* A table of its own for one reading; its counts. */
struct outcome {
  kjit_status status;
  size_t rows, stale, broken;
};

static struct outcome read_alone(struct tune_world *w, const char *text, size_t bytes) {
  struct tune_table *table = tune_table_create(&w->mem, &tune_attention);
  struct outcome outcome = {.status = read_into(w, table, text, bytes)};
  outcome.rows = table->count;
  outcome.stale = table->stale;
  outcome.broken = table->broken;
  tune_table_destroy(table);
  return outcome;
}

/* `text` with its first `from` replaced; free() it. */
static char *replaced(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  assert_non_null(at);
  char *out = malloc(strlen(text) + strlen(to) + 1);
  assert_non_null(out);
  sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return out;
}

static void expect_fault(struct tune_world *w, const char *text, const char *from, const char *to,
                         const char *message) {
  char *damaged = replaced(text, from, to);
  const struct outcome outcome = read_alone(w, damaged, strlen(damaged));
  free(damaged);
  assert_status(KJIT_ERR_PARSE, outcome.status, &w->error);
  assert_string_equal(w->error.message, message);
}

static void test_tune_text__what_is_written_is_read_back(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  struct tune_table *read = tune_table_create(&w->mem, &tune_attention);
  assert_status(KJIT_OK, read_into(w, read, text, strlen(text)), &w->error);
  assert_int_equal(read->count, 3);
  assert_int_equal(read->rows_of[TUNE_SITE], 3);
  for (const struct tune_row *row = w->table->rows; row; row = row->hh.next) {
    const struct tune_row *found = tune_table_find(read, row->class);
    assert_non_null(found);
    assert_int_equal(found->ns, row->ns);
    assert_int_equal(found->rules_ns, row->rules_ns);
    assert_int_equal(found->rules, row->rules);
    assert_memory_equal(found->values, row->values, sizeof row->values);
  }
  tune_table_destroy(w->table);
  w->table = read;
  char *again = tune_text_of(w);
  assert_string_equal(again, text);
  free(again);
  free(text);
}

static void test_tune_text__rows_are_in_the_order_of_classes(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  const char *first = strstr(text, "head_dim=64,"), *second = strstr(text, "head_dim=128,"),
             *third = strstr(text, "rules");
  assert_true(first && first < second && second < third);
  assert_non_null(strstr(text, " 400.500 420.000 attention_sm90 dtype=bf16,head_dim=64,"));
  assert_non_null(strstr(text, " 400.500 420.000 rules\nend 3\n"));
  free(text);
}

static void test_tune_text__cut_anywhere_is_refused(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  const size_t bytes = strlen(text);
  for (size_t kept = 0; kept < bytes; kept++) {
    assert_status(KJIT_ERR_PARSE, read_alone(w, text, kept).status, &w->error);
    assert_int_equal(strncmp(w->error.message, "line ", 5), 0);
  }
  assert_status(KJIT_OK, read_alone(w, text, bytes).status, &w->error);
  free(text);
}

static void test_tune_text__no_flipped_bit_gives_an_illegal_row(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  const size_t bytes = strlen(text);
  for (size_t bit = 0; bit < 8 * bytes; bit++) {
    struct tune_table *table = tune_table_create(&w->mem, &tune_attention);
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    if (read_into(w, table, text, bytes) == KJIT_OK) {
      for (const struct tune_row *row = table->rows; row; row = row->hh.next)
        assert_status(KJIT_OK, tune_row_check(&tune_attention, row, &tune_place, NULL), NULL);
    }
    tune_table_destroy(table);
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
  }
  free(text);
}

static void test_tune_text__faults_have_line_and_column(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  expect_fault(w, text, "kjit-tuned 1", "kjit-tuned 2", "line 1: column 1: expected \"kjit-tuned 1\", found \"kjit\"");
  expect_fault(w, text, "arch sm_90a", "arc sm_90a", "line 3: column 1: expected \"arch\", found \"arc\"");
  expect_fault(w, text, "132\n", "13x\n", "line 4: column 19: expected the end of the line, found \"x\"");
  expect_fault(w, text, "library 0.1.0", "library ", "line 6: column 9: expected a value, found the end");
  expect_fault(w, text, "NVIDIA H200", "NVIDIA\tH200", "line 2: column 14: expected printable text, found byte 0x09");
  expect_fault(w, text, "2026-11-21", "2026-11-211", "line 8: column 6: expected a shorter value, found \"2026\"");
  expect_fault(w, text, "kernels flash_forward", "kernels flash",
               "line 10: column 9: expected flash_forward, found \"flash\"");
  expect_fault(w, text, "row dtype=bf16,", "row dtype=bf17,", "line 14: column 11: expected a dtype, found \"bf17\"");
  expect_fault(w, text, "pairs=32", "pears=32", "line 14: column 82: expected a field of a class, found \"pears\"");
  expect_fault(w, text, " 400.500", " 400.50",
               "line 14: column 91: expected microseconds with three decimals, found \"400\"");
  expect_fault(w, text, " 400.500", " 0.000",
               "line 14: column 91: expected microseconds with three decimals, found \"0\"");
  expect_fault(w, text, "attention_sm90 dtype", "attention_sm91 dtype",
               "line 14: column 107: expected a family or \"rules\", found \"attention_sm91\"");
  expect_fault(w, text, "end 3\n", "end 4\n", "line 17: column 5: there are not so many rows");
  expect_fault(w, text, "end 3\n", "end 3\n\n", "line 18: column 1: nothing may stand behind the line \"end\"");
  expect_fault(w, text, "end 3\n", "", "line 17: column 1: the file ends before its line \"end\"");
  free(text);
}

static void test_tune_text__a_config_is_read_at_its_own_column(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  expect_fault(w, text, "consumers=", "consumer=",
               "line 14: column 168: expected a field of attention_sm90, found \"consumer\"");
  free(text);
}

static void test_tune_text__a_class_stands_once(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  expect_fault(w, text, "causal=1", "causal=0", "line 16: column 5: this class stands in the table before");
  free(text);
}

static void test_tune_text__long_lines_and_nul_bytes_are_refused(void **state) {
  struct tune_world *w = *state;
  char line[TUNE_LINE_MAX + 2];
  memset(line, 'x', sizeof line);
  line[TUNE_LINE_MAX] = '\n';
  assert_status(KJIT_ERR_PARSE, read_alone(w, line, sizeof line).status, &w->error);
  assert_string_equal(w->error.message, "line 1: column 1: a line is at most 8191 bytes long");
  static const char nul[] = "kjit-tuned 1\0\n";
  assert_status(KJIT_ERR_PARSE, read_alone(w, nul, sizeof nul - 1).status, &w->error);
  assert_string_equal(w->error.message, "line 1: column 1: a line has no NUL in it");
}

static void test_tune_text__rows_of_other_kernels_are_counted_unread(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w), *other_fields = replaced(text, "attention_sm90 dtype=", "attention_sm90 type=");
  assert_status(KJIT_ERR_PARSE, read_alone(w, other_fields, strlen(other_fields)).status, &w->error);
  w->kernels[0].bytes[0] ^= 1;
  const struct outcome outcome = read_alone(w, other_fields, strlen(other_fields));
  assert_status(KJIT_OK, outcome.status, &w->error);
  assert_int_equal(outcome.rows, 0);
  assert_int_equal(outcome.stale, 3); /* also the one that the rules won */
  free(other_fields);
  free(text);
}

static void test_tune_text__rows_that_break_a_rule_are_counted(void **state) {
  static const char *const changes[][2] = {
      {"stages=3", "stages=9"},                                   /* no such value */
      {"tile_n=64", "tile_n=256"},                                /* too much shared memory */
      {"attention_sm90 dtype=bf16", "attention_sm90 dtype=fp16"}, /* not of the class */
      {"seq_q=4096", "seq_q=4095"},                               /* no class */
      {"consumers=2", "consumers=1"},                             /* with ping_pong: not canonical */
  };
  struct tune_world *w = *state;
  const kjit_attention_problem problem = tune_problem(4096, 128);
  const struct tune_row row = tune_row_of(&problem);
  w->table->header = tune_header(w);
  tune_add(w, &row);
  char *text = tune_text_of(w);
  assert_int_equal(read_alone(w, text, strlen(text)).rows, 1);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    char *changed = replaced(text, changes[i][0], changes[i][1]);
    const struct outcome outcome = read_alone(w, changed, strlen(changed));
    free(changed);
    assert_status(KJIT_OK, outcome.status, &w->error);
    assert_int_equal(outcome.rows, 0);
    assert_int_equal(outcome.broken, 1);
  }
  free(text);
}

static void test_tune_text__every_allocation_may_fail(void **state) {
  struct tune_world *w = *state;
  tune_fill(w);
  char *text = tune_text_of(w);
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    assert_true(n < 100);
    struct tune_table *table = tune_table_create(&w->mem, &tune_attention);
    tune_fail_from(w, n);
    status = read_into(w, table, text, strlen(text));
    tune_fail_from(w, FAIL_NEVER);
    assert_true(status == KJIT_OK || status == KJIT_ERR_NO_MEMORY);
    tune_table_destroy(table);
  }
  free(text);
}

/* A seed of the fuzzer, which was measured on kernels whose digests are zero. */
static struct outcome read_seed(struct tune_world *w, const char *path) {
  char text[8192];
  FILE *const file = fopen(path, "rb");
  assert_non_null(file);
  const size_t bytes = fread(text, 1, sizeof text, file);
  assert_int_equal(0, fclose(file));
  assert_in_range(bytes, 1, sizeof text - 1);
  memset(w->kernels, 0, sizeof w->kernels);
  return read_alone(w, text, bytes);
}

/* Otherwise the fuzzer's inputs would all end where a family, or a field, is missing. */
static void test_tune_text__seeds_of_the_fuzzer_are_whole_tables(void **state) {
  static const struct {
    const char *path;
    size_t rows;
  } seeds[] = {{KJIT_TEST_TUNE_SEEDS "/all-fields", 2},
               {KJIT_TEST_TUNE_SEEDS "/two-families", 2},
               {KJIT_TEST_TUNE_SEEDS "/rules", 1},
               {KJIT_TEST_TUNE_SEEDS "/empty", 0}};
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
    const struct outcome outcome = read_seed(*state, seeds[i].path);
    assert_status(KJIT_OK, outcome.status, &((struct tune_world *)*state)->error);
    assert_int_equal(outcome.rows, seeds[i].rows);
    assert_int_equal(outcome.stale + outcome.broken, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TUNE_TEST(test_tune_text__what_is_written_is_read_back),
      TUNE_TEST(test_tune_text__rows_are_in_the_order_of_classes),
      TUNE_TEST(test_tune_text__cut_anywhere_is_refused),
      TUNE_TEST(test_tune_text__no_flipped_bit_gives_an_illegal_row),
      TUNE_TEST(test_tune_text__faults_have_line_and_column),
      TUNE_TEST(test_tune_text__a_config_is_read_at_its_own_column),
      TUNE_TEST(test_tune_text__a_class_stands_once),
      TUNE_TEST(test_tune_text__long_lines_and_nul_bytes_are_refused),
      TUNE_TEST(test_tune_text__rows_of_other_kernels_are_counted_unread),
      TUNE_TEST(test_tune_text__rows_that_break_a_rule_are_counted),
      TUNE_TEST(test_tune_text__every_allocation_may_fail),
      TUNE_TEST(test_tune_text__seeds_of_the_fuzzer_are_whole_tables),
  };
  return cmocka_run_group_tests_name("tune_text", tests, NULL, NULL);
}
