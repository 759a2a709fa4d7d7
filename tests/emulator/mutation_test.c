/* Kernels with one mistake each, made by replacing a piece of the source: the emulator must not find them right. The
 * piece must stand in the source exactly once; otherwise the compile fails, and the test with it. */
#include "emulator_fixture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/configs.h"
#include "support/test.h"

struct mutation {
  const char *what, *file, *before, *after;
};

static const struct mutation flash_mutations[] = {
    {"nobody waits for a K that is on its way", "flash_forward/flash_forward.cu",
     "wait_for_copies<0>();\\n    __syncthreads(); // K of block j is visible", "__syncthreads(); // K of"},
    {"V is loaded over the one that is still read", "flash_forward/flash_forward.cu",
     "__syncthreads(); // K of block j is visible", "// K of"},
    {"slices are added to the swizzled offset", "kjit/shared_tile.cuh", "(base ^ (uint32_t)(slice_in_band",
     "(base + (uint32_t)(slice_in_band"},
    {"keys behind the end count", "flash_forward/flash_forward.cu", "if constexpr (kMasked) mask(s, j);", ";"},
    {"the output goes over rows that are still read", "flash_forward/flash_forward.cu",
     "__syncwarp(); // the rows below were written by other lanes", ""},
};

static const struct mutation attention_mutations[] = {
    {"the producer looks at the wrong phase of K", "attention_sm90/producer.cuh",
     "mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);",
     "mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity);"},
    {"the producer overwrites K that is still read", "attention_sm90/producer.cuh",
     "mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);", ";"},
    {"consumers do not wait for V", "attention_sm90/consumer.cuh",
     "issue_scores(buffer);\\n    mbarrier_wait_parity(at.values_full(values.slot), values.parity);",
     "issue_scores(buffer);\\n"},
    {"K is given back while it is read", "attention_sm90/consumer.cuh",
     "issue_both(buffer, accumulate);\\n    wait_for_scores();", "issue_both(buffer, accumulate);\\n"},
    {"probabilities are replaced while they are multiplied", "attention_sm90/consumer.cuh",
     "wgmma_wait_group<0>();\\n    release_values();\\n    next_softmax<kMasked>();",
     "next_softmax<kMasked>();\\n    release_values();"},
    {"the output is swizzled otherwise than TMA has it", "attention_sm90/bands.cuh", "^ (row % 8)) << 4",
     "^ (row % 4)) << 4"},
    {"TMA does not see the output", "attention_sm90/consumer.cuh", "fence_async_proxy();", ";"},
    {"the next Q comes before the output has left", "attention_sm90/consumer.cuh",
     "cp_async_bulk_wait_group_read<0>(); // the next Q may overwrite it", ";"},
    {"a step of 16 columns is 16 bytes", "attention_sm90/bands.cuh", "depth % 4 * 32", "depth % 4 * 16"},
};

static const struct mutation short_mutations[] = {
    {"the producer overwrites a head that is still read", "attention_short_sm90/producer.cuh",
     "mbarrier_wait_parity(at.head_empty(heads.slot), heads.parity ^ 1);", ";"},
    {"the next Q comes before the output has left", "attention_short_sm90/consumer.cuh",
     "cp_async_bulk_wait_group_read<0>();", ";"},
    {"a head is given back by a consumer that has not waited for it", "attention_short_sm90/consumer.cuh",
     "mbarrier_wait_parity(at.keys_full(heads.slot), heads.parity);",
     "if (number < end) mbarrier_wait_parity(at.keys_full(heads.slot), heads.parity);"},
    {"keys behind the end count", "attention_short_sm90/consumer.cuh", "mask(tile, s[0]);", ";"},
    {"TMA does not see the output", "attention_short_sm90/consumer.cuh", "fence_async_proxy();", ";"},
    {"a run begins with its head's first tile", "attention_short_sm90/schedule.cuh",
     "first = index * tiles_of_head() - number;", "first = 0;"},
};

/* Of heads so large that one Q is in shared memory and O leaves in two halves. */
static const struct mutation attention_one_query[] = {
    {"half of O goes over the other that is still leaving", "attention_sm90/consumer.cuh",
     "if (thread == 0) cp_async_bulk_wait_group_read<0>();", ";"},
    {"Q is given back before its last product", "attention_sm90/consumer.cuh", "block == key_blocks_of(p, tile).first",
     "block >= key_blocks_of(p, tile).first"},
    {"the second half of O is the first one again", "attention_sm90/consumer.cuh",
     "store_band(p, tile, consumer, out + (i - first) * cfg::kBandBytes, i);",
     "store_band(p, tile, consumer, out + (i - first) * cfg::kBandBytes, i - first);"},
};

