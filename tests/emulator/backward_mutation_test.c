/* Backward kernels with one mistake each, made by replacing a piece of the source: the emulator must not find them
 * right. The piece must stand in the source exactly once; otherwise the compile fails, and the test with it. */
#include <stdio.h>
#include <stdlib.h>

#include "backward_cases.h"
#include "emulator_fixture.h"
#include "support/test.h"

struct mutation {
  const char *what, *file, *before, *after;
};

#define FLASH "flash_backward/flash_backward.cu"
static const struct mutation flash_mutations[] = {
    {"nobody waits for tiles that are on their way", FLASH,
     "cp_async_wait_group<0>();\\n      __syncthreads(); // this step's tiles",
     "__syncthreads(); // this step's tiles"},
    {"a tile is loaded over the one that is still read", FLASH, "__syncthreads(); // this step's tiles are visible",
     "// this step's tiles are visible"},
    {"pairs that do not meet count", FLASH, "if (!meet) s[m][n][i] = 0.0f;", ";"},
    {"statistics go to the stage that is in use", FLASH, "write_statistics(statistics, next_stage);",
     "write_statistics(statistics, stage);"},
    {"the gradient of lse has the wrong sign", "flash_backward/row_delta.cuh", "sums[r] - dlse[r]",
     "sums[r] + dlse[r]"},
    {"dk is not scaled", FLASH, "(dx, p.scale, shared, p.dk,", "(dx, 1.0f, shared, p.dk,"},
    {"one query head of a group counts", FLASH, "const int heads = cfg::kOwnsKeys ? p.heads_per_kv : 1;",
     "const int heads = 1;"},
};

#define PRODUCER "attention_backward_sm90/producer.cuh"
#define CONSUMER "attention_backward_sm90/consumer.cuh"
static const struct mutation sm90_mutations[] = {
    {"the producer overwrites a tile that is still read", PRODUCER,
     "mbarrier_wait_parity(at.step_empty(ring.slot), ring.parity ^ 1);\\n    load_rows", "load_rows"},
    {"consumers do not wait for the value tile", CONSUMER,
     "mbarrier_wait_parity(at.value_full(values.slot), values.parity);", ";"},
    {"the tile in use is given back in place of the one before", CONSUMER,
     "wgmma_wait_group<0>();\\n    release_step(slot);", "wgmma_wait_group<0>();\\n    release_step(ring.slot);"},
    {"statistics are given back while lanes read them", CONSUMER, "mbarrier_arrive(at.step_empty(slot));",
     "for (int i = 0; lane == 0 && i < kLanesPerWarp; i++) mbarrier_arrive(at.step_empty(slot));"},
    {"TMA does not see the gradients", CONSUMER, "fence_async_proxy();", ";"},
    {"gradients are swizzled otherwise than TMA has it", CONSUMER, "^ (row % 8)) << 4", "^ (row % 4)) << 4"},
    {"dS is made of a dP that is still in flight", CONSUMER,
     "wgmma_wait_group<kWgmmaPartialWaits ? 1 : 0>(); // dP\\n      differentiate", "differentiate"},
    {"delta is left out", CONSUMER, "(dp[n][i] - delta)", "dp[n][i]"},
};

#define SUMMING "attention_backward_sm90/summing.cuh"
#define ADDING  "attention_backward_sm90/adding.cuh"
static const struct mutation sum_mutations[] = {
    {"dq is made before the other consumer has written its dS", SUMMING,
     "meet();\\n      issue_dq(at.ds(ds.slot), keys.slot);", "issue_dq(at.ds(ds.slot), keys.slot);"},
    {"dS is swizzled otherwise than the product reads it", SUMMING, "(chunk ^ lane % 8)", "(chunk ^ lane % 4)"},
    {"a part of dq is written over one that is still being added", SUMMING,
     "mbarrier_wait_parity(at.dq_empty(consumer), dq_parity ^ 1);", ";"},
    {"a part of dq is added before it is there", ADDING, "mbarrier_wait_parity(at.dq_full(consumer), parity);", ";"},
    {"one consumer's keys are left out of dq", SUMMING, "cfg::kConsumers * kOfGroup", "kOfGroup"},
    {"dq is not scaled", "attention_backward_sm90/sums.cuh", "p.rest.scale, at.own(0)", "1.0f, at.own(0)"},
    {"a part that nobody adds is waited for", "attention_backward_sm90/sums.cuh", "!= p.parts)", "!= p.parts + 1)"},
};

/* With consumers half a step apart. */
static const struct mutation staggered_mutations[] = {
    {"dq is made before the other consumer has written its dS", SUMMING,
     "if (has_before) mbarrier_wait_parity(at.ds_full(before.slot), before.parity);", ";"},
    {"dS is written over one that is still being multiplied", SUMMING,
     "if constexpr (cfg::kStaggered) mbarrier_wait_parity(at.ds_empty(ds.slot), ds.parity ^ 1);", ";"},
    {"the last step is left out of dq", SUMMING,
     "{ return false; });\\n      if constexpr (cfg::kStaggered) finish_dq();", "{ return false; });"},
};

