/* kjit_attention_forward() with a variant, over a fake driver and compiler: what is compiled, and what reaches the
 * driver. */
#include <kjit/attention_variant.h>
#include <kjit/record.h>
#include <math.h>

#include "attention/attention_variant_call.h"
#include "unit/attention/variant_fixture.h"

static uint64_t builds(struct fixture *f) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  assert_status(KJIT_OK, kjit_runtime_get_stats(f->runtime, &stats, &f->error), &f->error);
  return stats.builds;
}

static void test_attention_variant__twenty_windows_are_one_kernel(void **state) {
  struct fixture *f = *state;
  for (int32_t left = 0; left < 700; left += 35) {
    const kjit_attention_args args = windowed_args(left);
    forward(f, &args, NULL);
    assert_int_equal(launched_variant()->variant.arguments.scalars[0], left);
  }
  assert_int_equal(builds(f), 1);
}

static void test_attention_variant__twenty_caps_are_one_kernel(void **state) {
  struct fixture *f = *state;
  for (int i = 0; i < 20; i++) {
    kjit_attention_args args = causal_args();
    args.softcap = 10.0f + (float)i;
    forward(f, &args, NULL);
  }
  assert_int_equal(builds(f), 1);
}

static void test_attention_variant__twenty_lengths_are_two_kernels_at_most(void **state) {
  struct fixture *f = *state;
  for (int64_t length = 500; length < 700; length += 10) {
    kjit_attention_args args = windowed_args(99);
    args.q.shape[1] = args.k.shape[1] = args.v.shape[1] = args.o.shape[1] = length;
    forward(f, &args, NULL);
    assert_int_equal(launched_variant()->variant.arguments.seq_kv, length);
  }
  assert_true(builds(f) <= 2);
}

static void test_attention_variant__scores_are_scaled_before_the_function(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  args.softcap = 30;
  args.scale = 0.5f;
  forward(f, &args, NULL);
  const struct attention_sm90_variant_params *params = launched_variant();
  assert_true(params->variant.score_scale == 0.5f);
  assert_true(params->base.scale_log2 == 1.0f);
  assert_true(params->base.scale > 0.6931f && params->base.scale < 0.6932f); /* ln 2 */
}

static void test_attention_variant__mask_alone_keeps_the_scale_in_the_exponent(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = windowed_args(64);
  args.scale = 0.5f;
  forward(f, &args, NULL);
  assert_true(launched_variant()->base.scale == 0.5f);
}

/* Each variant is a kernel of its own, and none is the dense one. */
static void test_attention_variant__other_members_are_other_kernels(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = windowed_args(64);
  forward(f, &args, NULL);
  args.softcap = 30;
  forward(f, &args, NULL);
  args = causal_args();
  args.attention_chunk = 64;
  forward(f, &args, NULL);
  fake_driver.parameter_bytes = sizeof(struct attention_sm90_params);
  args = causal_args();
  forward(f, &args, NULL);
  assert_int_equal(builds(f), 4);
}

static void test_attention_variant__text_of_the_callers_reaches_the_kernel(void **state) {
  struct fixture *f = *state;
  const kjit_variant_scalar window = {"window", KJIT_VARIANT_INT32};
  const kjit_attention_variant_text text = {
      .struct_size = sizeof text, .mask = "q - k <= window && q >= k", .scalars = &window, .scalar_count = 1};
  kjit_attention_variant *variant = NULL;
  int32_t value = 77;
  kjit_attention_args args = causal_args();
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  args.scalar_values = &value;
  forward(f, &args, NULL);
  const struct kjit_variant_arguments *arguments = &launched_variant()->variant.arguments;
  assert_int_equal(arguments->scalars[0], 77);
  assert_int_equal(arguments->seq_q, 1000);
  assert_int_equal(arguments->seq_kv, 700);
  assert_int_equal(arguments->heads_q, 6);
  kjit_attention_variant_free(variant);
}

/* Let compiles end once two have begun; what is wrong, or NULL. */
static void *wait_for_two_compiles(void *user) {
  const struct timespec one = {0, 1000000};
  for (int ms = 0; ms < 20000 && atomic_load(&fake_nvrtc.compiles) < 2; ms++)
    nanosleep(&one, NULL);
  const bool are_two = atomic_load(&fake_nvrtc.compiles) >= 2;
  atomic_store(&fake_nvrtc.compile_ms, 0);
  return are_two ? user : NULL;
}

