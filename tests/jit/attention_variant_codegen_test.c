/* What the real compiler makes of attention variants in all families, forward and backward: an empty log (ptxas's
 * warnings on serialised wgmma are words) and spills within a budget, for configs that the planner chooses. */
#include <kjit/attention_backward.h>
#include <kjit/attention_variant.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "attention/attention_variant_kernels.h"
#include "attention/backward/backward_call.h"
#include "attention/flash/flash_choose.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/variant/variant.h"
#include "codegen.h"
#include "family/config.h"
#include "family/config_build.h"
#include "jit/builder.h"
#include "runtime/runtime_internal.h"

struct variant_row {
  const char *name, *score, *mask;
  bool lists;
  int tiled; /* 1: terms lie in a tensor, 2: and their rows at multiples of 16 bytes, 3: and TMA can bring them */
  int gathered;
  uint32_t budget; /* bytes of spills, stores and loads together, of attention_sm90; of flash_forward */
  uint32_t flash_budget;
};

/* Three consumers of heads of 64 have 160 registers a thread, of which scores, output and probabilities take 128. Terms
 * that lie in a tensor take 32 more, with two consumers. */
static const struct variant_row rows[] = {
    {"window", NULL, "q - k <= window && q >= k", false, 0, 0, 16, 128},
    {"streaming", NULL, "(q - k <= window && q >= k) || k < 4", false, 0, 0, 192, 160},
    {"document", NULL, "doc[b, q] == doc[b, k]", true, 0, 0, 96, 160},
    {"natten", NULL, "abs(clamp(q // 64, 4, 59) - k // 64) <= 4 && abs(clamp(q % 64, 4, 59) - k % 64) <= 4", true,
     false, 0, 96, 160},
    {"alibi", "score + slope[h] * float(k - q)", NULL, false, 0, 0, 16, 128},
    {"softcap", "cap * tanh(score / cap)", NULL, false, 0, 0, 16, 128},
    {"bias", "score + bias[b, h, q, k]", NULL, false, 1, 0, 16, 96},
    {"bias, staged", "score + bias[b, h, q, k]", NULL, false, 2, 0, 16, 96},
    {"bias, in boxes", "score + bias[b, h, q, k]", NULL, false, 3, 0, 16, 96},
    {"bias in fp32", "score + fp32_bias[b, h, q, k]", NULL, false, 0, 1, 208, 290},
    {"two biases", "score + bias[b, h, q, k] + fp32_bias[b, h, q, k]", NULL, false, 0, 2, 860, 680},
    {"alibi and document", "score + slope[h] * float(k - q)", "doc[b, q] == doc[b, k] && q >= k", true, 0, 0, 144, 176},
};
enum { ROWS = sizeof rows / sizeof *rows, HEADS = 3, KERNELS = 2 };
static const int64_t head_dims[HEADS] = {64, 128, 256};

struct batch {
  struct codegen codegen;
  atomic_size_t wrong;
};

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

struct wanted {
  struct builder *builder;
  kjit_artifact **out;
};

static kjit_status get_artifact(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted *wanted = user;
  return builder_get(wanted->builder, request, wanted->out, error);
}

static kjit_status make_variant(const struct variant_row *row, kjit_attention_variant **out, kjit_error *error) {
  static const kjit_variant_scalar scalars[] = {{"window", KJIT_VARIANT_INT32}, {"cap", KJIT_VARIANT_FP32}};
  static const kjit_variant_tensor tensors[] = {
      {"doc", KJIT_INT32, 2}, {"slope", KJIT_FP32, 1}, {"bias", KJIT_BF16, 4}, {"fp32_bias", KJIT_FP32, 4}};
  const kjit_attention_variant_text text = {.struct_size = sizeof text,
                                            .score = row->score,
                                            .mask = row->mask,
                                            .scalars = scalars,
                                            .scalar_count = 2,
                                            .tensors = tensors,
                                            .tensor_count = 4};
  return kjit_attention_variant_create(out, &text, error);
}

#define DEFINES(lists, pairs)                                                                                          \
  "#define KJIT_variant 1\n#define KJIT_variant_lists " #lists "\n#define KJIT_variant_map 0\n"                        \
  "#define KJIT_variant_sinks 1\n#define KJIT_variant_pairs " #pairs "\n"

