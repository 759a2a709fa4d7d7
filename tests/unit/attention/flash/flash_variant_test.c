/* A kernel as a config and traits: its name, its rules, and which one a call gets. */
#include "support/configs.h"
#include "unit/attention/configs.h"
#include "unit/attention/flash/variants.h"
#include "unit/runtime/fixture.h"

static int setup(void **state) {
  const int failed = fixture_setup(state);
  fake_nvrtc.entry = "flash_forward";
  return failed;
}

#define VARIANT_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

#define BASE_TEXT "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+opt_softmax"

static struct flash_variant base_with(struct flash_traits traits) {
  const struct flash_variant variant = {config_base(), traits};
  return variant;
}

static void expect_text(struct flash_traits traits, const char *behind) {
  const struct flash_variant variant = base_with(traits);
  struct flash_variant again;
  char text[VARIANT_TEXT_MAX], expected[VARIANT_TEXT_MAX];
  kjit_error error;
  snprintf(expected, sizeof expected, "%s%s", BASE_TEXT, behind);
  assert_status(KJIT_OK, variant_print(&variant, 0, text, sizeof text, &error), &error);
  assert_string_equal(text, expected);
  assert_status(KJIT_OK, variant_parse(text, &again, &error), &error);
  assert_memory_equal(&variant, &again, sizeof variant);
}

static void test_flash_variant__name_has_the_traits_that_are_not_plain(void **state) {
  (void)state;
  expect_text((struct flash_traits){0, 0, 128, 128}, "");
  expect_text((struct flash_traits){1, 0, 128, 128}, " causal=1");
  expect_text((struct flash_traits){1, 1, 120, 120}, " causal=1,grouped=1,head_dim=120");
  expect_text((struct flash_traits){0, 0, 128, 64}, " head_dim_v=64");
  expect_text((struct flash_traits){0, 1, 64, 128}, " grouped=1,head_dim=64,head_dim_v=128");
}

static void expect_fault(const char *text, const char *message) {
  const struct flash_variant zero = {0};
  struct flash_variant variant = base_with((struct flash_traits){1, 1, 1, 1});
  kjit_error error;
  assert_status(KJIT_ERR_PARSE, variant_parse(text, &variant, &error), &error);
  assert_contains(error.message, message);
  assert_memory_equal(&variant, &zero, sizeof variant);
}

static void test_flash_variant__faults_in_a_name_say_where(void **state) {
  (void)state;
  expect_fault(BASE_TEXT " masked=1", "column 75: expected a field of the traits, found \"masked\"");
  expect_fault(BASE_TEXT " causal", "expected \"=\", found the end");
  expect_fault(BASE_TEXT " causal=1,causal=1", "expected every field once");
  expect_fault(BASE_TEXT " causal=1 grouped=1", "expected the end of the text, found \"grouped\"");
  expect_fault("(FP16, 128): async causal=1", "column 11");
}

static void test_flash_variant__blanks_and_order_do_not_matter(void **state) {
  (void)state;
  const struct flash_variant expected = base_with((struct flash_traits){1, 1, 120, 128});
  struct flash_variant variant;
  kjit_error error;
  assert_status(KJIT_OK,
                variant_parse("FlashForwardKernelConfig{5, 128, 64, 64, 4, true, true, true, 2, 2, 2, false, "
                              "true}  head_dim_v = 128 , grouped=1, head_dim=120,causal=1 ",
                              &variant, &error),
                &error);
  assert_memory_equal(&variant, &expected, sizeof variant);
}

static void test_flash_variant__config_alone_does_not_read_traits(void **state) {
  (void)state;
  kjit_flash_config config;
  kjit_error error;
  assert_status(KJIT_ERR_PARSE, kjit_flash_config_parse(BASE_TEXT " causal=1", &config, &error), &error);
  assert_contains(error.message, "expected the end of the text, found \"causal\"");
}

