/* What the real compiler makes of flash_forward's kernels: every field and trait that keys tell apart changes the
 * machine code, and every config of the sets and what the planner chooses for causal, grouped and odd heads compile
 * without a word and without spills beyond the budgets of kernel_src/README.md. */
#include "support/configs.h"
#include "support/flash_variants.h"
#include <kjit/flash_forward.h>
#include <string.h>

#include "base/digest.h"
#include "base/files/elf_view.h"
#include "codegen.h"

#define MAX_CONFIGS 128

/* kernel_src/README.md, "Budgets". */
#define WIDE_SPILL_BUDGET  128 /* blocks of 128 x 64 with 4 warps */
#define TRAIT_SPILL_BUDGET 96  /* kernels that are not plain      */

/* Of many alike configs a sample, another one for each architecture of a list and the largest for its first, unless
 * KJIT_TEST_ALL_CONFIGS=1. */

static const char *const kArchitectures[] = {"sm_80", "sm_90", "sm_86", "sm_89"};
static const char *const kTraitArchitectures[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_120"};
#define ARCHITECTURE_COUNT       (sizeof kArchitectures / sizeof *kArchitectures)
#define TRAIT_ARCHITECTURE_COUNT (sizeof kTraitArchitectures / sizeof *kTraitArchitectures)

static size_t sample_step(size_t architecture) {
  return architecture == 0 || CODEGEN_STEP == 1 ? CODEGEN_STEP : 16;
}

/* One kernel compiled. */
struct body {
  struct flash_variant variant; /* canonical */
  kjit_status status;
  kjit_error error;
  struct digest key, code; /* of the key, of the machine code */
  uint32_t spill_bytes;
  char log[256];
};

struct batch {
  struct codegen codegen;
  const char *arch;
  struct body bodies[MAX_CONFIGS];
};

static kjit_status read_body(struct body *body, const kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  struct elf_view elf;
  struct elf_bytes code;
  const kjit_status status = kjit_artifact_get_info(artifact, &info, &body->error);
  if (status != KJIT_OK) return status;
  if (!elf_view_open(&elf, info.cubin, info.cubin_bytes) || !elf_view_find_section(&elf, ".text.flash_forward", &code))
    return KJIT_ERR_CORRUPT;
  digest_of(&body->code, code.data, code.bytes);
  digest_of(&body->key, info.key, strlen(info.key));
  body->spill_bytes = info.spill_bytes;
  strncpy(body->log, info.log, sizeof body->log - 1);
  return KJIT_OK;
}

static void compile_body(struct codegen *codegen, size_t index) {
  struct batch *batch = (struct batch *)codegen;
  struct body *body = &batch->bodies[index];
  kjit_artifact *artifact = NULL;
  body->variant = variant_canonical(&body->variant);
  body->status = variant_build(codegen->runtime, &body->variant, batch->arch, 0, &artifact, &body->error);
  if (body->status == KJIT_OK) body->status = read_body(body, artifact);
  kjit_artifact_release(artifact);
}

static void compile_all(struct batch *batch, const char *arch) {
  batch->arch = arch;
  codegen_compile_all(&batch->codegen, compile_body);
  for (size_t i = 0; i < batch->codegen.count; i++)
    assert_status(KJIT_OK, batch->bodies[i].status, &batch->bodies[i].error);
}

static const char *variant_text(const struct flash_variant *variant) {
  static char text[KJIT_CONFIG_TEXT_MAX];
  return variant_print(variant, 0, text, sizeof text, NULL) == KJIT_OK ? text : "?";
}

/* Equal keys and equal code must come together. */
static void assert_keys_tell_bodies_apart(const struct batch *batch) {
  for (size_t i = 0; i < batch->codegen.count; i++)
    for (size_t k = 0; k < i; k++) {
      const struct body *a = &batch->bodies[i], *b = &batch->bodies[k];
      if (digest_equal(&a->key, &b->key) == digest_equal(&a->code, &b->code)) continue;
      print_error("%s: %s", batch->arch, variant_text(&a->variant));
      print_error(" and %s have one %s and two %s\n", variant_text(&b->variant),
                  digest_equal(&a->key, &b->key) ? "key" : "body", digest_equal(&a->key, &b->key) ? "bodies" : "keys");
      fail();
    }
}

static uint32_t spill_budget(const struct flash_variant *variant) {
  const kjit_flash_config *c = &variant->config;
  const struct flash_variant plain = flash_variant_plain(c);
  if (variant_compare(variant, &plain) != 0) return TRAIT_SPILL_BUDGET;
  return c->B_r == 128 && c->B_c == 64 && c->n_warps == 4 ? WIDE_SPILL_BUDGET : 0;
}

static void assert_clean(const struct batch *batch) {
  for (size_t i = 0; i < batch->codegen.count; i++) {
    const struct body *body = &batch->bodies[i];
    const uint32_t budget = spill_budget(&body->variant);
    if (body->spill_bytes <= budget && body->log[0] == '\0') continue;
    print_error("%s: %s spills %u bytes of %u, log \"%s\"\n", batch->arch, variant_text(&body->variant),
                body->spill_bytes, budget, body->log);
    fail();
  }
}

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

static void add_variant(struct batch *batch, const struct flash_variant *variant) {
  assert_true(batch->codegen.count < MAX_CONFIGS);
  batch->bodies[batch->codegen.count++] = (struct body){.variant = *variant};
}

static void add(struct batch *batch, const kjit_flash_config *config) {
  const struct flash_variant plain = flash_variant_plain(config);
  add_variant(batch, &plain);
}

static void test_flash_codegen__prebuilt_has_a_body_for_each_key_and_no_spills(void **state) {
  struct batch *batch = codegen_or_skip(state);
  kjit_flash_config configs[MAX_CONFIGS];
  size_t count;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", configs, MAX_CONFIGS, &count, NULL), NULL);
  assert_int_equal(count, 85);
  for (size_t a = 0; a < ARCHITECTURE_COUNT; a++) {
    batch->codegen.count = 0;
    const size_t step = sample_step(a);
    for (size_t i = a % step; i < count; i += step)
      add(batch, &configs[i]);
    compile_all(batch, kArchitectures[a]);
    assert_keys_tell_bodies_apart(batch);
    assert_clean(batch);
  }
}

/* Every field by itself, from a config in which all of them mean something: two of its other legal values, or every
 * one with KJIT_TEST_ALL_CONFIGS=1. */
static void test_flash_codegen__each_field_changes_the_body(void **state) {
  struct batch *batch = codegen_or_skip(state);
  const kjit_flash_config base = {KJIT_FP16, 128, 64, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1};
  static const int32_t kValues[] = {0, 1, 2, 4, 8, 15, 16, 32, 48, 80, 96, 128, 160, 256};
  const size_t most = CODEGEN_STEP == 1 ? sizeof kValues / sizeof *kValues : 2;
  add(batch, &base);
  for (size_t f = 0; f < sizeof base / sizeof(int32_t); f++)
    for (size_t v = 0, taken = 0; v < sizeof kValues / sizeof *kValues && taken < most; v++) {
      kjit_flash_config other = base;
      memcpy((char *)&other + f * sizeof(int32_t), &kValues[v], sizeof kValues[v]);
      if (plain_compare(&other, &base) == 0 || plain_check(&other, "sm_80", NULL) != KJIT_OK) continue;
      add(batch, &other);
      taken++;
    }
  assert_in_range(batch->codegen.count, most == 2 ? 16 : 21, MAX_CONFIGS);
  compile_all(batch, kArchitectures[0]);
  assert_keys_tell_bodies_apart(batch);
}

/* Each trait changed by itself, and the head sizes of Q and V apart. */
static void test_flash_codegen__each_trait_changes_the_body(void **state) {
  struct batch *batch = codegen_or_skip(state);
  const kjit_flash_config base = {KJIT_BF16, 128, 64, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1};
  static const struct flash_traits kTraits[] = {{0, 0, 128, 128}, {1, 0, 128, 128}, {0, 1, 128, 128}, {1, 1, 128, 128},
                                                {0, 0, 120, 128}, {0, 0, 128, 120}, {0, 0, 64, 128},  {0, 0, 128, 64}};
  for (size_t i = 0; i < sizeof kTraits / sizeof *kTraits; i++) {
    const struct flash_variant variant = {base, kTraits[i]};
    add_variant(batch, &variant);
  }
  compile_all(batch, kTraitArchitectures[0]);
  assert_keys_tell_bodies_apart(batch);
}

/* What the planner chooses for it: every tile of its table, whole heads and heads with columns that do not exist. Every
 * `step`th problem from `first` on. */
static void add_chosen(struct batch *batch, const char *arch, size_t first, size_t step) {
  static const int64_t kHeads[][2] = {{8, 8},     {24, 24},   {48, 48},   {64, 64},   {72, 72},  {112, 112}, {128, 128},
                                      {152, 152}, {192, 192}, {192, 128}, {256, 256}, {64, 256}, {256, 40}};
  for (size_t i = first; i < 2 * sizeof kHeads / sizeof *kHeads; i += step) {
    kjit_attention_problem problem = kjit_attention_problem_default();
    struct flash_variant variant;
    kjit_error error;
    problem.dtype = i % 3 ? KJIT_BF16 : KJIT_FP16;
    problem.flags = i % 2 ? KJIT_ATTENTION_CAUSAL : 0;
    problem.heads_q = 8;
    problem.heads_kv = i % 4 == 1 ? 8 : 2;
    problem.seq_q = 4096;
    problem.head_dim = kHeads[i / 2][0];
    problem.head_dim_v = kHeads[i / 2][1];
    assert_status(KJIT_OK, variant_choose(&problem, arch, &variant, &error), &error);
    add_variant(batch, &variant);
  }
}

static void test_flash_codegen__what_is_chosen_for_masks_groups_and_odd_heads_is_clean(void **state) {
  struct batch *batch = codegen_or_skip(state);
  for (size_t a = 0; a < TRAIT_ARCHITECTURE_COUNT; a++) {
    batch->codegen.count = 0;
    const size_t step = sample_step(a);
    add_chosen(batch, kTraitArchitectures[a], a % step, step);
    compile_all(batch, kTraitArchitectures[a]);
    assert_clean(batch);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_flash_codegen__prebuilt_has_a_body_for_each_key_and_no_spills, setup,
                                      codegen_teardown),
      cmocka_unit_test_setup_teardown(test_flash_codegen__each_field_changes_the_body, setup, codegen_teardown),
      cmocka_unit_test_setup_teardown(test_flash_codegen__each_trait_changes_the_body, setup, codegen_teardown),
      cmocka_unit_test_setup_teardown(test_flash_codegen__what_is_chosen_for_masks_groups_and_odd_heads_is_clean, setup,
                                      codegen_teardown),
  };
  return cmocka_run_group_tests_name("flash_codegen", tests, NULL, NULL);
}
