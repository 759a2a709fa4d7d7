/* Gradients of attention variants on the emulator beside float64, and with one mistake each in the kernel: masks of
 * each kind, score functions, sinks, plain members; groups of heads, lengths that differ. */
#include <stdio.h>
#include <stdlib.h>

#include "emulator_fixture.h"
#include "support/test.h"
#include "variant_gradients.h"

/* `longer` has several tiles of keys and of queries in both families, `far` more than 32 steps for a tile of queries.
 */
static const struct variant_gradient_shape small = {1, 2, 1, 40, 70, 32, NULL}, flash = {1, 2, 1, 40, 70, 32, "sm_90"},
                                           longer = {2, 2, 2, 150, 130, 64, NULL}, wide = {1, 2, 1, 70, 200, 96, NULL},
                                           far = {1, 1, 1, 66, 2200, 96, NULL};

static void run_case(void **state, const char *name, const struct variant_gradient_shape *shape) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct variant_gradient_report report;
  kjit_error error = {0};
  const struct variant_gradient_case *one = variant_gradient_case_named(name);
  assert_non_null(one);
  assert_status(KJIT_OK, variant_gradients_run(&fixture->card, fixture->runtime, one, shape, &report, &error), &error);
  if (!report.passed)
    print_error("%s: errors %.2g %.2g %.2g, of tensors %.2g %.2g of the largest value; %s bits\n", name,
                report.error[0], report.error[1], report.error[2], report.error[3], report.error[4],
                report.same_bits ? "the same" : "other");
  assert_true(report.passed);
}

#define CASE(name)                                                                                                     \
  static void test_variant_gradients__of_##name##_are_right(void **state) {                                            \
    run_case(state, #name, &small);                                                                                    \
  }                                                                                                                    \
  static void test_variant_gradients__of_longer_##name##_are_right(void **state) {                                     \
    run_case(state, #name, &longer);                                                                                   \
  }                                                                                                                    \
  static void test_variant_gradients__of_wide_##name##_are_right(void **state) {                                       \
    run_case(state, #name, &wide);                                                                                     \
  }                                                                                                                    \
  static void test_flash_backward__gradients_of_##name##_are_right(void **state) {                                     \
    run_case(state, #name, &flash);                                                                                    \
  }

CASE(window)
CASE(document)
CASE(every_other_row)
CASE(softcap)
CASE(alibi)
CASE(square)
CASE(log)
CASE(sinks)
CASE(plain_window)
CASE(plain_members)
CASE(reads)

/* ---- Mistakes ---- */

struct mutation {
  const char *what, *variant, *file, *before, *after;
};

#define KERNEL    "flash_backward/flash_backward.cu"
#define STEPS     "flash_backward/variant.cuh"
#define HOOKS     "flash_backward/variant_hooks.cuh"
#define GRADIENTS "flash_backward/variant_gradients.cuh"

static const struct mutation flash_mutations[] = {
    {"the derivative is left out", "square", KERNEL, "variant::apply_slopes(s, slopes);", ";"},
    {"the derivative is that of the product that was not scaled", "square", HOOKS,
     "kjit_variant_score_grad(v.arguments, product * v.score_scale,", "kjit_variant_score_grad(v.arguments, product,"},
    {"the score's powers are those of e", "softcap", HOOKS, "key_of(key)) * kLog2E;", "key_of(key));"},
    {"pairs are judged for the next key", "window", STEPS, "block.hooks.sees(head, query, key)",
     "block.hooks.sees(head, query, key + 1)"},
    {"a partial step is taken as full", "window", KERNEL, "state == VARIANT_PARTIAL || steps", "steps"},
    {"the function gets the key head", "alibi", KERNEL, "cfg::kOwnsKeys ? head : own_head; //", "head; //"},
    {"a bit is another pair's", "window", STEPS, "seen.holds((m * cfg::kStepTiles * 2 + n) * 4 + i)",
     "seen.holds((m * cfg::kStepTiles * 2 + n) * 4 + (i ^ 1))"},
    {"an element's gradient is that of the product that was not scaled", "reads", GRADIENTS, "product * v.score_scale",
     "product"},
    {"a pair's gradient goes to the next key's", "reads", GRADIENTS, "block.hooks.key_of(key), element",
     "block.hooks.key_of(key + 1), element"},
    {"all lanes of a quad add a row's sum", "reads", GRADIENTS, "if (block.lane % 4 == 0) add", "add"},
    {"a row's sum is that of one lane", "reads", GRADIENTS, "sum = quad_sum(sum);", ";"},
    {"a column's sum is that of one lane", "reads", GRADIENTS, "sum = sum_of_column(sum);", ";"},
    {"a head's sum is the last step's", "alibi", GRADIENTS, "totals.of[kWhich] +=", "totals.of[kWhich] ="},
    {"gradients of what is read get P for dS", "reads", KERNEL, "variant::add_step(*this, slopes, dp,",
     "variant::add_step(*this, slopes, s,"},
    {"a step is judged by its first query", "alibi", HOOKS, "query_of(query_end - 1) + 1", "query_of(query) + 1"},
};