static void test_flash_variant__json_has_fields_and_traits(void **state) {
  (void)state;
  const struct flash_variant variant = base_with((struct flash_traits){1, 0, 120, 128});
  char text[VARIANT_TEXT_MAX];
  assert_status(KJIT_OK, variant_print(&variant, KJIT_PRINT_JSON, text, sizeof text, NULL), NULL);
  assert_contains(text, "{\"dtype\": \"FP16\", \"d_head\": 128");
  assert_contains(text, "\"causal\": true, \"grouped\": false, \"head_dim\": 120, \"head_dim_v\": 128}");
}

static void test_flash_variant__longest_text_fits(void **state) {
  (void)state;
  struct flash_variant variant;
  char text[VARIANT_TEXT_MAX];
  for (size_t i = 0; i < sizeof variant / sizeof(int32_t); i++) {
    const int32_t value = INT32_MIN;
    memcpy((char *)&variant + i * sizeof value, &value, sizeof value);
  }
  assert_status(KJIT_OK, variant_print(&variant, 0, text, sizeof text, NULL), NULL);
  assert_status(KJIT_OK, variant_print(&variant, KJIT_PRINT_JSON, text, sizeof text, NULL), NULL);
}

static void test_flash_variant__every_trait_orders(void **state) {
  (void)state;
  const struct flash_variant base = base_with((struct flash_traits){0, 0, 120, 120});
  for (size_t i = 0; i < sizeof base / sizeof(int32_t); i++) {
    struct flash_variant other = base;
    int32_t value;
    memcpy(&value, (char *)&other + i * sizeof value, sizeof value);
    value++;
    memcpy((char *)&other + i * sizeof value, &value, sizeof value);
    assert_int_equal(variant_compare(&base, &other), -1);
    assert_int_equal(variant_compare(&other, &base), 1);
  }
  assert_int_equal(variant_compare(&base, &base), 0);
}

static kjit_attention_problem problem_of(int64_t heads_q, int64_t heads_kv, int64_t head_dim, int64_t head_dim_v) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_FP16;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.seq_q = 100;
  problem.head_dim = head_dim;
  problem.head_dim_v = head_dim_v;
  return problem;
}

static void expect_traits(kjit_attention_problem problem, struct flash_traits expected) {
  const kjit_flash_config config = config_base();
  struct flash_variant variant;
  kjit_error error;
  assert_status(KJIT_OK, variant_of(&config, &problem, &variant, &error), &error);
  assert_memory_equal(&variant.traits, &expected, sizeof expected);
  assert_memory_equal(&variant.config, &config, sizeof config);
}

static void test_flash_variant_of__traits_are_the_problems(void **state) {
  (void)state;
  expect_traits(problem_of(4, 0, 128, 0), (struct flash_traits){0, 0, 128, 128});
  expect_traits(problem_of(4, 2, 120, 0), (struct flash_traits){0, 1, 120, 120});
  expect_traits(problem_of(4, 1, 120, 128), (struct flash_traits){0, 0, 120, 128});
  kjit_attention_problem causal = problem_of(1, 1, 128, 8);
  causal.flags = KJIT_ATTENTION_CAUSAL;
  expect_traits(causal, (struct flash_traits){1, 0, 128, 8});
}

static void expect_misfit(kjit_flash_config config, kjit_attention_problem problem, kjit_status status,
                          const char *message) {
  const struct flash_variant zero = {0};
  struct flash_variant variant = base_with((struct flash_traits){1, 1, 1, 1});
  kjit_error error;
  assert_status(status, variant_of(&config, &problem, &variant, &error), &error);
  assert_contains(error.message, message);
  assert_memory_equal(&variant, &zero, sizeof variant);
}

