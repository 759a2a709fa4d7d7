/* What the real compiler makes of the kernels that serving needs: for models of many shapes, every kernel compiles
 * without a word and within a budget of spills, and a model needs few of them. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kjit/attention_serving.h>

#include "codegen.h"

/* Bytes stored and loaded together, of a thread. Two blocks of 64 rows with heads of 256 columns on a multiprocessor
 * leave 255 registers, of which O and S take 144; three blocks of 16 rows leave 168. */
#define MOST_SPILLED 210

/* Kernels that spill more: those of a family whose field is at least `least`, with a cache of 8 bits or of any. A step
 * of the loop over keys accesses none of it with 8 bits, one word in runs, and at most seven in prefill. */
static const struct budget {
  const char *family, *field;
  int32_t least;
  bool is_narrow;
  uint32_t most;
} budgets[] = {
    {"attention_serving", "head_dim", 136, true, 470}, /* addresses that all tiles have in common */
    {"attention_serving_sm90", "runs", 1, false, 270}, /* the state of a run */
    {"attention_prefill_sm90", "few", 1, false, 410},  /* what is needed between tiles */
};

static const struct model {
  int64_t heads_q, heads_kv, head_dim, head_dim_v, page;
  int32_t dtype, softcap, cache; /* cache 0: of dtype */
} models[] = {
    {32, 8, 128, 128, 16, KJIT_BF16, 0, 0},
    {64, 8, 64, 64, 16, KJIT_FP16, 0, 0},
    {16, 8, 256, 256, 0, KJIT_BF16, 1, 0},
    {16, 16, 192, 128, 64, KJIT_BF16, 0, 0},
    {12, 12, 40, 40, 0, KJIT_FP16, 0, 0},
    {16, 1, 128, 128, 1, KJIT_FP16, 1, 0},
    {32, 8, 128, 128, 16, KJIT_BF16, 0, KJIT_FP8_E4M3},
    {16, 8, 192, 192, 0, KJIT_BF16, 0, KJIT_FP8_E4M3},
    {16, 8, 256, 256, 16, KJIT_BF16, 0, KJIT_FP8_E4M3},
};
enum { MODELS = sizeof models / sizeof *models };

/* The first model's kernels are compiled, and one kernel of attention for each of the others, each for one of these;
 * with KJIT_TEST_ALL_CONFIGS=1 all for all of them. */
static const char *const archs[] = {"sm_90", "sm_90a", "sm_80", "sm_86", "sm_120"};
enum {
  ARCHS = sizeof archs / sizeof *archs,
  TILES = 3, /* of attend: a model has a kernel for each */
  MOST = MODELS * ARCHS * KJIT_SERVING_KERNELS_MAX
};

struct batch {
  struct codegen codegen;
  kjit_config configs[MOST];
  const char *archs[MOST];
  atomic_size_t wrong;
};

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

/* 0 where the family has no such field. */
static int32_t field_of(const kjit_config *config, const char *name) {
  int32_t value;
  return kjit_config_get(config, name, &value, NULL) == KJIT_OK ? value : 0;
}

static uint32_t budget_of(const kjit_config *config) {
  uint32_t most = MOST_SPILLED;
  for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
    const struct budget *const budget = &budgets[i];
    if (config->family == kjit_family_find(budget->family) && field_of(config, budget->field) >= budget->least &&
        (!budget->is_narrow || field_of(config, "cache") == KJIT_FP8_E4M3))
      most = budget->most;
  }
  return most;
}

static void check(struct codegen *codegen, size_t index) {
  struct batch *batch = (struct batch *)codegen;
  const kjit_config *const config = &batch->configs[index];
  if (!codegen_is_clean(codegen, config, batch->archs[index], budget_of(config), NULL))
    atomic_fetch_add(&batch->wrong, 1);
}

/* A family without a field for the pass has that one alone. */
static bool is_attend(const kjit_config *config) {
  return field_of(config, "pass") == KJIT_SERVING_ATTEND;
}

