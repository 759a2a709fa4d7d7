/* The family through the real NVRTC, as a user builds it. No GPU. */
#include "fixture.h"
#include "support/configs.h"

static kjit_flash_config best(void) {
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_OK,
                kjit_flash_config_parse("(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
                                        &config, &error),
                &error);
  return config;
}

/* Build, and describe; the strings in `info` are gone. */
static void build(struct fixture *f, const kjit_flash_config *config, kjit_artifact_info *info) {
  kjit_artifact *artifact = NULL;
  *info = (kjit_artifact_info){.struct_size = sizeof *info};
  assert_status(KJIT_OK, plain_build(f->runtime, config, "sm_80", 0, &artifact, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, info, &f->error), &f->error);
  assert_memory_equal("\177ELF", info->cubin, 4);
  assert_string_equal("flash_forward", info->entry);
  assert_string_equal("sm_80", info->arch);
  assert_string_equal("", info->log);
  kjit_artifact_release(artifact);
}

static void test_flash_build__config_becomes_a_cubin(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = best();
  kjit_artifact_info info;
  fixture_need_nvrtc(f);
  build(f, &config, &info);
  assert_int_equal(KJIT_ORIGIN_BUILT, info.origin);
  assert_in_range(info.registers, 64, 255);
  assert_int_equal(info.spill_bytes, 0);
  assert_int_equal(info.shared_bytes, 0); /* all of it is dynamic */
  assert_true(plain_blocks_per_sm(&config, info.registers, "sm_80") >= 1);
}

static void test_flash_build__alias_is_found_in_memory(void **state) {
  struct fixture *f = *state;
  kjit_flash_config plain = best(), alias = best();
  kjit_artifact_info first, second;
  fixture_need_nvrtc(f);
  plain.V_mma_load_K_tiles = 0;
  alias.V_mma_load_K_tiles = 8;
  build(f, &plain, &first);
  build(f, &alias, &second);
  assert_int_equal(KJIT_ORIGIN_MEMORY, second.origin);
}

static int keep_label(void *user, const kjit_cache_entry *entry) {
  snprintf(user, KJIT_FLASH_CONFIG_TEXT_MAX, "%s %s", entry->family, entry->label);
  return 0;
}

static void test_flash_build__cache_shows_the_short_form(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = best();
  char label[KJIT_FLASH_CONFIG_TEXT_MAX] = "";
  kjit_artifact_info info;
  fixture_need_nvrtc(f);
  build(f, &config, &info);
  assert_status(KJIT_OK, kjit_cache_list(f->runtime, keep_label, label, &f->error), &f->error);
  assert_string_equal(label, "flash_forward (FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax");
}

static void test_flash_source__needs_no_compiler(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = best();
  char *text = NULL;
  assert_status(KJIT_OK, plain_source(f->runtime, &config, &text, &f->error), &f->error);
  assert_contains(text, "#define KJIT_d_head 128\n");
  assert_contains(text, "flash_forward(");
  kjit_text_free(f->runtime, text);
}

/* Without a GPU, or without a context on one that is there. */
static void test_flash_forward__without_context_says_so(void **state) {
  struct fixture *f = *state;
  const kjit_flash_config config = best();
  const kjit_attention_args args = kjit_attention_args_default();
  kjit_attention_plan *plan = NULL;
  assert_status(KJIT_ERR_NO_DRIVER, plain_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
  assert_true(*f->error.message);
  assert_status(KJIT_ERR_NO_DRIVER, plain_plan_create(&plan, f->runtime, &config, &args, &f->error), &f->error);
  assert_null(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_flash_build__config_becomes_a_cubin, fixture_setup, fixture_teardown),
      cmocka_unit_test_setup_teardown(test_flash_build__alias_is_found_in_memory, fixture_setup, fixture_teardown),
      cmocka_unit_test_setup_teardown(test_flash_build__cache_shows_the_short_form, fixture_setup, fixture_teardown),
      cmocka_unit_test_setup_teardown(test_flash_source__needs_no_compiler, fixture_setup, fixture_teardown),
      cmocka_unit_test_setup_teardown(test_flash_forward__without_context_says_so, fixture_setup, fixture_teardown),
  };
  return cmocka_run_group_tests_name("flash_build", tests, NULL, NULL);
}