#define WORK     "attention_backward_sm90/variant_work.cuh"
#define CONSUMER "attention_backward_sm90/variant_consumer.cuh"

static const struct mutation sm90_mutations[] = {
    {"the derivative is left out", "square", CONSUMER, "(dp[n][i] - delta_of(pair, i)) * slope",
     "(dp[n][i] - delta_of(pair, i))"},
    {"a partial step is taken as full", "window", WORK, "(left.full >> at & 1) != 0", "true"},
    {"pairs are judged for the next key", "document", CONSUMER, "hooks.sees(step.head, query, key)",
     "hooks.sees(step.head, query, key + 1)"},
    {"a bit is another pair's", "window", CONSUMER, "(4 * (n % kPerWord) + i) & 1",
     "(4 * (n % kPerWord) + (i ^ 1)) & 1"},
    {"the causal mask is left out beside the variant", "softcap", CONSUMER,
     "const int limit = keys_seen(p.rest, query);", "const int limit = p.rest.seq_kv;"},
    {"an interval ends a key late", "window", CONSUMER, "key < high)", "key <= high)"},
    {"an interval is the next query's", "window", CONSUMER, "hooks.query_of(query), low, high",
     "hooks.query_of(query + 1), low, high"},
    {"the function gets the key head", "alibi", WORK, "cfg::kOwnsKeys ? first_step_head + index : head;",
     "first_step_head;"},
    {"the next 32 steps are those of the first", "window", WORK, "first += kLanesPerWarp;", "first = work.steps.end;"},
    {"one query head of a group counts", "window", WORK, "++index >= work.step_heads", "true"},
    {"the producer loads steps that are not made", "window", "attention_backward_sm90/producer.cuh",
     "work.for_each_step([&](int head, int step) {\\n      if (!loads)",
     "work.Work::for_each_step([&](int head, int step) {\\n      if (!loads)"},
    {"dP is read before it is there", "window", CONSUMER, "wgmma_wait_group<kWaitsForAll ? 0 : kBehind>(); // dP", ";"},
};

/* Of a tile whose first 32 steps are not seen. */
static const struct mutation vote_mutations[] = {
    {"the second vote is the first one's", "plain_window", WORK, "const int i = number++;", "const int i = 0;"},
    {"each warp leaves out what another one votes on", "plain_window", WORK, "int i = warp; i < count;",
     "int i = 2 * warp; i < count;"},
};

static bool is_caught(const struct gpu_fixture *fixture, const struct mutation *mutation,
                      const struct variant_gradient_shape *shape) {
  struct variant_gradient_report report = {0};
  kjit_error error = {0};
  emulator_mutate(mutation->file, mutation->before, mutation->after);
  kjit_runtime *const runtime = emulator_runtime_anew(&error);
  const kjit_status status = variant_gradients_run(
      &fixture->card, runtime, variant_gradient_case_named(mutation->variant), shape, &report, &error);
  kjit_runtime_destroy(runtime);
  return emulator_stopped_mutation(&fixture->card, mutation->what, status, &error) || !report.passed;
}

