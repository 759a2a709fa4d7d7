/* What the real compiler makes of the kernels that compute gradients: every config that the planner can choose, over
 * all head sizes and masks, compiles without a word (ptxas's warnings on serialised wgmma are words) and within a
 * budget of spills.
 *
 * A run takes a sample of them; KJIT_TEST_ALL_CONFIGS=1 takes all. */
#include <kjit/attention_backward.h>

#include <stdbool.h>
#include <string.h>

#include "codegen.h"

#define SAMPLE 10

/* Head sizes: every multiple of 8 for all, then pairs that differ. */
static const int64_t pairs[][2] = {{192, 128}, {128, 64}, {64, 128}, {256, 8},
                                   {8, 256},   {40, 72},  {256, 64}, {96, 224}};

enum {
  EQUAL = 32,
  SIZES = EQUAL + sizeof pairs / sizeof *pairs,
  MASKS = 2,
  WANTED = 3, /* all gradients, dk alone, dv alone */
  ARCHS = 3,
  MOST = SIZES * MASKS * WANTED * ARCHS * KJIT_ATTENTION_BACKWARD_KERNELS_MAX + 8 * EQUAL
};

static const char *const archs[ARCHS] = {"sm_90a", "sm_80", "sm_86"};
static const uint32_t wanted[WANTED] = {7, KJIT_GRADIENT_K, KJIT_GRADIENT_V};

struct kernel {
  kjit_config config;
  const char *arch;
};

struct batch {
  struct codegen codegen;
  struct kernel kernels[MOST];
  double ms[MOST];
  atomic_size_t wrong;
};

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

static int compare(const void *a, const void *b) {
  const struct kernel *x = a, *y = b;
  const int by_arch = strcmp(x->arch, y->arch);
  return by_arch ? by_arch : kjit_config_compare(&x->config, &y->config);
}

static void choose(struct batch *batch, size_t size, size_t mask, size_t want, size_t arch) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  kjit_error error;
  size_t count = 0;
  problem.dtype = (size + mask) % 2 ? KJIT_FP16 : KJIT_BF16;
  problem.flags = mask ? KJIT_ATTENTION_CAUSAL : 0;
  problem.seq_q = 4096;
  problem.flags |= KJIT_ATTENTION_DETERMINISTIC; /* add_sums() has the other kernels */
  problem.head_dim = size < EQUAL ? 8 * (int64_t)(size + 1) : pairs[size - EQUAL][0];
  problem.head_dim_v = size < EQUAL ? problem.head_dim : pairs[size - EQUAL][1];
  assert_status(KJIT_OK, kjit_attention_backward_choose(&problem, wanted[want], archs[arch], configs, &count, &error),
                &error);
  for (size_t i = 0; i < count; i++) {
    const bool flash = strcmp(kjit_family_name(configs[i].family), "flash_backward") == 0;
    batch->kernels[batch->codegen.count++] = (struct kernel){configs[i], flash && arch == 0 ? "sm_90" : archs[arch]};
  }
}

/* The kernel that sums dq, which choose() does not ask for. */
static void add_sums(struct batch *batch, int32_t head_dim, int32_t causal, int32_t staggered, int32_t persistent,
                     int32_t stores) {
  const int32_t tile = head_dim <= 64 ? 128 : 64;
  const kjit_attention_backward_sm90_config config = {.dtype = causal ? KJIT_FP16 : KJIT_BF16,
                                                      .head_dim = head_dim,
                                                      .head_dim_v = head_dim,
                                                      .causal = causal,
                                                      .pass = 7,
                                                      .consumers = 2,
                                                      .tile = tile,
                                                      .stages = 2,
                                                      .value_stages = 2,
                                                      .pipelined = 1,
                                                      .direct = head_dim > 128,
                                                      .staggered = staggered,
                                                      .persistent = persistent,
                                                      .stores = stores};
  struct kernel *kernel = &batch->kernels[batch->codegen.count++];
  *kernel = (struct kernel){.config.family = kjit_family_find("attention_backward_sm90"), .arch = "sm_90a"};
  memcpy(kernel->config.values, &config, sizeof config);
}

