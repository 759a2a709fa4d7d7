/* What the real compiler makes of flash_forward's configs: every field that keys tell apart changes the machine code,
 * and every config of the sets compiles without a word and without spills beyond the budget of kernel_src/README.md. */
#include <kjit/flash_forward.h>
#include <string.h>

#include "base/digest.h"
#include "base/elf_view.h"
#include "codegen.h"

#define MAX_CONFIGS       128
#define WIDE_SPILL_BUDGET 128 /* blocks of 128 x 64 with 4 warps; kernel_src/README.md, "Budgets" */

#if CODEGEN_LESS
static const char *const kArchitectures[] = {"sm_80"};
#else
static const char *const kArchitectures[] = {"sm_80", "sm_86", "sm_89", "sm_90"};
#endif
#define ARCHITECTURE_COUNT (sizeof kArchitectures / sizeof *kArchitectures)

/* One config compiled. */
struct body {
  kjit_flash_config config; /* canonical */
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
  body->config = kjit_flash_config_canonical(&body->config);
  body->status = kjit_flash_build(codegen->runtime, &body->config, batch->arch, 0, &artifact, &body->error);
  if (body->status == KJIT_OK) body->status = read_body(body, artifact);
  kjit_artifact_release(artifact);
}

static void compile_all(struct batch *batch, const char *arch) {
  batch->arch = arch;
  codegen_compile_all(&batch->codegen, compile_body);
  for (size_t i = 0; i < batch->codegen.count; i++)
    assert_status(KJIT_OK, batch->bodies[i].status, &batch->bodies[i].error);
}

static const char *config_text(const kjit_flash_config *config) {
  static char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  return kjit_flash_config_print(config, 0, text, sizeof text, NULL) == KJIT_OK ? text : "?";
}

/* Equal keys and equal code must come together. */
static void assert_keys_tell_bodies_apart(const struct batch *batch) {
  for (size_t i = 0; i < batch->codegen.count; i++)
    for (size_t k = 0; k < i; k++) {
      const struct body *a = &batch->bodies[i], *b = &batch->bodies[k];
      if (digest_equal(&a->key, &b->key) == digest_equal(&a->code, &b->code)) continue;
      print_error("%s: %s", batch->arch, config_text(&a->config));
      print_error(" and %s have one %s and two %s\n", config_text(&b->config),
                  digest_equal(&a->key, &b->key) ? "key" : "body", digest_equal(&a->key, &b->key) ? "bodies" : "keys");
      fail();
    }
}

static void assert_clean(const struct batch *batch) {
  for (size_t i = 0; i < batch->codegen.count; i++) {
    const struct body *body = &batch->bodies[i];
    const kjit_flash_config *c = &body->config;
    const uint32_t budget = c->B_r == 128 && c->B_c == 64 && c->n_warps == 4 ? WIDE_SPILL_BUDGET : 0;
    if (body->spill_bytes <= budget && body->log[0] == '\0') continue;
    print_error("%s: %s spills %u bytes of %u, log \"%s\"\n", batch->arch, config_text(c), body->spill_bytes, budget,
                body->log);
    fail();
  }
}

static int setup(void **state) {
  return codegen_setup(state, sizeof(struct batch));
}

static void add(struct batch *batch, const kjit_flash_config *config) {
  assert_true(batch->codegen.count < MAX_CONFIGS);
  batch->bodies[batch->codegen.count++] = (struct body){.config = *config};
}

static void test_flash_codegen__prebuilt_has_a_body_for_each_key_and_no_spills(void **state) {
  struct batch *batch = codegen_or_skip(state);
  kjit_flash_config configs[MAX_CONFIGS];
  size_t count;
  assert_status(KJIT_OK, kjit_flash_config_set("prebuilt", configs, MAX_CONFIGS, &count, NULL), NULL);
  assert_int_equal(count, 85);
  for (size_t i = 0; i < count; i++)
    add(batch, &configs[i]);
  for (size_t a = 0; a < ARCHITECTURE_COUNT; a++) {
    compile_all(batch, kArchitectures[a]);
    assert_keys_tell_bodies_apart(batch);
    assert_clean(batch);
  }
}

/* Every legal value of every field, one at a time, from a config in which all of them mean something. */
static void test_flash_codegen__each_field_changes_the_body(void **state) {
  struct batch *batch = codegen_or_skip(state);
  const kjit_flash_config base = {KJIT_FP16, 128, 64, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1};
  static const int32_t kValues[] = {0, 1, 2, 4, 8, 15, 16, 32, 48, 80, 96, 128, 160, 256};
  add(batch, &base);
  for (size_t f = 0; kjit_flash_field(f); f++)
    for (size_t v = 0; v < sizeof kValues / sizeof *kValues; v++) {
      kjit_flash_config other = base;
      memcpy((char *)&other + kjit_flash_field(f)->offset, &kValues[v], sizeof kValues[v]);
      if (kjit_flash_config_compare(&other, &base) != 0 && kjit_flash_config_check(&other, "sm_80", NULL) == KJIT_OK)
        add(batch, &other);
    }
  assert_true(batch->codegen.count > 20);
  compile_all(batch, kArchitectures[0]);
  assert_keys_tell_bodies_apart(batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_flash_codegen__prebuilt_has_a_body_for_each_key_and_no_spills, setup,
                                      codegen_teardown),
      cmocka_unit_test_setup_teardown(test_flash_codegen__each_field_changes_the_body, setup, codegen_teardown),
  };
  return cmocka_run_group_tests_name("flash_codegen", tests, NULL, NULL);
}
