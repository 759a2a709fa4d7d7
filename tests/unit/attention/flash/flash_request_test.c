#include "support/configs.h"
#include "support/test.h"

#include "unit/attention/flash/variants.h"
#include <stdbool.h>
#include <stdlib.h>

#include "family/config_build.h"
#include "unit/attention/configs.h"

static struct mem mem;
static struct source_shelf shelf;

/* One at a time: it points at memory that the next one frees. */
static struct config_request request;

static int open_shelf(void **state) {
  (void)state;
  source_shelf_init(&shelf, &mem);
  return mem_init(&mem, NULL) ? 0 : -1;
}

static int close_shelf(void **state) {
  (void)state;
  config_request_finish(&request);
  source_shelf_finish(&shelf);
  return 0;
}

static const struct config_request *request_of_variant(const struct flash_variant *variant) {
  kjit_error error = {0};
  config_request_finish(&request);
  assert_status(KJIT_OK,
                config_request_init(&request, &mem, &shelf, &flash_forward_family, (const int32_t *)variant,
                                    &(struct config_act){.arch = "sm_90"}, &error),
                &error);
  return &request;
}

static const struct config_request *request_of(const kjit_flash_config *config) {
  const struct flash_variant plain = flash_variant_plain(config);
  return request_of_variant(&plain);
}

/* free() it. */
static char *prologue_of(const kjit_flash_config *config) {
  return strdup(request_of(config)->request.prologue);
}

static void test_flash_request__prologue_has_every_field_and_the_line(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  const struct config_request *made = request_of(&config);
  assert_string_equal(made->request.prologue, "#define KJIT_B_c 64\n"
                                              "#define KJIT_B_r 64\n"
                                              "#define KJIT_K_mma_load_K_tiles 2\n"
                                              "#define KJIT_Q_mma_load_K_tiles 2\n"
                                              "#define KJIT_V_mma_load_K_tiles 2\n"
                                              "#define KJIT_async_copy 1\n"
                                              "#define KJIT_causal 0\n"
                                              "#define KJIT_d_head 128\n"
                                              "#define KJIT_dtype 5\n"
                                              "#define KJIT_eager_load_blocks 1\n"
                                              "#define KJIT_grouped 0\n"
                                              "#define KJIT_head_dim 128\n"
                                              "#define KJIT_head_dim_v 128\n"
                                              "#define KJIT_mma_double_buffer_loads 0\n"
                                              "#define KJIT_n_warps 4\n"
                                              "#define KJIT_optimized_softmax 1\n"
                                              "#define KJIT_swizzled 1\n"
                                              "#define KJIT_shared_bytes 49152\n"
                                              "#define KJIT_threads 128\n"
                                              "#line 1 \"flash_forward/flash_forward.cu\"\n");
}

static void test_flash_request__label_is_the_short_form(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  assert_string_equal(request_of(&config)->request.label,
                      "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax");
}

static void test_flash_request__traits_are_defined_and_named(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  struct flash_variant variant = flash_variant_plain(&config);
  variant.traits = (struct flash_traits){.causal = 1, .grouped = 1, .head_dim = 120, .head_dim_v = 128};
  const struct config_request *made = request_of_variant(&variant);
  assert_contains(made->request.prologue, "#define KJIT_causal 1\n");
  assert_contains(made->request.prologue,
                  "#define KJIT_grouped 1\n#define KJIT_head_dim 120\n#define KJIT_head_dim_v 128\n");
  assert_string_equal(made->request.label, "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax "
                                           "causal=1,grouped=1,head_dim=120,head_dim_v=128");
}

static void test_flash_request__aliases_make_one_request(void **state) {
  (void)state;
  kjit_flash_config plain = config_base(), alias = config_base();
  plain.V_mma_load_K_tiles = 0;
  alias.V_mma_load_K_tiles = 8;
  char *const first = prologue_of(&plain), *const label = strdup(request.request.label);
  assert_string_equal(first, request_of(&alias)->request.prologue);
  assert_string_equal(label, request.request.label);
  free(first);
  free(label);
}

static void test_flash_request__different_code_makes_different_prologues(void **state) {
  (void)state;
  uint64_t seed = 5;
  kjit_flash_config last = config_base();
  for (int i = 0; i < 2000; i++) {
    const kjit_flash_config config = random_legal_config(&seed);
    const kjit_flash_config a = plain_canonical(&config), b = plain_canonical(&last);
    const bool same = plain_compare(&a, &b) == 0;
    char *const of_last = prologue_of(&last);
    assert_int_equal(strcmp(request_of(&config)->request.prologue, of_last) == 0, same);
    free(of_last);
    last = config;
  }
}

static void test_flash_request__names_what_is_compiled(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  const struct config_request *made = request_of(&config);
  assert_string_equal(made->request.family, "flash_forward");
  assert_string_equal(made->request.entry, "flash_forward");
  assert_string_equal(made->request.target.name, "sm_90");
  assert_int_equal(made->request.option_count, 2);
  assert_string_equal(made->request.options[0], "--minimal");
  assert_string_equal(made->request.options[1], "--use_fast_math");
  assert_string_equal(made->request.sources->files[0].name, "flash_forward/flash_forward.cu");
}

static void test_flash_request__bad_architecture_is_refused(void **state) {
  (void)state;
  const kjit_flash_config config = config_base();
  const struct flash_variant plain = flash_variant_plain(&config);
  struct config_request refused;
  kjit_error error = {0};
  assert_status(KJIT_ERR_INVALID_ARG,
                config_request_init(&refused, &mem, &shelf, &flash_forward_family, (const int32_t *)&plain,
                                    &(struct config_act){.arch = "90"}, &error),
                &error);
  config_request_finish(&refused);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_request__prologue_has_every_field_and_the_line),
      cmocka_unit_test(test_flash_request__label_is_the_short_form),
      cmocka_unit_test(test_flash_request__traits_are_defined_and_named),
      cmocka_unit_test(test_flash_request__aliases_make_one_request),
      cmocka_unit_test(test_flash_request__different_code_makes_different_prologues),
      cmocka_unit_test(test_flash_request__names_what_is_compiled),
      cmocka_unit_test(test_flash_request__bad_architecture_is_refused),
  };
  return cmocka_run_group_tests_name("flash_request", tests, open_shelf, close_shelf);
}