/* With persistent blocks. */
static const struct mutation persistent_mutations[] = {
    {"own tiles are loaded over those that are still read", PRODUCER,
     "mbarrier_wait_parity(at.own_empty(own.slot), own.parity ^ 1);", ";"},
    {"own tiles are given back while the other consumer reads them", SUMMING,
     "meet(); // both consumers' products have ended", ";"},
    {"dS is written over dk of the tile before", SUMMING, "if constexpr (!kCarries) wait_for_stores();", ";"},
    {"dv is written over a part of dq that is still being added", SUMMING,
     "if constexpr (!cfg::kSumsRows) wait_for_dq();", ";"},
    {"a tile is left out", PRODUCER, "0 : gridDim.x)", "0 : gridDim.x + 1)"},
    {"dQ of the tile before is multiplied again", SUMMING, "has_before = false;\\n    meet();", "meet();"},
};

/* With persistent blocks whose consumers stay half a step apart from tile to tile. */
static const struct mutation carrying_mutations[] = {
    {"values are loaded over those that are still read", PRODUCER,
     "mbarrier_wait_parity(at.own_value_empty(), own_value_parity);", ";"},
    {"dQ of a tile's last step is multiplied by the next tile's keys", SUMMING,
     "at.own_value(0), kCarries ? keys_before : keys.slot);", "at.own_value(0), keys.slot);"},
    {"keys are given back before dQ of the tile's last step", SUMMING, "keys.advance();\\n      own_value_parity",
     "release(at.own_empty(keys.slot)), keys.advance();\\n      own_value_parity"},
    {"dk is written over dS that the other consumer multiplies", SUMMING,
     "if constexpr (kCarries) mbarrier_wait_parity(at.ds_empty(ds.slot), ds.parity ^ 1);", ";"},
    {"dS is written over dk of the tile before", SUMMING, "wait_for_stores();\\n      mbarrier_wait_parity",
     "mbarrier_wait_parity"},
    {"dQ of the last step of all is left out", SUMMING, "if (kCarries && has_before) finish_dq();", ";"},
};

/* Where the first part of each tile of sums is stored. */
static const struct mutation storing_mutations[] = {
    {"each part is stored", ADDING, "if (atomicCAS(state, 0, 1) == 0) return true;", "return true;"},
    {"nobody stores a first part, and no zeros were written", ADDING, "if (cfg::kStores && first)", "if (false)"},
    {"a first part counts as stored before it is", ADDING,
     "cp_async_bulk_wait_group<0>();\\n    red_release_add(turn, 1);", "red_release_add(turn, 1);"},
    {"a part is added without a fence behind the first one", ADDING, "if (state) fence_async_proxy_global();", ";"},
    {"a part is added beside the first one", ADDING, "while (ld_acquire(state) != kThere)", "while (false)"},
    {"a first part is seen, and what it stored is not", ADDING, "while (ld_acquire(state) != kThere)",
     "while (*(volatile int *)state != kThere)"},
    {"a first part is told of, and what it stored is not", ADDING, "red_release_add(turn, 1);", "atomicAdd(turn, 1);"},
};

/* Where consumers split dk and dv. */
#define SPLITTING "attention_backward_sm90/splitting.cuh"
static const struct mutation splitting_mutations[] = {
    {"P is read before it is there", SPLITTING, "mbarrier_wait_parity(at.p_full(), parity);", ";"},
    {"P is written over before it is read", SPLITTING, "mbarrier_wait_parity(at.p_empty(), parity ^ 1);", ";"},
    {"a tile is given back before its product has ended", SPLITTING,
     "wgmma_wait_group<kLast ? 0 : kPending>(); // dK\\n    release_step(slot);",
     "release_step(slot);\\n    wgmma_wait_group<kLast ? 0 : kPending>();"},
    {"dk is stored over keys that are still read", SPLITTING, "meet(); // likewise for the keys and dk", ";"},
};

/* The backward call with a runtime that compiles anew. */
static kjit_status run_anew(struct gpu_fixture *fixture, const struct backward_case *one,
                            const struct gradients *gradients, kjit_error *error) {
  kjit_runtime *const kept = fixture->runtime;
  fixture->runtime = emulator_runtime_anew(error);
  const kjit_status status = backward_run(fixture, one, gradients, error);
  kjit_runtime_destroy(fixture->runtime);
  fixture->runtime = kept;
  return status;
}

/* Stopped by the emulator, or wrong. */
static bool is_caught(struct gpu_fixture *fixture, const struct backward_case *one, const struct gradients *gradients,
                      const struct mutation *mutation) {
  struct gradients_verdict verdict = {0};
  kjit_error error = {0};
  emulator_mutate(mutation->file, mutation->before, mutation->after);
  const kjit_status status = run_anew(fixture, one, gradients, &error);
  if (emulator_stopped_mutation(&fixture->card, mutation->what, status, &error)) return true;
  assert_status(KJIT_OK, gradients_judge(gradients, &verdict, &error), &error);
  if (!verdict.passed) print_message("%s: a wrong result\n", mutation->what);
  return !verdict.passed;
}