static kjit_status build(kjit_runtime *runtime, const struct variant_row *row, const kjit_config *config,
                         const char *arch, kjit_artifact **out, kjit_error *error) {
  kjit_attention_variant *variant = NULL;
  kjit_status status = make_variant(row, &variant, error);
  if (status != KJIT_OK) return status;
  const struct config_extra extra = {
      .name = VARIANT_HEADER_NAME,
      .text = variant->header,
      .bytes = variant->header_bytes,
      .defines = row->lists        ? DEFINES(1, 1)
                 : row->tiled == 3 ? DEFINES(0, 3)
                 : row->tiled == 2 ? DEFINES(0, 2)
                                   : DEFINES(0, 1),
      .digest = variant->digest,
      .closure_main = "attention_variant/block_list.cu",
  };
  struct wanted wanted = {runtime_builder(runtime), out};
  const struct config_act act = {.run = get_artifact, .user = &wanted, .arch = arch, .extra = &extra};
  status = config_request_run(runtime, config->family, config->values, &act, error);
  kjit_attention_variant_free(variant);
  return status;
}

static bool is_clean(kjit_runtime *runtime, const struct variant_row *row, const kjit_config *config, const char *arch,
                     uint32_t budget) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  bool clean = false;
  if (build(runtime, row, config, arch, &artifact, &error) == KJIT_OK &&
      kjit_artifact_get_info(artifact, &info, &error) == KJIT_OK)
    clean = info.spill_bytes <= budget && info.log[0] == '\0';
  if (!clean)
    print_error("%s on %s: %.300s spills %u bytes of %u, log \"%.300s\"\n", row->name, arch, error.message,
                info.spill_bytes, budget, info.log ? info.log : "");
  kjit_artifact_release(artifact);
  return clean;
}

/* Of rows x head sizes x families every `step`th, a number that has no divisor in common with the last two, so that a
 * sample has all of them; all with KJIT_TEST_ALL_CONFIGS=1. */
static size_t sample_step(void) {
  return CODEGEN_STEP == 1 ? 1 : 7;
}

static void check(struct codegen *codegen, size_t nth) {
  struct batch *batch = (struct batch *)codegen;
  const size_t index = nth * sample_step();
  const struct variant_row *row = &rows[index / (HEADS * KERNELS)];
  const bool is_flash = index % KERNELS;
  const char *arch = is_flash ? "sm_80" : "sm_90a";
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config config;
  kjit_error error = {0};
  problem.dtype = KJIT_BF16;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  problem.heads_q = 16;
  problem.seq_q = problem.seq_kv = 4096;
  problem.head_dim = problem.head_dim_v = head_dims[index / KERNELS % HEADS];
  const bool chosen = kjit_attention_choose(NULL, &problem, arch, &config, NULL, &error) == KJIT_OK;
  if (chosen && is_flash && row->score) flash_suit_score((struct flash_variant *)config.values, row->gathered);
  if (chosen && !is_flash && (row->tiled || row->gathered))
    sm90_suit_variant(&problem,
                      &(struct sm90_variant_needs){
                          .is_tiled = row->tiled > 0, .is_staged = row->tiled >= 2, .gathered = row->gathered},
                      (kjit_attention_sm90_config *)config.values);
  if (!chosen || !is_clean(codegen->runtime, row, &config, arch, is_flash ? row->flash_budget : row->budget))
    atomic_fetch_add(&batch->wrong, 1);
}

static void test_attention_variants__compile_without_a_word_and_within_the_budget(void **state) {
  struct batch *batch = codegen_or_skip(state);
  batch->codegen.count = ((size_t)ROWS * HEADS * KERNELS + sample_step() - 1) / sample_step();
  codegen_compile_all(&batch->codegen, check);
  assert_int_equal(0, atomic_load(&batch->wrong));
}

/* ---- Gradients ---- */

/* Bytes of spills of a kernel of gradients, stores and loads together: of attention_backward_sm90, most of them in the
 * producer's warps, which evaluate masks on ranges with 40 registers; and of flash_backward. */
static const uint32_t backward_budgets[KERNELS] = {160, 1100};
/* Of attention_backward_sm90 where a score function loads several elements a pair, whose addresses take registers. */
enum { BACKWARD_BUDGET_OF_MANY = 432 };

static uint32_t backward_budget(const struct variant_row *row, bool is_flash) {
  return row->gathered > 1 && !is_flash ? BACKWARD_BUDGET_OF_MANY : backward_budgets[is_flash];
}

