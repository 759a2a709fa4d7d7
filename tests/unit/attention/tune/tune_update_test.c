/* How results get into a table: one after the other, from several threads and processes, into a damaged one. */
#include <sys/wait.h>

#include "unit/attention/tune/tune_results.h"

static void test_tune__a_later_result_takes_the_place_of_an_earlier_one(void **state) {
  struct fixture *f = *state;
  kjit_config config;
  const kjit_tune_result won = causal_result(f, &config), lost = result_of(&won.problem.attention, NULL);
  publish(f, &won);
  publish(f, &lost);
  open_again(f);
  assert_int_equal(info_of(f).user_rows, 1);
  assert_int_equal(decided_by(f, &won.problem.attention), KJIT_DECIDED_BY_RULES);
}

static void test_tune__damaged_table_is_ignored_then_begun_anew(void **state) {
  struct fixture *f = *state;
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  publish(f, &result);
  char *text = read_file(f);
  text[strlen(text) - 2] = 'x';
  write_file(f, text);
  free(text);
  open_again(f);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
  assert_contains(f->warnings, "is not used: line 15: column 5: expected the number of rows");
  publish(f, &result);
  assert_contains(f->warnings, "is damaged and begun anew: line 15");
  open_again(f);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_TABLE);
}

static void test_tune__results_that_make_no_sense_are_refused(void **state) {
  struct fixture *f = *state;
  const kjit_device_info device = device_of(f);
  kjit_config config;
  const kjit_tune_result good = causal_result(f, &config);
  kjit_tune_result result = good;
  result.microseconds = 0;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_tune_publish(f->runtime, &device, &result, &f->error), &f->error);
  assert_contains(f->error.message, "result.microseconds is 0");
  result = good;
  result.problem.attention.seq_q = 0;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_tune_publish(f->runtime, &device, &result, &f->error), &f->error);
  result = good;
  result.problem.attention.head_dim = 128;
  assert_status(KJIT_ERR_INVALID_CONFIG, kjit_tune_publish(f->runtime, &device, &result, &f->error), &f->error);
  result = good;
  kjit_config nameless = config;
  nameless.family = NULL;
  result.config = &nameless;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_tune_publish(f->runtime, &device, &result, &f->error), &f->error);
  assert_contains(f->error.message, "result.config");
  assert_int_equal(info_of(f).user_rows, 0);
}

static void test_tune__table_of_the_callers_own_grows_by_results(void **state) {
  struct fixture *f = *state;
  const kjit_device_info device = device_of(f);
  kjit_config config;
  char *first = NULL, *second = NULL, *again = NULL;
  kjit_tune_result result = causal_result(f, &config);
  assert_status(KJIT_OK, kjit_tune_print(f->runtime, &device, &result, NULL, &first, &f->error), &f->error);
  assert_contains(first, "\nend 1\n");
  result.problem.attention.seq_kv = 7000;
  assert_status(KJIT_OK, kjit_tune_print(f->runtime, &device, &result, first, &second, &f->error), &f->error);
  assert_contains(second, "\nend 2\n");
  assert_status(KJIT_OK, kjit_tune_print(f->runtime, &device, &result, second, &again, &f->error), &f->error);
  assert_string_equal(second, again);
  kjit_text_free(f->runtime, again);
  second[0] = 'K';
  assert_status(KJIT_ERR_PARSE, kjit_tune_print(f->runtime, &device, &result, second, &again, &f->error), &f->error);
  assert_null(again);
  kjit_text_free(f->runtime, first);
  kjit_text_free(f->runtime, second);
}

/* Each puts in classes of its own, many times; in the end all of them are there. */
enum { WRITERS = 4, WRITES = 12 };

/* In a child, where cmocka's asserts have no place: its exit code. */
static int write_rows(struct fixture *f, int writer, const kjit_config *config) {
  kjit_device_info device = {.struct_size = sizeof device};
  if (fixture_open(f) != KJIT_OK) return 2;
  kjit_status status = kjit_device_get_info(f->runtime, 0, &device, &f->error);
  for (int i = 0; i < WRITES && status == KJIT_OK; i++) {
    kjit_attention_problem problem = causal_problem();
    problem.seq_kv = INT64_C(1) << (9 + i);
    problem.batch = 1 << (2 * writer);
    const kjit_tune_result result = result_of(&problem, i % 3 ? config : NULL);
    status = kjit_tune_publish(f->runtime, &device, &result, &f->error);
  }
  fixture_close(f);
  return status == KJIT_OK ? 0 : 1;
}

