/* attention_sm90 on the emulator where K and V are copied into rows of whole lines first, beside float64. A card of one
 * multiprocessor makes that pay for problems which are small enough for the emulator. */
#include "attention_cases.h"

#include "emulator_fixture.h"
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static int setup(void **state) {
  emulator_choose();
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "1", 1));
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}

struct shape {
  int64_t batch, heads, heads_kv, seq_q, seq_kv, head_dim, head_dim_v;
  enum problem_layout layout;
  uint32_t flags;
};

static struct trial_problem problem_of(const struct shape *shape) {
  return (struct trial_problem){.asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = shape->batch, .heads_q = shape->heads,
                                                    .heads_kv = shape->heads_kv, .seq_q = shape->seq_q,
                                                    .seq_kv = shape->seq_kv, .head_dim = shape->head_dim,
                                                    .head_dim_v = shape->head_dim_v, .flags = shape->flags),
                                .layout = shape->layout,
                                .lse = 1,
                                .seed = 1};
}

/* The planner has the copy made for this problem on the card that the emulator is. */
static void assert_is_copied(const struct gpu_fixture *fixture, const struct trial_problem *problem) {
  kjit_device_info device = {.struct_size = sizeof device};
  kjit_config config, front;
  kjit_error error;
  assert_status(KJIT_OK, kjit_device_get_info(fixture->runtime, 0, &device, &error), &error);
  assert_status(KJIT_OK, kjit_attention_choose(fixture->runtime, &problem->asked, NULL, &config, NULL, &error), &error);
  assert_status(KJIT_OK, kjit_attention_front(&config, &problem->asked, &device, &front, &error), &error);
  assert_non_null(front.family);
  assert_string_equal(kjit_family_name(front.family), "attention_padding");
}

static void run_shape(void **state, const struct shape *shape) {
  struct gpu_fixture *fixture = attention_require(state);
  const struct trial_problem problem = problem_of(shape);
  assert_is_copied(fixture, &problem);
  attention_run_problems(fixture, &problem, 1);
}

/* Key heads that are shared, lengths that end within a piece; of K and V each has rows of its own width. */
static void test_attention__copied_keys_and_values_are_right(void **state) {
  run_shape(state, &(struct shape){2, 2, 1, 256, 333, 136, 216, LAYOUT_BHSD, 0});
}

/* Rows of V are whole lines, so K alone is copied, out of one tensor with V. */
static void test_attention__copied_keys_alone_are_right(void **state) {
  run_shape(state, &(struct shape){1, 2, 2, 400, 450, 200, 64, LAYOUT_BSHD, KJIT_ATTENTION_CAUSAL});
}

static const struct {
  const char *what, *file, *before, *after;
} mutations[] = {
    {"the last rows of a head are not copied", "attention_padding/attention_padding.cu", "? p.seq - first : kRows",
     "? p.seq - first - 1 : kRows"},
    {"every head's rows are the first one's", "attention_padding/attention_padding.cu", "head = pair % p.heads",
     "head = 0"},
};

static void test_attention__mistakes_of_the_copy_are_caught(void **state) {
  const struct gpu_fixture *fixture = attention_require(state);
  const struct trial_problem problem =
      problem_of(&(struct shape){1, 2, 2, 400, 450, 200, 64, LAYOUT_BSHD, KJIT_ATTENTION_CAUSAL});
  struct gpu_trial trial;
  gpu_trial_create(&trial, &fixture->kernels, &problem);
  for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i += emulator_mutation_step()) {
    struct attention_verdict verdict = {0};
    kjit_error error = {0};
    emulator_mutate(mutations[i].file, mutations[i].before, mutations[i].after);
    assert_status(KJIT_OK, attention_data_poison(&trial.data, fixture->card.stream, &error), &error);
    kjit_runtime *const runtime = emulator_runtime_anew(&error);
    const kjit_status status = kjit_attention_forward(runtime, NULL, &trial.data.args, fixture->card.stream, &error);
    kjit_runtime_destroy(runtime);
    if (emulator_stopped_mutation(&fixture->card, mutations[i].what, status, &error)) continue;
    assert_status(KJIT_OK, attention_judge(&trial.data, &trial.reference, &verdict, &error), &error);
    if (verdict.passed) fail_msg("%s, and the result is right", mutations[i].what);
  }
  gpu_trial_destroy(&trial);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention__copied_keys_and_values_are_right),
      cmocka_unit_test(test_attention__copied_keys_alone_are_right),
      cmocka_unit_test(test_attention__mistakes_of_the_copy_are_caught),
  };
  return cmocka_run_group_tests_name("padded attention on the emulator", tests, setup, gpu_teardown);
}