enum { GRADIENTS = ROWS * HEADS * KERNELS };

static void check_gradients(struct codegen *codegen, size_t nth) {
  struct batch *batch = (struct batch *)codegen;
  const size_t index = nth * (CODEGEN_STEP == 1 ? 1 : 13);
  const bool is_flash = index % KERNELS;
  const char *arch = is_flash ? "sm_80" : "sm_90a";
  kjit_attention_problem problem = kjit_attention_problem_default();
  struct backward_choice choice;
  struct family_place place;
  kjit_error error = {0};
  problem.dtype = KJIT_BF16;
  problem.flags = KJIT_ATTENTION_CAUSAL;
  problem.heads_q = problem.heads_kv = 16;
  problem.batch = 1;
  problem.seq_q = problem.seq_kv = 4096;
  problem.head_dim = problem.head_dim_v = head_dims[index / KERNELS % HEADS];
  const struct variant_row *row = &rows[index / (HEADS * KERNELS)];
  const struct backward_wanted wanted = {
      .problem = &problem, .gradients = 7, .is_variant = true, .has_score = row->score != NULL};
  const bool chosen = family_place_of_arch(arch, &place, &error) == KJIT_OK &&
                      backward_choose(&wanted, &place, &choice, &error) == KJIT_OK;
  if (!chosen) atomic_fetch_add(&batch->wrong, 1);
  for (size_t i = 0; chosen && i < choice.count; i++) {
    kjit_config config = {.family = choice.kernels[i].family->family};
    memcpy(config.values, choice.kernels[i].values, sizeof choice.kernels[i].values);
    if (CODEGEN_STEP != 1 && i != nth % choice.count) continue; /* of a sample one kernel of each call */
    if (!is_clean(codegen->runtime, row, &config, arch, backward_budget(row, is_flash)))
      atomic_fetch_add(&batch->wrong, 1);
  }
}

static void test_attention_variants__gradients_compile_without_a_word_and_within_the_budget(void **state) {
  struct batch *batch = codegen_or_skip(state);
  batch->codegen.count = CODEGEN_STEP == 1 ? GRADIENTS : (GRADIENTS + 12) / 13;
  codegen_compile_all(&batch->codegen, check_gradients);
  assert_int_equal(0, atomic_load(&batch->wrong));
}

/* What scores read: the gradient kernels of flash_backward, which have registers to spare. */
static void check_read(struct codegen *codegen, size_t nth) {
  static const struct variant_row reads[] = {
      {"alibi's slopes", "cap * tanh(score / cap) + slope[h] * float(k - q)", NULL, false, 0, 0, 0, 0},
      {"bias", "score + bias[b, h, q, k]", "q - k <= window", false, 0, 0, 0, 0}};
  static const char *const archs[] = {"sm_80", "sm_90a"};
  struct batch *batch = (struct batch *)codegen;
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  size_t count;
  kjit_error error = {0};
  problem.dtype = KJIT_BF16;
  problem.heads_q = 16;
  problem.seq_q = 4096;
  problem.head_dim = head_dims[nth % HEADS];
  const char *const arch = archs[nth / HEADS % 2];
  const bool chosen =
      kjit_attention_backward_choose(&problem, KJIT_GRADIENT_TENSORS, arch, configs, &count, &error) == KJIT_OK;
  if (!chosen || count != 1 || !is_clean(codegen->runtime, &reads[nth % 2], &configs[0], arch, 0))
    atomic_fetch_add(&batch->wrong, 1);
}

static void test_attention_variants__gradients_of_what_is_read_compile_without_a_word(void **state) {
  struct batch *batch = codegen_or_skip(state);
  batch->codegen.count = CODEGEN_STEP == 1 ? 2 * HEADS : 1;
  codegen_compile_all(&batch->codegen, check_read);
  assert_int_equal(0, atomic_load(&batch->wrong));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_attention_variants__compile_without_a_word_and_within_the_budget, setup,
                                      codegen_teardown),
      cmocka_unit_test_setup_teardown(test_attention_variants__gradients_compile_without_a_word_and_within_the_budget,
                                      setup, codegen_teardown),
      cmocka_unit_test_setup_teardown(test_attention_variants__gradients_of_what_is_read_compile_without_a_word, setup,
                                      codegen_teardown),
  };
  return cmocka_run_group_tests_name("the code of attention variants", tests, NULL, NULL);
}