static void test_tune__processes_lose_nothing_of_each_other(void **state) {
  struct fixture *f = *state;
  const kjit_attention_problem problem = causal_problem();
  kjit_config config;
  pid_t children[WRITERS];
  other_config(f, &problem, &config);
  fixture_close(f); /* each has its own: a driver does not survive fork() */
  fflush(NULL);
  for (int i = 0; i < WRITERS; i++) {
    children[i] = fork();
    if (children[i] == 0) _exit(write_rows(f, i, &config));
  }
  for (int i = 0; i < WRITERS; i++) {
    int how = 0;
    assert_int_equal(waitpid(children[i], &how, 0), children[i]);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  }
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_int_equal(info_of(f).user_rows, WRITERS * WRITES);
  assert_string_equal(f->warnings, "");
}

static void *publish_in_thread(void *user) {
  static atomic_int next;
  struct fixture *f = user;
  kjit_device_info device = {.struct_size = sizeof device};
  kjit_error error;
  kjit_attention_problem problem = causal_problem();
  kjit_config config;
  uint32_t by;
  problem.seq_kv = INT64_C(1) << (9 + atomic_fetch_add(&next, 1));
  const kjit_tune_result result = result_of(&problem, NULL);
  if (kjit_device_get_info(f->runtime, 0, &device, &error) != KJIT_OK) return "no device";
  if (kjit_tune_publish(f->runtime, &device, &result, &error) != KJIT_OK) return "not published";
  if (kjit_attention_choose(f->runtime, &problem, NULL, &config, &by, &error) != KJIT_OK) return "not decided";
  return by == KJIT_DECIDED_BY_RULES ? NULL : "the rules should decide";
}

static void test_tune__threads_publish_and_ask_at_once(void **state) {
  struct fixture *f = *state;
  fixture_in_threads(f, publish_in_thread);
  open_again(f);
  assert_int_equal(info_of(f).user_rows, FIXTURE_THREADS);
}

static void test_tune__without_a_folder_nothing_can_be_published(void **state) {
  struct fixture *f = *state;
  const kjit_device_info device = device_of(f);
  const kjit_attention_problem problem = causal_problem();
  const kjit_tune_result result = result_of(&problem, NULL);
  char tuned[TEMP_PATH_BYTES];
  temp_folder_path(&f->folder, TUNED_FOLDER, tuned);
  assert_int_equal(temp_folder_write_text(&f->folder, TUNED_FOLDER, "in the way"), 0);
  assert_status(KJIT_ERR_IO, kjit_tune_publish(f->runtime, &device, &result, &f->error), &f->error);
  assert_contains(f->error.message, "/" TUNED_FOLDER "/");
}

static void test_tune__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  const kjit_device_info device = device_of(f);
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long n = 0; status != KJIT_OK; n++) {
    assert_true(n < 200);
    atomic_store(&f->memory.fail_at, atomic_load(&f->memory.calls) + n);
    status = kjit_tune_publish(f->runtime, &device, &result, &f->error);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    assert_true(status == KJIT_OK || status == KJIT_ERR_NO_MEMORY);
  }
  /* A choice never fails for want of a table: the rules have none of this memory. */
  uint32_t by = KJIT_DECIDED_BY_NONE;
  for (long n = 0; by != KJIT_DECIDED_BY_TABLE; n++) {
    assert_true(n < 200);
    atomic_store(&f->memory.fail_at, atomic_load(&f->memory.calls) + n);
    by = decided_by(f, &result.problem.attention);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ATTENTION_TEST(test_tune__a_later_result_takes_the_place_of_an_earlier_one),
      ATTENTION_TEST(test_tune__damaged_table_is_ignored_then_begun_anew),
      ATTENTION_TEST(test_tune__results_that_make_no_sense_are_refused),
      ATTENTION_TEST(test_tune__table_of_the_callers_own_grows_by_results),
      ATTENTION_TEST(test_tune__processes_lose_nothing_of_each_other),
      ATTENTION_TEST(test_tune__threads_publish_and_ask_at_once),
      ATTENTION_TEST(test_tune__without_a_folder_nothing_can_be_published),
      ATTENTION_TEST(test_tune__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("tune_update", tests, NULL, NULL);
}
