/* Choosing and tuning configs of a user's family over a fake driver and compiler, by times of a formula. */
#include <kjit/tune.h>

#include "fixture.h"

#include <stdio.h>
#include <string.h>

static const char family_text[] = "family: toy\nsource: toy.cu\nentry: toy\n"
                                  "fields:\n"
                                  "  kind: {kind: enum, values: [plain, fancy], default: plain, given: true}\n"
                                  "  BM: {kind: int, values: [32, 64, 128], default: 64}\n"
                                  "  each: {kind: int, range: [1, 4], default: 1}\n"
                                  "rules:\n  - {require: BM * each <= 256, because: it is too much}\n"
                                  "block: BM\n"
                                  "parameters: {m: int32, n: int32}\n"
                                  "sets: {all: {cross: {kind: all, BM: all, each: all}}}\n"
                                  "classes: {rows: {of: m, buckets: [1, 64, 1024]}, fancy: \"kind == fancy ? n : 0\"}\n"
                                  "choose:\n  - {when: m < 64, config: {BM: 32, each: \"min(4, n)\"}}\n";
static const char source_text[] =
    "extern \"C\" __global__ void toy(int m, int n) { int x = KJIT_BM + KJIT_each + KJIT_kind; (void)x; }\n";

struct world {
  kjit_family *family;
  kjit_family_problem problem;
  kjit_tune_options options;
  size_t calls, over_after;
  int32_t fails_at; /* the BM of which time() fails; 0: none */
};