static void test_flash_variant_of__what_does_not_fit_is_refused(void **state) {
  (void)state;
  kjit_flash_config config = config_base();
  expect_misfit(config, problem_of(1, 1, 64, 0), KJIT_ERR_INVALID_CONFIG,
                "d_head is 128: must be the tensors' head_dim");
  expect_misfit(config, problem_of(1, 1, 124, 0), KJIT_ERR_INVALID_CONFIG, "head_dim is 124: must be a multiple of 8");
  expect_misfit(config, problem_of(3, 2, 128, 0), KJIT_ERR_INVALID_ARG, "heads_kv");
  config.Q_mma_load_K_tiles = config.K_mma_load_K_tiles = 8; /* divides 16 fragments of d_head, not 6 of head_dim */
  expect_misfit(config, problem_of(1, 1, 40, 128), KJIT_ERR_INVALID_CONFIG,
                "Q_mma_load_K_tiles is 8: must be at most 6, the 8-wide fragments of head_dim in whole 16s (48)");
}

/* The sizes that the kernel has, not d_head, are what the rules look at. */
static void test_flash_variant_check__unequal_sizes_count_as_they_are(void **state) {
  (void)state;
  const kjit_flash_config wide = {KJIT_FP16, 256, 128, 64, 4, 1, 1, 1, 2, 2, 2, 0, 1};
  struct flash_variant variant = flash_variant_plain(&wide);
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_CONFIG, variant_check(&variant, NULL, &error), &error);
  assert_contains(error.message, "d_head 256 and B_c 64 a thread accumulates");
  variant.traits.head_dim_v = 128;
  assert_status(KJIT_OK, variant_check(&variant, "sm_80", &error), &error);
  assert_int_equal(variant_geometry(&variant).shared_bytes, 2 * (128 * 256 + 64 * (256 + 128)));
  assert_status(KJIT_ERR_UNSUPPORTED, variant_check(&variant, "sm_86", &error), &error);
  assert_contains(error.message, "(B_r * max(d, dv) + B_c * (d + dv)) * 2 = 114688 bytes of shared memory");
  variant.traits.grouped = 2;
  assert_status(KJIT_ERR_INVALID_CONFIG, variant_check(&variant, NULL, &error), &error);
  assert_contains(error.message, "grouped is 2: must be 0 or 1");
}

static void test_flash_variant_canonical__is_by_the_columns_of_q_and_k(void **state) {
  (void)state;
  struct flash_variant variant = base_with((struct flash_traits){0, 0, 32, 128});
  variant.config.Q_mma_load_K_tiles = 0;
  variant.config.K_mma_load_K_tiles = 4;
  assert_int_equal(variant_canonical(&variant).config.K_mma_load_K_tiles, 0);
  variant.traits.head_dim = 128;
  assert_int_equal(variant_canonical(&variant).config.K_mma_load_K_tiles, 4);
}

static void test_flash_variant__null_arguments_are_refused(void **state) {
  struct fixture *f = *state;
  const struct flash_variant variant = base_with((struct flash_traits){1, 0, 128, 128});
  const kjit_attention_problem problem = problem_of(1, 1, 128, 0);
  kjit_config out;
  kjit_artifact *artifact;
  char *text;
  const kjit_config config = variant_config(&variant);
  const kjit_status statuses[] = {kjit_config_of_flash(NULL, &problem, &out, NULL),
                                  kjit_config_of_flash(&variant.config, &problem, NULL, NULL),
                                  kjit_config_parse(config.family, NULL, &out, NULL),
                                  kjit_config_parse(NULL, BASE_TEXT, &out, NULL),
                                  kjit_config_parse(config.family, BASE_TEXT, NULL, NULL),
                                  kjit_config_print(NULL, 0, (char *)&out, 1, NULL),
                                  kjit_config_print(&config, 0, NULL, 0, NULL),
                                  kjit_config_check(NULL, NULL, NULL),
                                  kjit_config_build(f->runtime, NULL, "sm_80", 0, &artifact, NULL),
                                  kjit_config_build(f->runtime, &config, NULL, 0, &artifact, NULL),
                                  kjit_config_source(f->runtime, NULL, &text, NULL)};
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    assert_int_equal(statuses[i], KJIT_ERR_INVALID_ARG);
}