static void test_attention_variant__kernel_of_lists_is_compiled_beside_the_attention_kernel(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_sm90", NULL};
  struct fixture *f = *state;
  const kjit_attention_variant_text text = {.struct_size = sizeof text, .mask = "q * 7 % 13 == k % 3"};
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = causal_args();
  pthread_t thread;
  void *were_two = NULL;
  fake_nvrtc.entries = entries;
  atomic_store(&fake_nvrtc.compile_ms, 60000);
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  assert_int_equal(0, pthread_create(&thread, NULL, wait_for_two_compiles, f));
  const kjit_status status = kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error);
  pthread_join(thread, &were_two);
  assert_status(KJIT_OK, status, &f->error);
  assert_non_null(were_two);
  assert_int_equal(builds(f), 2);
  kjit_attention_variant_free(variant);
}

static void forward_masked(struct fixture *f, const char *mask) {
  const kjit_attention_variant_text text = {.struct_size = sizeof text, .mask = mask};
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, 1000, 6, 64);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 700, 6, 64);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, 700, 6, 64);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, 1000, 6, 64);
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  forward(f, &args, NULL);
  kjit_attention_variant_free(variant);
}

static void test_attention_variant__lists_that_many_tiles_share_have_keep_words(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_sm90", NULL};
  struct fixture *f = *state;
  fake_nvrtc.entries = entries;
  forward_masked(f, "q * 7 % 13 == k % 3");
  const struct attention_block_lists shared = launched_variant()->variant.lists;
  forward_masked(f, "(q + h) * 7 % 13 == k % 3");
  const struct attention_block_lists by_head = launched_variant()->variant.lists;
  assert_int_equal(shared.written, shared.capacity); /* fewer blocks than would have words */
  assert_non_null(shared.words);
  assert_int_equal((uintptr_t)shared.words % 16, 0);
  assert_non_null(by_head.counts);
  assert_int_equal(by_head.written, 0);
  assert_null(by_head.words);
}

static void test_attention_variant__attention_may_begin_before_its_lists_are_made(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_sm90", NULL};
  struct fixture *f = *state;
  fake_nvrtc.entries = entries;
  forward_masked(f, "q * 7 % 13 == k % 3");
  assert_int_equal(fake_driver.launch.attribute_count, 1);
  assert_int_equal(fake_driver.launch.attributes[0].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  forward_masked(f, "q - k < 100 and q >= k"); /* row intervals, which need no list */
  assert_int_equal(fake_driver.launch.attribute_count, 0);
}

/* Lists of one call are waited for one by one: of 1,000 queries there are six or eight, of which each is shared by two
 * batch entries of six heads. */
static void test_attention_variant__lists_of_a_call_are_awaited_one_by_one(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_sm90", NULL};
  struct fixture *f = *state;
  fake_nvrtc.entries = entries;
  forward_masked(f, "q * 7 % 13 == k % 3");
  const struct attention_block_lists lists = launched_variant()->variant.lists;
  assert_non_null(lists.made);
  assert_int_equal(lists.readers, 12);
  assert_int_equal(lists.writers, 2);
  forward_masked(f, "(q + h + b) * 7 % 13 == k % 3");
  assert_int_equal(launched_variant()->variant.lists.readers, 1);
  assert_int_equal(launched_variant()->variant.lists.writers, 1);
}

/* Launches that were tried. */
static int launches(void) {
  return fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx);
}

/* The attention kernel would leave zeros in the counters of lists. The call is made again and again, each time with
 * another one of its calls to the driver that fails. */
static void test_attention_variant__counters_are_cleared_where_attention_is_not_enqueued(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_sm90", NULL};
  struct fixture *f = *state;
  const kjit_attention_variant_text text = {.struct_size = sizeof text, .mask = "q * 7 % 13 == k % 3"};
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = causal_args();
  enum { CALLS = 20 }; /* more than a call makes */
  int left = 0;
  fake_nvrtc.entries = entries;
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  forward(f, &args, NULL);
  fake_driver.failure = CUDA_ERROR_LAUNCH_FAILED;
  for (long fails = 0; fails < CALLS; fails++) {
    const int before = launches(), clears = fake_driver_calls_of(FAKE_MemsetD32Async);
    atomic_store(&fake_driver.fail_at, atomic_load(&fake_driver.calls) + fails);
    const kjit_status status = kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error);
    const bool is_left = status != KJIT_OK && launches() == before + 2;
    if (is_left) assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), clears + 1);
    left += is_left;
  }
  assert_int_equal(left, 1);
  kjit_attention_variant_free(variant);
}