static void write_text(const struct fixture *f, const char *name, const char *text, char path[TEMP_PATH_BYTES]) {
  temp_folder_path(&f->folder, name, path);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static kjit_status time_one(void *user, const kjit_tune_trial *trial, double *microseconds, kjit_error *error) {
  struct world *w = user;
  const int32_t *values = trial->config->values;
  kjit_artifact_info info = {.struct_size = sizeof info};
  w->calls++;
  assert_int_equal(kjit_artifact_get_info(trial->artifact, &info, error), KJIT_OK);
  assert_true(info.cubin_bytes > 0);
  if (values[1] == w->fails_at) {
    error->status = KJIT_ERR_DRIVER;
    snprintf(error->message, sizeof error->message, "no launch");
    return KJIT_ERR_DRIVER;
  }
  *microseconds = 1000.0 / values[1] + values[2];
  return KJIT_OK;
}

static int is_over(void *user) {
  const struct world *w = user;
  return w->over_after && w->calls >= w->over_after;
}

static struct world begin(struct fixture *f, const char *problem) {
  struct world w = {.options = kjit_tune_options_default()};
  char path[TEMP_PATH_BYTES];
  write_text(f, "toy.cu", source_text, path);
  write_text(f, "toy.yaml", family_text, path);
  fake_nvrtc.entry = "toy";
  assert_status(KJIT_OK, kjit_family_open(&w.family, path, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_family_problem_parse(w.family, problem, &w.problem, &f->error), &f->error);
  w.options.set = "all";
  w.options.time = time_one;
  w.options.over = is_over;
  return w;
}

static kjit_status tune(struct fixture *f, struct world *w, kjit_tune_outcome *outcome) {
  w->options.user = w;
  *outcome = (kjit_tune_outcome){.struct_size = sizeof *outcome};
  const kjit_tune_problem asked = {.family = &w->problem};
  return kjit_tune_run(f->runtime, &asked, NULL, "sm_80", &w->options, outcome, &f->error);
}

/* In a runtime that reads the table anew: "BM=..,each=.. by ..". */
static const char *chosen(struct fixture *f, const struct world *w, const char *problem) {
  static char text[64];
  kjit_family_problem asked;
  kjit_config config;
  uint32_t by;
  fixture_close(f);
  assert_status(KJIT_OK, fixture_open(f), &f->error);
  assert_status(KJIT_OK, kjit_family_problem_parse(w->family, problem, &asked, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_family_choose(f->runtime, &asked, NULL, "sm_80", &config, &by, &f->error), &f->error);
  snprintf(text, sizeof text, "kind=%d,BM=%d,each=%d by %s", config.values[0], config.values[1], config.values[2],
           by == KJIT_DECIDED_BY_TABLE ? "table" : "rules");
  return text;
}

static void test_family_choose__without_a_table_rules_then_defaults_decide(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=1,n=1");
  assert_string_equal(chosen(f, &w, "m=1,n=3"), "kind=0,BM=32,each=3 by rules");
  assert_string_equal(chosen(f, &w, "m=64,n=3,kind=fancy"), "kind=1,BM=64,each=1 by rules");
  kjit_family_release(w.family);
}

static void test_family_tune__fastest_is_the_row_of_its_class(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  assert_status(KJIT_OK, tune(f, &w, &outcome), &f->error);
  assert_int_equal(outcome.decided_by, KJIT_DECIDED_BY_TABLE);
  assert_int_equal(outcome.config.values[1], 128);
  assert_true(outcome.microseconds < outcome.rules_microseconds);
  assert_int_equal(outcome.failed, 0);
  assert_string_equal(chosen(f, &w, "m=1024,n=1"), "kind=0,BM=128,each=1 by table");
  assert_string_equal(chosen(f, &w, "m=1023,n=1"), "kind=0,BM=64,each=1 by rules");
  assert_string_equal(chosen(f, &w, "m=1024,n=1,kind=fancy"), "kind=1,BM=64,each=1 by rules");
  kjit_family_release(w.family);
}

static void test_family_tune__without_a_set_neighbours_are_tried(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7,kind=fancy");
  kjit_tune_outcome outcome;
  w.options.set = NULL;
  assert_status(KJIT_OK, tune(f, &w, &outcome), &f->error);
  assert_int_equal(outcome.config.values[0], 1);
  assert_int_equal(outcome.config.values[1], 128);
  assert_string_equal(chosen(f, &w, "m=1024,n=7,kind=fancy"), "kind=1,BM=128,each=1 by table");
  kjit_family_release(w.family);
}

static void test_family_tune__a_failing_candidate_is_told_and_dropped(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  w.fails_at = 128;
  assert_status(KJIT_OK, tune(f, &w, &outcome), &f->error);
  assert_true(outcome.failed > 0);
  assert_non_null(strstr(outcome.first_failure, "BM=128"));
  assert_non_null(strstr(outcome.first_failure, "no launch"));
  assert_int_equal(outcome.config.values[1], 64);
  w.fails_at = 64; /* the rules' choice */
  assert_status(KJIT_ERR_DRIVER, tune(f, &w, &outcome), &f->error);
  assert_string_equal(f->error.message, "no launch");
  kjit_family_release(w.family);
}

static void test_family_tune__interrupted_keeps_nothing(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  w.over_after = 20;
  assert_status(KJIT_ERR_CANCELLED, tune(f, &w, &outcome), &f->error);
  assert_string_equal(chosen(f, &w, "m=2000,n=7"), "kind=0,BM=64,each=1 by rules");
  kjit_family_release(w.family);
}

static void test_family_tune__rows_of_a_changed_source_are_ignored(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  kjit_tune_info info = {.struct_size = sizeof info};
  char path[TEMP_PATH_BYTES];
  assert_status(KJIT_OK, tune(f, &w, &outcome), &f->error);
  kjit_family_release(w.family);
  temp_folder_path(&f->folder, "toy.cu", path);
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  assert_true(fputs("// slower\n", file) >= 0);
  assert_int_equal(fclose(file), 0);
  temp_folder_path(&f->folder, "toy.yaml", path);
  assert_status(KJIT_OK, kjit_family_open(&w.family, path, &f->error), &f->error);
  assert_string_equal(chosen(f, &w, "m=2000,n=7"), "kind=0,BM=64,each=1 by rules");
  assert_status(KJIT_OK, kjit_tune_get_info(f->runtime, w.family, NULL, "sm_80", &info, &f->error), &f->error);
  assert_int_equal(info.ignored_rows, 1);
  kjit_family_release(w.family);
}

static void test_family_tune__bad_arguments_are_named(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  w.options.set = "none";
  assert_status(KJIT_ERR_NOT_FOUND, tune(f, &w, &outcome), &f->error);
  w.options.set = "all";
  w.options.contest.final_runs = 0;
  assert_status(KJIT_ERR_INVALID_ARG, tune(f, &w, &outcome), &f->error);
  w.options.time = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, tune(f, &w, &outcome), &f->error);
  assert_non_null(strstr(f->error.message, "options.time"));
  w.problem.given.values[0] = 7;
  w.options.time = time_one;
  assert_status(KJIT_ERR_INVALID_CONFIG, tune(f, &w, &outcome), &f->error);
  assert_non_null(strstr(f->error.message, "kind is 7"));
  kjit_family_release(w.family);
}

static void test_family_problem__is_printed_as_it_is_read(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, " n = 7 , kind=fancy,m=-5");
  const kjit_tune_problem asked = {.family = &w.problem};
  char text[KJIT_FAMILY_PROBLEM_TEXT_MAX];
  assert_status(KJIT_OK, kjit_family_problem_print(&w.problem, text, sizeof text, &f->error), &f->error);
  assert_string_equal(text, "kind=fancy,m=-5,n=7");
  assert_status(KJIT_OK, kjit_tune_class(&asked, text, sizeof text, &f->error), &f->error);
  assert_string_equal(text, "kind=fancy,rows=1,fancy=7");
  kjit_family_release(w.family);
}

static void test_family_choose__every_allocation_may_fail(void **state) {
  struct fixture *f = *state;
  struct world w = begin(f, "m=2000,n=7");
  kjit_tune_outcome outcome;
  assert_status(KJIT_OK, tune(f, &w, &outcome), &f->error);
  for (long n = 1; n < 60; n++) {
    kjit_config config;
    uint32_t by;
    fixture_close(f);
    assert_status(KJIT_OK, fixture_open(f), &f->error);
    atomic_store(&f->memory.fail_at, atomic_load(&f->memory.calls) + n);
    /* A choice does not fail for want of a table. */
    assert_int_equal(kjit_family_choose(f->runtime, &w.problem, NULL, "sm_80", &config, &by, &f->error), KJIT_OK);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
  }
  kjit_family_release(w.family);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_family_choose__without_a_table_rules_then_defaults_decide),
      TEST(test_family_tune__fastest_is_the_row_of_its_class),
      TEST(test_family_tune__without_a_set_neighbours_are_tried),
      TEST(test_family_tune__a_failing_candidate_is_told_and_dropped),
      TEST(test_family_tune__interrupted_keeps_nothing),
      TEST(test_family_tune__rows_of_a_changed_source_are_ignored),
      TEST(test_family_tune__bad_arguments_are_named),
      TEST(test_family_problem__is_printed_as_it_is_read),
      TEST(test_family_choose__every_allocation_may_fail),
  };
  return cmocka_run_group_tests_name("family_tune", tests, NULL, NULL);
}
