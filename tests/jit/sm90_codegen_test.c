/* What the real compiler makes of attention_sm90's configs: every one that the planner can choose over a grid of
 * problems compiles without a word (ptxas's warnings on serialised wgmma are words) and within a budget of spills.
 *
 * A run takes a sample of them; KJIT_TEST_ALL_CONFIGS=1 takes all. */
#include <kjit/attention_sm90.h>

#include <stdbool.h>

#include "codegen.h"
#include "support/attention_grid.h"
#include "support/configs.h"

#define SAMPLE 12

/* What came of a config. */
struct outcome {
  double ms; /* compiling, by the clock on the wall */
  size_t bytes;
};

struct batch {
  struct codegen codegen;
  kjit_config configs[ATTENTION_GRID_SIZE];
  struct outcome outcomes[ATTENTION_GRID_SIZE];
  atomic_size_t wrong;
};

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

static int compare(const void *a, const void *b) {
  return kjit_config_compare(a, b);
}

/* What the planner chooses of the family over the grid, sorted, each once. */
static void choose_all(struct batch *batch) {
  const kjit_family *const family = kjit_family_find("attention_sm90");
  size_t chosen = 0;
  for (size_t i = 0; i < ATTENTION_GRID_SIZE; i++) {
    const kjit_attention_problem problem = attention_grid_problem(i);
    kjit_config *const config = &batch->configs[chosen];
    kjit_error error;
    assert_status(KJIT_OK, kjit_attention_choose(NULL, &problem, "sm_90a", config, NULL, &error), &error);
    chosen += config->family == family;
  }
  codegen_keep_each_once(&batch->codegen, batch->configs, sizeof *batch->configs, chosen, compare);
}

/* Stores and loads together. Two 8-byte values where three consumers, or 160 keys, leave no register, three where
 * packed heads of more than 128 columns take one more; a part's place among the others takes registers through all of
 * its steps, for which the widest heads, whose O fills half of them, have no room. */
static uint32_t spill_budget(const kjit_config *config) {
  const kjit_attention_sm90_config sm90 = sm90_of(config);
  if (sm90.head_dim_v <= 128) return 16;
  return sm90.split ? 320 : sm90.consumers == 3 && sm90.packed > 1 ? 24 : 16;
}

static void check(struct codegen *codegen, size_t index) {
  struct batch *batch = (struct batch *)codegen;
  const kjit_config *config = &batch->configs[index];
  kjit_artifact_info info;
  if (!codegen_is_clean(codegen, config, "sm_90a", spill_budget(config), &info)) atomic_fetch_add(&batch->wrong, 1);
  batch->outcomes[index] = (struct outcome){info.compile_ms, info.cubin_bytes};
}

static int compare_ms(const void *a, const void *b) {
  const double x = ((const struct outcome *)a)->ms, y = ((const struct outcome *)b)->ms;
  return (x > y) - (x < y);
}

static int compare_bytes(const void *a, const void *b) {
  const size_t x = ((const struct outcome *)a)->bytes, y = ((const struct outcome *)b)->bytes;
  return (x > y) - (x < y);
}

/* One line of the table: kernels with or without packed heads, whole or split. */
static void print_kind(const struct batch *batch, int packed, int split) {
  static struct outcome kind[ATTENTION_GRID_SIZE];
  size_t count = 0;
  for (size_t i = 0; i < batch->codegen.count; i++) {
    const kjit_attention_sm90_config config = sm90_of(&batch->configs[i]);
    if ((config.packed > 1) == packed && config.split == split) kind[count++] = batch->outcomes[i];
  }
  if (count == 0) return;
  qsort(kind, count, sizeof *kind, compare_ms);
  const size_t middle = count / 2;
  const double median = kind[middle].ms, most = kind[count - 1].ms;
  qsort(kind, count, sizeof *kind, compare_bytes);
  print_message("| %-8s | %-5s | %5zu | %10.0f | %8.0f | %10.1f | %8.1f |\n", packed ? "packed" : "one each",
                split ? "split" : "whole", count, median, most, (double)kind[middle].bytes / 1000,
                (double)kind[count - 1].bytes / 1000);
}

static void print_table(const struct batch *batch) {
  print_message("| heads    | tiles | count | median, ms | most, ms | median, KB | most, KB |\n");
  for (int kind = 0; kind < 4; kind++)
    print_kind(batch, kind / 2, kind % 2);
}

static void test_sm90_codegen__chosen_configs_compile_without_a_word_and_within_the_budget_of_spills(void **state) {
  struct batch *batch = codegen_or_skip(state);
  const char *all = getenv("KJIT_TEST_ALL_CONFIGS");
  choose_all(batch);
  if (!all || !*all) codegen_take_sample(&batch->codegen, batch->configs, sizeof *batch->configs, SAMPLE);
  print_message("%zu configs\n", batch->codegen.count);
  codegen_compile_all(&batch->codegen, check);
  print_table(batch);
  const size_t wrong = atomic_load(&batch->wrong);
  if (wrong) fail_msg("%zu of %zu configs are not clean", wrong, batch->codegen.count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(
          test_sm90_codegen__chosen_configs_compile_without_a_word_and_within_the_budget_of_spills, setup,
          codegen_teardown),
  };
  return cmocka_run_group_tests_name("sm90_codegen", tests, NULL, NULL);
}