static void choose_all(struct batch *batch) {
  const bool sample = CODEGEN_STEP != 1;
  for (size_t i = 0; i < MODELS * ARCHS; i++) {
    const struct model *const shape = &models[i / ARCHS];
    if (sample && i / ARCHS % ARCHS != i % ARCHS) continue;
    kjit_serving_model model = kjit_serving_model_default();
    kjit_error error;
    size_t count;
    model.dtype = shape->dtype;
    model.softcap = shape->softcap;
    model.cache = shape->cache;
    model.heads_q = shape->heads_q;
    model.heads_kv = shape->heads_kv;
    model.head_dim = shape->head_dim;
    model.head_dim_v = shape->head_dim_v;
    model.page_size = shape->page;
    kjit_config found[KJIT_SERVING_KERNELS_MAX];
    assert_status(KJIT_OK, kjit_attention_serving_kernels(&model, archs[i % ARCHS], found, &count, &error), &error);
    const size_t least = strcmp(archs[i % ARCHS], "sm_90a") != 0; /* of sm_90a none for pages of 1: no TMA */
    assert_in_range(count, least, KJIT_SERVING_KERNELS_MAX);
    for (size_t j = 0, tile = 0; j < count; j++) {
      if (sample && i >= ARCHS && (!is_attend(&found[j]) || tile++ != i / ARCHS % TILES)) continue;
      batch->configs[batch->codegen.count] = found[j];
      batch->archs[batch->codegen.count++] = archs[i % ARCHS];
    }
  }
}

static void test_serving_codegen__kernels_of_models_compile_without_a_word_and_within_the_budget(void **state) {
  struct batch *batch = codegen_or_skip(state);
  choose_all(batch);
  print_message("%zu kernels\n", batch->codegen.count);
  codegen_compile_all(&batch->codegen, check);
  const size_t wrong = atomic_load(&batch->wrong);
  if (wrong) fail_msg("%zu of %zu kernels are not clean", wrong, batch->codegen.count);
}

/* True when a kernel of few tiles has the policy by which lines of L2 are the first to be replaced, whose upper word is
 * the second of the four words of an instruction. */
static bool replaces_lines_first(const struct codegen *codegen, int head_dim, bool is_gathered) {
  const uint32_t upper = 0x12f00000;
  char text[256];
  kjit_config config;
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error;
  snprintf(text, sizeof text,
           "dtype=bf16,cache=bf16,head_dim=%d,head_dim_v=%d,rows=64,keys=64,stages=%d,blocks_per_sm=2,softcap=0,"
           "one_part=1,gathered=%d,runs=0,grouped=0,apart=0",
           head_dim, head_dim, 2 + is_gathered, is_gathered);
  assert_status(KJIT_OK, kjit_config_parse(kjit_family_find("attention_serving_sm90"), text, &config, &error), &error);
  assert_status(KJIT_OK, kjit_config_build(codegen->runtime, &config, "sm_90a", 0, &artifact, &error), &error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &error), &error);
  bool found = false;
  for (size_t at = 0; at + 16 <= info.cubin_bytes && !found; at += 16) {
    uint32_t words[2];
    memcpy(words, (const char *)info.cubin + at, sizeof words);
    found = words[0] != 0 && words[1] == upper;
  }
  kjit_artifact_release(artifact);
  return found;
}

static void test_serving_codegen__lines_that_neighbouring_heads_share_are_not_replaced_first(void **state) {
  const struct batch *batch = codegen_or_skip(state);
  for (int is_gathered = 0; is_gathered < 2; is_gathered++) {
    assert_true(replaces_lines_first(&batch->codegen, 128, is_gathered));
    assert_false(replaces_lines_first(&batch->codegen, 96, is_gathered));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(
          test_serving_codegen__kernels_of_models_compile_without_a_word_and_within_the_budget, setup,
          codegen_teardown),
      cmocka_unit_test_setup_teardown(test_serving_codegen__lines_that_neighbouring_heads_share_are_not_replaced_first,
                                      setup, codegen_teardown),
  };
  return cmocka_run_group_tests_name("serving_codegen", tests, NULL, NULL);
}