static const struct backward_case plain;

/* A mask, groups, more steps than stages, whole and ragged tiles, a gradient of lse. */
static void assert_caught(void **state, const char *arch, int32_t sums, const struct backward_case *how,
                          int64_t head_dim, const struct mutation *mutations, size_t count) {
  struct gpu_fixture *fixture = gpu_require(state);
  const struct backward_case one = {
      .problem = {.asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = 2, .heads_kv = 1, .seq_q = 220,
                                      .seq_kv = 300, .head_dim = head_dim, .flags = KJIT_ATTENTION_CAUSAL),
                  .lse = true,
                  .seed = 3},
      .choices = {.dlse = true, .seed = 4},
      .arch = arch,
      .sums = sums,
      .staggered = how->staggered,
      .persistent = how->persistent,
      .stores = how->stores,
      .in_any_order = how->persistent};
  struct attention_data data;
  struct gradients gradients;
  size_t missed = 0;
  backward_case_create(fixture, &one, &data, &gradients);
  for (size_t i = 0; i < count; i += emulator_mutation_step()) {
    if (is_caught(fixture, &one, &gradients, &mutations[i])) continue;
    print_error("%s, and the result is right\n", mutations[i].what);
    missed++;
  }
  gradients_destroy(&gradients);
  attention_data_destroy(&data);
  assert_int_equal(0, missed);
}

static void test_flash_backward__mistakes_are_caught(void **state) {
  assert_caught(state, "sm_90", 0, &plain, 64, flash_mutations, sizeof flash_mutations / sizeof *flash_mutations);
}

/* Of a head size whose kernels are pipelined. */
static void test_attention_backward_sm90__mistakes_are_caught(void **state) {
  assert_caught(state, NULL, 0, &plain, 96, sm90_mutations, sizeof sm90_mutations / sizeof *sm90_mutations);
}

static void test_attention_backward_sm90__mistakes_in_summing_dq_are_caught(void **state) {
  assert_caught(state, NULL, 64, &plain, 72, sum_mutations, sizeof sum_mutations / sizeof *sum_mutations);
}

static void test_attention_backward_sm90__mistakes_of_staggered_consumers_are_caught(void **state) {
  const struct backward_case how = {.staggered = true};
  assert_caught(state, NULL, 64, &how, 72, staggered_mutations,
                sizeof staggered_mutations / sizeof *staggered_mutations);
}

static void test_attention_backward_sm90__mistakes_of_persistent_blocks_are_caught(void **state) {
  const struct backward_case how = {.staggered = true, .persistent = true};
  assert_caught(state, NULL, 64, &how, 72, persistent_mutations,
                sizeof persistent_mutations / sizeof *persistent_mutations);
}

static void test_attention_backward_sm90__mistakes_of_consumers_that_stay_half_a_step_apart_are_caught(void **state) {
  const struct backward_case how = {.staggered = true, .persistent = true};
  assert_caught(state, NULL, 128, &how, 40, carrying_mutations, sizeof carrying_mutations / sizeof *carrying_mutations);
}

/* By two blocks at least, because what a block stored itself it need not be told of. */
static void test_attention_backward_sm90__mistakes_in_storing_first_parts_are_caught(void **state) {
  const struct backward_case how = {.persistent = true, .stores = true};
  char before[16] = "";
  snprintf(before, sizeof before, "%s", getenv("KJIT_EMULATOR_MULTIPROCESSORS"));
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "2", 1));
  assert_caught(state, NULL, 64, &how, 72, storing_mutations, sizeof storing_mutations / sizeof *storing_mutations);
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", before, 1));
}

static void test_attention_backward_sm90__mistakes_in_splitting_dk_and_dv_are_caught(void **state) {
  assert_caught(state, NULL, 0, &plain, 136, splitting_mutations,
                sizeof splitting_mutations / sizeof *splitting_mutations);
}

static int setup(void **state) {
  emulator_choose();
  (void)setenv("KJIT_EMULATOR_QUIET", "1", 1);                          /* complaints are what is wanted here */
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "1", 1)); /* a persistent block makes all tiles */
  assert_int_equal(0, setenv("KJIT_SEED", "1", 0));
  return gpu_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_backward__mistakes_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_are_caught),
  };
  /* These take the emulator a minute more. */
  const struct CMUnitTest rest[] = {
      cmocka_unit_test(test_attention_backward_sm90__mistakes_in_summing_dq_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_of_staggered_consumers_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_of_persistent_blocks_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_of_consumers_that_stay_half_a_step_apart_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_in_storing_first_parts_are_caught),
      cmocka_unit_test(test_attention_backward_sm90__mistakes_in_splitting_dk_and_dv_are_caught),
  };
  int failed = cmocka_run_group_tests_name("mutations of attention backward", tests, setup, gpu_teardown);
  if (getenv("KJIT_TEST_ALL_CONFIGS"))
    failed += cmocka_run_group_tests_name("mutations of summing dq", rest, setup, gpu_teardown);
  return failed;
}