static void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static kjit_attention_args args_of(int64_t heads_q, int64_t heads_kv, int64_t head_dim, int64_t head_dim_v) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_FP16, 0, 2, 100, heads_q, head_dim);
  args.k = kjit_tensor_bshd(address(2), KJIT_FP16, 0, 2, 70, heads_kv, head_dim);
  args.v = kjit_tensor_bshd(address(3), KJIT_FP16, 0, 2, 70, heads_kv, head_dim_v);
  args.o = kjit_tensor_bshd(address(4), KJIT_FP16, 0, 2, 100, heads_q, head_dim_v);
  return args;
}

static void expect_compiles(struct fixture *f, const kjit_attention_args *args, long compiles, uint32_t shared_bytes) {
  const kjit_flash_config config = config_base();
  assert_status(KJIT_OK, plain_forward(f->runtime, &config, args, NULL, &f->error), &f->error);
  assert_int_equal(atomic_load(&fake_nvrtc.compiles), compiles);
  assert_int_equal(fake_driver.launch.shared_bytes, shared_bytes);
  assert_int_equal(fake_driver.launch.grid[1], args->q.shape[2]);
}

/* One config, and the kernel of each problem that it fits: mask, groups and head sizes are the arguments'. */
static void test_flash_variant__traits_are_those_of_the_arguments(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = args_of(6, 6, 128, 128);
  expect_compiles(f, &args, 1, 49152);
  args.flags = KJIT_ATTENTION_CAUSAL;
  expect_compiles(f, &args, 2, 49152);
  args = args_of(6, 2, 128, 128);
  expect_compiles(f, &args, 3, 49152);
  args = args_of(6, 3, 128, 128); /* how many share a head is no trait */
  expect_compiles(f, &args, 3, 49152);
  args = args_of(6, 6, 120, 120);
  expect_compiles(f, &args, 4, 49152);
  args = args_of(6, 6, 128, 64);
  expect_compiles(f, &args, 5, 2 * (64 * 128 + 64 * (128 + 64)));
  args = args_of(6, 6, 64, 128);
  expect_compiles(f, &args, 6, 2 * (64 * 128 + 64 * (64 + 128)));
}

static void test_flash_variant__one_key_head_for_all_is_the_plain_kernel(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = args_of(6, 6, 128, 128);
  expect_compiles(f, &args, 1, 49152);
  args = args_of(6, 1, 128, 128);
  expect_compiles(f, &args, 1, 49152);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_variant__name_has_the_traits_that_are_not_plain),
      cmocka_unit_test(test_flash_variant__faults_in_a_name_say_where),
      cmocka_unit_test(test_flash_variant__blanks_and_order_do_not_matter),
      cmocka_unit_test(test_flash_variant__config_alone_does_not_read_traits),
      cmocka_unit_test(test_flash_variant__json_has_fields_and_traits),
      cmocka_unit_test(test_flash_variant__longest_text_fits),
      cmocka_unit_test(test_flash_variant__every_trait_orders),
      cmocka_unit_test(test_flash_variant_of__traits_are_the_problems),
      cmocka_unit_test(test_flash_variant_of__what_does_not_fit_is_refused),
      cmocka_unit_test(test_flash_variant_check__unequal_sizes_count_as_they_are),
      cmocka_unit_test(test_flash_variant_canonical__is_by_the_columns_of_q_and_k),
      VARIANT_TEST(test_flash_variant__null_arguments_are_refused),
      VARIANT_TEST(test_flash_variant__traits_are_those_of_the_arguments),
      VARIANT_TEST(test_flash_variant__one_key_head_for_all_is_the_plain_kernel),
  };
  return cmocka_run_group_tests_name("flash_variant", tests, NULL, NULL);
}