/* With O's own memory beside two Q buffers. */
static const struct mutation attention_late_store[] = {
    {"O goes over the tile before that is still leaving", "attention_sm90/consumer.cuh",
     "if (thread == 0) cp_async_bulk_wait_group_read<0>();", ";"},
    {"O goes over the tile before that was never handed over", "attention_sm90/consumer.cuh",
     "store_finished();\\n    wait_for_output_memory();", ";"},
    {"the last tile is not handed over", "attention_sm90/consumer.cuh",
     "store_finished();\\n    if (thread == 0) cp_async_bulk_wait_group<0>();",
     "if (thread == 0) cp_async_bulk_wait_group<0>();"},
    {"O of the tile before is stored as this tile's", "attention_sm90/consumer.cuh", "finished = tile;", ";"},
};

/* With a tile's keys shared out among blocks of threads: mistakes in the order of their accesses to global memory. */
#define PARTIALS "attention_sm90/partials.cuh"
static const struct mutation attention_split[] = {
    {"a partial result is not visible when its block arrives", PARTIALS,
     "__threadfence(); // the warpgroup's writes come before the arrival", ";"},
    {"the last to arrive does not see what the others wrote", PARTIALS,
     "__threadfence();        // the others' arrivals come before what is read of them", ";"},
    {"a warpgroup arrives before all of it have written", PARTIALS,
     "bar_sync(barrier, kThreadsPerWarpgroup);\\n    if (thread == 0) {", "if (thread == 0) {"},
};

/* Likewise by attention_decode_sm90. */
#define MEETING "attention_decode_sm90/merge.cuh"
static const struct mutation decode_split[] = {
    {"a partial result is not visible when its block arrives", MEETING,
     "__threadfence(); // the block's partial result comes before its arrival", ";"},
    {"who waited does not see what the others wrote", MEETING, "__nanosleep(20);\\n      __threadfence();",
     "__nanosleep(20);"},
};

/* With a tile's result so large that each block of threads merges several rounds of quads of it. */
static const struct mutation decode_slices[] = {
    {"only the first round of a slice is merged", MEETING, "quad += slices.count * slices.at_once",
     "quad += slices.quads"},
    {"the last round is a whole one", MEETING, "exists = quad < slices.quads", "exists = true"},
};

/* With scores so far apart that a row outgrows the slack that leaves the output as it is. */
#define LARGE_SCALE 2.0
static const struct mutation flash_rescale = {"the output keeps its old maximum", "flash_forward/flash_forward.cu",
                                              "if constexpr (!kFirst) softmax.rescale(o, factors);", ";"};
static const struct mutation attention_rescale[] = {
    {"the output keeps its old maximum", "softmax/online_softmax.cuh",
     "set_max<false>(now, factors, scale_log2);\\n    rescale(o, factors);",
     "set_max<false>(now, factors, scale_log2);"},
    {"the step keeps its old maximum", "attention_sm90/consumer.cuh", "exponentiate_scores(added);\\n      if (cfg",
     "if (tries == 0) exponentiate_scores(added);\\n      if (cfg"},
};

/* A call with a runtime that compiles anew. */
typedef kjit_status (*forward)(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream,
                               kjit_error *error);

static kjit_status run_anew(const struct gpu_fixture *fixture, const struct gpu_trial *trial, forward call,
                            kjit_error *error) {
  assert_status(KJIT_OK, attention_data_poison(&trial->data, fixture->card.stream, error), error);
  kjit_runtime *const runtime = emulator_runtime_anew(error);
  const kjit_status status = call(runtime, trial, fixture->card.stream, error);
  kjit_runtime_destroy(runtime);
  return status;
}

/* Stopped by the emulator, or wrong. */
static bool is_caught(const struct gpu_fixture *fixture, const struct gpu_trial *trial, forward call,
                      const struct mutation *mutation) {
  struct attention_verdict verdict = {0};
  kjit_error error = {0};
  emulator_mutate(mutation->file, mutation->before, mutation->after);
  const kjit_status status = run_anew(fixture, trial, call, &error);
  if (emulator_stopped_mutation(&fixture->card, mutation->what, status, &error)) return true;
  assert_status(KJIT_OK, attention_judge(&trial->data, &trial->reference, &verdict, &error), &error);
  if (!verdict.passed) print_message("%s: a wrong result\n", mutation->what);
  return !verdict.passed;
}