/* Each line of what was recorded leads to a request of its sources, which makes the key of the kernel that is here. */
static void assert_recorded_are_resident(struct fixture *f, const char *manifest, int expected) {
  char line[4096], path[TEMP_PATH_BYTES];
  FILE *const file = fopen(manifest, "r");
  int lines = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    kjit_artifact *artifact = NULL;
    char *const arch = line + strcspn(line, " ") + 1;
    lines++;
    arch[-1] = '\0';
    arch[strcspn(arch, " ")] = '\0';
    temp_folder_path(&f->folder, line, path);
    assert_status(KJIT_OK, kjit_recorded_build(f->runtime, path, arch, KJIT_BUILD_RESIDENT_ONLY, &artifact, &f->error),
                  &f->error);
    kjit_artifact_release(artifact);
  }
  fclose(file);
  assert_int_equal(lines, expected);
}

static void test_attention_variant__kernels_are_recorded_with_their_sources(void **state) {
  static const char *const entries[] = {"attention_block_list", "attention_block_map", "attention_sm90", NULL};
  struct fixture *f = *state;
  char manifest[TEMP_PATH_BYTES];
  kjit_attention_args args = causal_args();
  const kjit_block_lists blocks = {.counts = vector(KJIT_INT32, 3, 1, 1, 8, 0),
                                   .indices = vector(KJIT_INT32, 4, 1, 1, 8, 6),
                                   .query_rows = 128,
                                   .key_rows = 128};
  fake_nvrtc.entries = entries;
  temp_folder_path(&f->folder, "app.manifest", manifest);
  assert_status(KJIT_OK, kjit_runtime_record(f->runtime, manifest, &f->error), &f->error);
  args.blocks = &blocks;
  forward(f, &args, NULL);
  assert_int_equal(builds(f), 3);
  assert_recorded_are_resident(f, manifest, 3);
}

/* How many elements a score function loads one by one, of a matrix of a dtype with a row of `columns`. */
static int gathered_by(const char *score, int32_t dtype, int64_t columns) {
  const kjit_tensor tensors[] = {vector(dtype, 2, 1000, columns, 0, 0), vector(KJIT_FP32, 1, 1000, 0, 0, 0)};
  return launch_of(score, tensors, 2).gathered;
}

static void test_attention_variant__elements_that_are_loaded_one_by_one_are_counted(void **state) {
  (void)state;
  assert_int_equal(gathered_by("score + matrix[q, k]", KJIT_FP32, 700), 1);
  assert_int_equal(gathered_by("score + matrix[q, k]", KJIT_BF16, 700), 0); /* two at a time */
  assert_int_equal(gathered_by("score + matrix[q, k]", KJIT_BF16, 701), 1); /* rows that begin between two */
  assert_int_equal(gathered_by("score + matrix[q, k] + factor[k]", KJIT_BF16, 700), 2);
  assert_int_equal(gathered_by("score * factor[q]", KJIT_BF16, 700), 0); /* the same for all keys */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      VARIANT_TEST(test_attention_variant__twenty_windows_are_one_kernel),
      VARIANT_TEST(test_attention_variant__twenty_caps_are_one_kernel),
      VARIANT_TEST(test_attention_variant__twenty_lengths_are_two_kernels_at_most),
      VARIANT_TEST(test_attention_variant__scores_are_scaled_before_the_function),
      VARIANT_TEST(test_attention_variant__mask_alone_keeps_the_scale_in_the_exponent),
      VARIANT_TEST(test_attention_variant__other_members_are_other_kernels),
      VARIANT_TEST(test_attention_variant__text_of_the_callers_reaches_the_kernel),
      VARIANT_TEST(test_attention_variant__kernel_of_lists_is_compiled_beside_the_attention_kernel),
      VARIANT_TEST(test_attention_variant__lists_that_many_tiles_share_have_keep_words),
      VARIANT_TEST(test_attention_variant__attention_may_begin_before_its_lists_are_made),
      VARIANT_TEST(test_attention_variant__lists_of_a_call_are_awaited_one_by_one),
      VARIANT_TEST(test_attention_variant__counters_are_cleared_where_attention_is_not_enqueued),
      VARIANT_TEST(test_attention_variant__kernels_are_recorded_with_their_sources),
      cmocka_unit_test(test_attention_variant__elements_that_are_loaded_one_by_one_are_counted),
  };
  return cmocka_run_group_tests_name("attention variants", tests, NULL, NULL);
}