static void assert_caught(void **state, const struct mutation *mutations, size_t count,
                          const struct variant_gradient_shape *shape) {
  const struct gpu_fixture *fixture = gpu_require(state);
  size_t missed = 0;
  for (size_t i = 0; i < count; i++) {
    if (is_caught(fixture, &mutations[i], shape)) continue;
    print_error("%s, and the result is right\n", mutations[i].what);
    missed++;
  }
  assert_int_equal(0, missed);
}

static void test_flash_backward__mistakes_in_variants_are_caught(void **state) {
  assert_caught(state, flash_mutations, sizeof flash_mutations / sizeof *flash_mutations, &flash);
}

static void test_attention_backward_sm90__mistakes_in_variants_are_caught(void **state) {
  assert_caught(state, vote_mutations, sizeof vote_mutations / sizeof *vote_mutations, &far);
  assert_caught(state, sm90_mutations, sizeof sm90_mutations / sizeof *sm90_mutations, &wide);
}

/* More than 32 steps, of which the last ones are seen. */
static void test_variant_gradients__of_a_window_far_away_are_right(void **state) {
  run_case(state, "plain_window", &far);
}

#define TEST(name)   cmocka_unit_test(test_variant_gradients__of_##name##_are_right)
#define LONGER(name) cmocka_unit_test(test_variant_gradients__of_longer_##name##_are_right)
#define WIDE(name)   cmocka_unit_test(test_variant_gradients__of_wide_##name##_are_right)
#define FLASH(name)  cmocka_unit_test(test_flash_backward__gradients_of_##name##_are_right)

int main(void) {
  /* These have a mask, a score function, its tensors and sinks, and both families; the emulator takes minutes for all,
   * which KJIT_TEST_ALL_CONFIGS=1 asks for. */
  const struct CMUnitTest tests[] = {TEST(reads), TEST(sinks), FLASH(square)};
  const struct CMUnitTest rest[] = {TEST(square),
                                    TEST(window),
                                    TEST(document),
                                    TEST(every_other_row),
                                    TEST(softcap),
                                    TEST(alibi),
                                    TEST(log),
                                    TEST(plain_window),
                                    TEST(plain_members),
                                    LONGER(window),
                                    LONGER(document),
                                    LONGER(every_other_row),
                                    LONGER(softcap),
                                    LONGER(alibi),
                                    LONGER(square),
                                    LONGER(log),
                                    LONGER(sinks),
                                    LONGER(plain_window),
                                    LONGER(plain_members),
                                    LONGER(reads),
                                    WIDE(window),
                                    WIDE(document),
                                    WIDE(every_other_row),
                                    WIDE(softcap),
                                    WIDE(alibi),
                                    WIDE(square),
                                    WIDE(log),
                                    WIDE(sinks),
                                    WIDE(plain_window),
                                    WIDE(plain_members),
                                    WIDE(reads),
                                    FLASH(reads),
                                    FLASH(window),
                                    FLASH(document),
                                    FLASH(every_other_row),
                                    FLASH(softcap),
                                    FLASH(alibi),
                                    FLASH(log),
                                    FLASH(sinks),
                                    FLASH(plain_window),
                                    FLASH(plain_members),
                                    cmocka_unit_test(test_variant_gradients__of_a_window_far_away_are_right),
                                    cmocka_unit_test(test_flash_backward__mistakes_in_variants_are_caught),
                                    cmocka_unit_test(test_attention_backward_sm90__mistakes_in_variants_are_caught)};
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  int failed =
      cmocka_run_group_tests_name("gradients of variants on the emulator", tests, emulator_setup, gpu_teardown);
  if (getenv("KJIT_TEST_ALL_CONFIGS")) {
    (void)setenv("KJIT_EMULATOR_QUIET", "1", 1); /* complaints of the mistakes are what is wanted */
    failed += cmocka_run_group_tests_name("the rest of the gradients", rest, emulator_setup, gpu_teardown);
  }
  return failed;
}