static void assert_caught(void **state, const struct trial_problem *problem, forward call,
                          const struct mutation *mutations, size_t count) {
  const struct gpu_fixture *fixture = gpu_require(state);
  struct gpu_trial trial;
  size_t missed = 0;
  gpu_trial_create(&trial, &fixture->kernels, problem);
  for (size_t i = 0; i < count; i += emulator_mutation_step()) {
    if (is_caught(fixture, &trial, call, &mutations[i])) continue;
    print_error("%s, and the result is right\n", mutations[i].what);
    missed++;
  }
  gpu_trial_destroy(&trial);
  assert_int_equal(0, missed);
}

static kjit_status run_flash(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream, kjit_error *error) {
  kjit_flash_config config;
  const kjit_status status = kjit_flash_config_parse(
      "(FP16, 64, 64, 32, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax", &config, error);
  return status == KJIT_OK ? plain_forward(runtime, &config, &trial->data.args, stream, error) : status;
}

static struct trial_problem flash_problem(double scale) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = KJIT_FP16, .batch = 1, .heads_q = 1, .seq_q = 64, .seq_kv = 145, .head_dim = 64),
      .scale = scale,
      .lse = 1,
      .seed = 1};
}

static void test_flash_forward__mistakes_are_caught(void **state) {
  const struct trial_problem problem = flash_problem(0);
  assert_caught(state, &problem, run_flash, flash_mutations, sizeof flash_mutations / sizeof *flash_mutations);
}

static void test_flash_forward__a_forgotten_rescale_is_caught(void **state) {
  const struct trial_problem problem = flash_problem(LARGE_SCALE);
  assert_caught(state, &problem, run_flash, &flash_rescale, 1);
}

static kjit_status run_attention(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream,
                                 kjit_error *error) {
  return kjit_attention_forward(runtime, NULL, &trial->data.args, stream, error);
}

/* More key blocks than stages, and more tiles than blocks, so that every buffer is used again. */
static struct trial_problem attention_problem(double scale) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 2, .heads_q = 3, .seq_q = 300, .seq_kv = 700, .head_dim = 64),
      .scale = scale,
      .lse = 1,
      .seed = 1};
}

static void test_attention__mistakes_are_caught(void **state) {
  const struct trial_problem problem = attention_problem(0);
  assert_caught(state, &problem, run_attention, attention_mutations,
                sizeof attention_mutations / sizeof *attention_mutations);
}

static kjit_status run_config(const char *family, const char *text, kjit_runtime *runtime,
                              const struct gpu_trial *trial, CUstream stream, kjit_error *error) {
  kjit_config config;
  const kjit_status status = kjit_config_parse(kjit_family_find(family), text, &config, error);
  return status == KJIT_OK ? kjit_attention_forward(runtime, &config, &trial->data.args, stream, error) : status;
}

static kjit_status run_short(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream, kjit_error *error) {
  static const char text[] = "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,tile_n=80,consumers=4,stages=2,q_buffers=2,"
                             "blocks_per_sm=1";
  return run_config("attention_short_sm90", text, runtime, trial, stream, error);
}

static kjit_status run_late_store(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream,
                                  kjit_error *error) {
  static const char text[] = "dtype=bf16,head_dim=64,head_dim_v=64,causal=1,consumers=2,tile_n=128,stages=2,"
                             "q_buffers=2,o_chunks=1,ping_pong=1,rescale_slack=15,packed=1,split=0";
  return run_config("attention_sm90", text, runtime, trial, stream, error);
}

static kjit_status run_split(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream, kjit_error *error) {
  static const char text[] = "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,consumers=1,tile_n=128,stages=2,"
                             "q_buffers=1,o_chunks=0,ping_pong=0,rescale_slack=15,packed=1,split=1";
  return run_config("attention_sm90", text, runtime, trial, stream, error);
}

static kjit_status run_decode(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream,
                              kjit_error *error) {
  static const char text[] = "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,rows=16,tile_n=64,stages=3,blocks_per_sm=2";
  return run_config("attention_decode_sm90", text, runtime, trial, stream, error);
}