/* What the planner chooses over the grid, and the kernels that sum dq, sorted, each once. */
static void choose_all(struct batch *batch) {
  for (size_t i = 0; i < SIZES * MASKS * WANTED * ARCHS; i++)
    choose(batch, i % SIZES, i / SIZES % MASKS, i / SIZES / MASKS % WANTED, i / SIZES / MASKS / WANTED);
  for (int32_t head_dim = 8; head_dim <= 256; head_dim += head_dim == 128 ? 72 : 8) {
    for (int32_t staggered = 0; staggered <= (head_dim <= 64); staggered++) {
      for (int32_t persistent = 0; persistent <= (head_dim <= 128); persistent++) {
        add_sums(batch, head_dim, 0, staggered, persistent, head_dim <= 128);
        add_sums(batch, head_dim, 1, staggered, persistent, persistent);
      }
    }
  }
  codegen_keep_each_once(&batch->codegen, batch->kernels, sizeof *batch->kernels, batch->codegen.count, compare);
}

/* Bytes of stores and loads together. Persistent blocks spill at the ends of tiles and in the producer, whose 24
 * registers also hold which tile comes next; at most two words a step in the consumers. */
enum { SPILL_BUDGET = 96, SPILL_BUDGET_PERSISTENT = 520 };

static uint32_t spill_budget(const kjit_config *config) {
  int32_t persistent = 0;
  kjit_error error;
  if (kjit_config_get(config, "persistent", &persistent, &error) != KJIT_OK) return SPILL_BUDGET;
  return persistent ? SPILL_BUDGET_PERSISTENT : SPILL_BUDGET;
}

static void check(struct codegen *codegen, size_t index) {
  struct batch *batch = (struct batch *)codegen;
  const struct kernel *kernel = &batch->kernels[index];
  char text[KJIT_CONFIG_TEXT_MAX] = "";
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  bool clean = false;
  if (kjit_config_build(codegen->runtime, &kernel->config, kernel->arch, 0, &artifact, &error) == KJIT_OK &&
      kjit_artifact_get_info(artifact, &info, &error) == KJIT_OK)
    clean = info.spill_bytes <= spill_budget(&kernel->config) && info.log[0] == '\0';
  batch->ms[index] = info.compile_ms;
  if (!clean && kjit_config_print(&kernel->config, 0, text, sizeof text, NULL) == KJIT_OK) {
    print_error("%s %s: %s spills %u bytes, stack %u, log \"%.300s\"\n", kernel->arch, text, error.message,
                info.spill_bytes, info.local_bytes, info.log ? info.log : "");
    atomic_fetch_add(&batch->wrong, 1);
  }
  kjit_artifact_release(artifact);
}

static int compare_ms(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void test_backward_codegen__chosen_configs_compile_without_a_word_and_within_the_budget_of_spills(void **state) {
  struct batch *batch = codegen_or_skip(state);
  const char *all = getenv("KJIT_TEST_ALL_CONFIGS");
  choose_all(batch);
  const size_t every = batch->codegen.count;
  if (!all || !*all) codegen_take_sample(&batch->codegen, batch->kernels, sizeof *batch->kernels, SAMPLE);
  codegen_compile_all(&batch->codegen, check);
  qsort(batch->ms, batch->codegen.count, sizeof *batch->ms, compare_ms);
  print_message("%zu of %zu configs, median %.0f ms, most %.0f\n", batch->codegen.count, every,
                batch->ms[batch->codegen.count / 2], batch->ms[batch->codegen.count - 1]);
  const size_t wrong = atomic_load(&batch->wrong);
  if (wrong) fail_msg("%zu of %zu configs are not clean", wrong, batch->codegen.count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(
          test_backward_codegen__chosen_configs_compile_without_a_word_and_within_the_budget_of_spills, setup,
          codegen_teardown),
  };
  return cmocka_run_group_tests_name("backward_codegen", tests, NULL, NULL);
}