static kjit_status run_wide_decode(kjit_runtime *runtime, const struct gpu_trial *trial, CUstream stream,
                                   kjit_error *error) {
  static const char text[] =
      "dtype=bf16,head_dim=192,head_dim_v=192,causal=0,rows=32,tile_n=96,stages=2,blocks_per_sm=1";
  return run_config("attention_decode_sm90", text, runtime, trial, stream, error);
}

static struct trial_problem few_rows(int64_t rows) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = 2, .seq_q = rows, .seq_kv = 1500, .head_dim = 64),
      .lse = 1,
      .seed = 1};
}

static void test_attention__mistakes_in_merging_parts_are_caught(void **state) {
  const struct trial_problem problem = few_rows(64);
  assert_caught(state, &problem, run_split, attention_split, sizeof attention_split / sizeof *attention_split);
}

static void test_attention_decode__mistakes_in_merging_parts_are_caught(void **state) {
  const struct trial_problem problem = few_rows(1);
  assert_caught(state, &problem, run_decode, decode_split, sizeof decode_split / sizeof *decode_split);
}

static void test_attention_decode__mistakes_in_slices_of_rounds_are_caught(void **state) {
  const struct trial_problem problem = {.asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = 7, .heads_kv = 1,
                                                            .seq_q = 3, .seq_kv = 500, .head_dim = 192),
                                        .lse = 1,
                                        .seed = 1};
  char before[16];
  snprintf(before, sizeof before, "%s", getenv("KJIT_EMULATOR_MULTIPROCESSORS"));
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "8", 1)); /* six parts */
  assert_caught(state, &problem, run_wide_decode, decode_slices, sizeof decode_slices / sizeof *decode_slices);
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", before, 1));
}

/* Three tiles a head for four consumers, so that some have none of it; runs of several heads that begin within one. */
static void test_attention_short__mistakes_are_caught(void **state) {
  const struct trial_problem problem = {
      .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 7, .heads_q = 3, .seq_q = 140, .seq_kv = 70, .head_dim = 64),
      .lse = 1,
      .seed = 1};
  assert_caught(state, &problem, run_short, short_mutations, sizeof short_mutations / sizeof *short_mutations);
}

static void test_attention__mistakes_with_one_query_buffer_are_caught(void **state) {
  struct trial_problem problem = attention_problem(0);
  problem.asked.seq_kv = 250; /* too few to be shared out */
  problem.asked.head_dim = 256;
  assert_caught(state, &problem, run_attention, attention_one_query,
                sizeof attention_one_query / sizeof *attention_one_query);
}

/* Four tiles for each block of threads, most of a single step, so that a tile's O follows the one before closely. */
static void test_attention__mistakes_with_late_stores_are_caught(void **state) {
  const struct trial_problem problem = {.asked =
                                            PROBLEM_OF(.dtype = KJIT_BF16, .batch = 2, .heads_q = 4, .seq_q = 250,
                                                       .seq_kv = 250, .head_dim = 64, .flags = KJIT_ATTENTION_CAUSAL),
                                        .lse = 1,
                                        .seed = 1};
  assert_caught(state, &problem, run_late_store, attention_late_store,
                sizeof attention_late_store / sizeof *attention_late_store);
}

static void test_attention__a_forgotten_rescale_is_caught(void **state) {
  const struct trial_problem problem = attention_problem(LARGE_SCALE);
  assert_caught(state, &problem, run_attention, attention_rescale,
                sizeof attention_rescale / sizeof *attention_rescale);
}

static int setup(void **state) {
  (void)setenv("KJIT_EMULATOR_QUIET", "1", 1); /* complaints are what is wanted here */
  return emulator_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_forward__mistakes_are_caught),
      cmocka_unit_test(test_flash_forward__a_forgotten_rescale_is_caught),
      cmocka_unit_test(test_attention__mistakes_are_caught),
      cmocka_unit_test(test_attention_short__mistakes_are_caught),
      cmocka_unit_test(test_attention__mistakes_with_one_query_buffer_are_caught),
      cmocka_unit_test(test_attention__mistakes_with_late_stores_are_caught),
      cmocka_unit_test(test_attention__a_forgotten_rescale_is_caught),
      cmocka_unit_test(test_attention__mistakes_in_merging_parts_are_caught),
      cmocka_unit_test(test_attention_decode__mistakes_in_merging_parts_are_caught),
      cmocka_unit_test(test_attention_decode__mistakes_in_slices_of_rounds_are_caught),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("mutations", tests, setup, gpu_teardown);
}
