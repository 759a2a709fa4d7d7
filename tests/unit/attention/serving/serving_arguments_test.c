/* What a serving call's arguments may be, and what the kernel gets of them. No GPU, no driver. */
#include "attention/serving/serving_arguments.h"

#include "base/error.h"
#include "support/test.h"

#define DEVICE 1

enum { BATCH = 3, ROWS = 2, HEADS = 8, HEADS_KV = 2, HEAD = 64, PAGES = 40, PAGE = 16 };

/* Never read: arguments are checked by their description alone. */
static void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static kjit_tensor tensor(uintptr_t number, int64_t outer, int64_t seq, int64_t heads) {
  return kjit_tensor_bshd(address(number), KJIT_BF16, DEVICE, outer, seq, heads, HEAD);
}

/* Decoding on a paged cache, with one key to append. */
static kjit_attention_serving_args good_args(void) {
  kjit_attention_serving_args args = kjit_attention_serving_args_default();
  args.batch = BATCH;
  args.q = tensor(1, BATCH, ROWS, HEADS);
  args.k = tensor(2, PAGES, PAGE, HEADS_KV);
  args.v = tensor(3, PAGES, PAGE, HEADS_KV);
  args.o = tensor(4, BATCH, ROWS, HEADS);
  args.k_new = tensor(5, BATCH, 1, HEADS_KV);
  args.v_new = tensor(6, BATCH, 1, HEADS_KV);
  args.seqused_k = address(7);
  args.page_table = address(8);
  args.max_pages = args.page_table_stride = 10;
  return args;
}

static void expect_refused(const kjit_attention_serving_args *args, const char *message) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_ERR_INVALID_ARG, serving_arguments_check(args, DEVICE, &error), &error);
  assert_contains(error.message, message);
}

static void expect_ok(const kjit_attention_serving_args *args) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, serving_arguments_check(args, DEVICE, &error), &error);
}

static void test_serving_arguments__good_ones_pass(void **state) {
  const kjit_attention_serving_args args = good_args();
  (void)state;
  expect_ok(&args);
}

static void test_serving_arguments__what_is_wrong_is_named(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  args.q.dtype = KJIT_FP32;
  expect_refused(&args, "q.dtype");
  args = good_args();
  args.q = tensor(1, BATCH, ROWS, 7);
  expect_refused(&args, "must divide that of q, 7");
  args = good_args();
  args.v.shape[1] = 8;
  expect_refused(&args, "v.shape[1] (seq) is 8");
  args = good_args();
  args.batch = 4;
  expect_refused(&args, "q.shape[0] (batch) is 3: must be args.batch, 4");
  args = good_args();
  args.seqused_k = NULL;
  expect_refused(&args, "seqused_k");
  args = good_args();
  args.v_new.data = NULL;
  expect_refused(&args, "v_new");
  args = good_args();
  args.rotary_cos = address(9);
  expect_refused(&args, "rotary_sin");
  args = good_args();
  args.window_left = -2;
  expect_refused(&args, "window_left is -2");
  args = good_args();
  args.flags = 2;
  expect_refused(&args, "flags");
  args = good_args();
  args.max_pages = 0;
  expect_refused(&args, "max_pages is 0");
  args.max_pages = (1 << 30) / PAGE;
  expect_ok(&args);
  args.max_pages++;
  expect_refused(&args, "2^30 in all");
}

static void test_serving_arguments__rotary_tables_are_checked(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  args.rotary_cos = address(9);
  args.rotary_sin = address(10);
  args.rotary_rows = 100;
  args.rotary_columns = 64;
  expect_ok(&args);
  args.rotary_columns = 24;
  expect_refused(&args, "rotary_columns");
  args.rotary_columns = 80;
  expect_refused(&args, "rotary_columns is 80: must be from 16 to 64");
  args.rotary_columns = 64;
  args.k_new.data = args.v_new.data = NULL;
  expect_refused(&args, "rotary_cos");
}

static void test_serving_arguments__dense_cache_needs_the_batch(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  args.page_table = NULL;
  expect_refused(&args, "k.shape[0] (batch) is 40: must be args.batch, 3, without cache_batch_idx");
  args.cache_batch_idx = address(9);
  expect_ok(&args);
}

/* A cache of e4m3 with a number for each sequence and head, none of them apart from the others in memory. */
static kjit_attention_serving_args narrow_args(void) {
  kjit_attention_serving_args args = good_args();
  args.k.dtype = args.v.dtype = KJIT_FP8_E4M3;
  args.k_descale = args.v_descale = (kjit_tensor){address(10), KJIT_FP32, DEVICE, 2, 0, {BATCH, HEADS_KV}, {0, 0}};
  return args;
}

static void test_serving_arguments__e4m3_cache_is_checked(void **state) {
  struct attention_serving_params params;
  kjit_attention_serving_args args = narrow_args();
  (void)state;
  expect_ok(&args);
  assert_true(serving_arguments_problem(&args).is_narrow);
  args.k_descale.stride[0] = HEADS_KV, args.k_descale.stride[1] = 1;
  expect_ok(&args);
  serving_arguments_fill(&args, &params);
  assert_int_equal(params.k_descale.batch, HEADS_KV);
  assert_int_equal(params.v_descale.head, 0);
  args.k_descale.shape[1] = 3;
  expect_refused(&args, "k_descale.shape[1] (heads) is 3: must equal that of k, 2");
  args = narrow_args();
  args.v_descale.dtype = KJIT_BF16;
  expect_refused(&args, "v_descale.dtype is 15: must be FP32");
  args = narrow_args();
  args.v.dtype = KJIT_BF16;
  expect_refused(&args, "v.dtype is 15: must be k's (24)");
  args = narrow_args();
  args.k_new.dtype = KJIT_FP8_E4M3;
  expect_refused(&args, "k_new.dtype is 24: must be q's (15)");
  args = narrow_args();
  args.k.stride[2] = HEAD + 8;
  expect_refused(&args, "k.stride[2] (heads) is 72: must be a multiple, in elements, of 16");
  args = narrow_args();
  args.q.shape[3] = args.k.shape[3] = args.k_new.shape[3] = 56;
  expect_refused(&args, "k.shape[3] (head_dim) is 56: must be a multiple of 16");
  args = good_args();
  args.k_descale = narrow_args().k_descale;
  expect_refused(&args, "k_descale: must be without data unless k is FP8_E4M3");
}

static void test_serving_arguments__nothing_to_do_is_seen(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  assert_false(serving_arguments_are_empty(&args));
  args.q.shape[1] = 0;
  assert_true(serving_arguments_are_empty(&args));
  args = good_args();
  args.batch = 0;
  assert_true(serving_arguments_are_empty(&args));
}

static void test_serving_arguments__ragged_tensors_have_no_batch_axis(void **state) {
  struct attention_serving_params params;
  kjit_attention_serving_args args = good_args();
  (void)state;
  args.cu_seqlens_q = address(9);
  expect_refused(&args, "q.rank");
  args.q = (kjit_tensor){address(1), KJIT_BF16, DEVICE, 3, 0, {7, HEADS, HEAD, 0}, {HEADS * HEAD, HEAD, 1, 0}};
  args.o = args.q;
  args.o.data = address(4);
  expect_ok(&args);
  serving_arguments_fill(&args, &params);
  assert_int_equal(params.rows_q, 7);
  assert_int_equal(params.q_stride.batch, 0);
  assert_int_equal(params.q_stride.seq, HEADS * HEAD);
  assert_int_equal(params.group, HEADS / HEADS_KV);
}

static void test_serving_arguments__causal_chunk_and_window_become_bounds(void **state) {
  struct attention_serving_params params;
  kjit_attention_serving_args args = good_args();
  (void)state;
  args.flags = KJIT_ATTENTION_CAUSAL;
  args.window_left = 100;
  args.attention_chunk = 30;
  serving_arguments_fill(&args, &params);
  assert_int_equal(params.window_right, 0);
  assert_int_equal(params.window_left, 29); /* a row sees nothing beyond its chunk */
  assert_int_equal(params.page_shift, 4);
  assert_int_equal(params.rotary_by_row, 1);
}

static bool is_simple(const kjit_attention_serving_args *args) {
  return serving_arguments_problem(args).is_simple;
}

/* A kernel for few rows must not get a call with more, whatever its bound says. */
static void test_serving_arguments__a_bound_below_the_rows_is_not_simple(void **state) {
  kjit_attention_serving_args args = good_args();
  (void)state;
  assert_true(is_simple(&args));
  args.max_seqlen_q = ROWS;
  assert_true(is_simple(&args));
  args.max_seqlen_q = ROWS - 1;
  assert_false(is_simple(&args));
}

static void test_serving_arguments__what_needs_more_code_is_not_simple(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  args.max_pages = (1 << 26) / PAGE;
  assert_false(is_simple(&args));
  args = good_args();
  args.seqused_q = address(9);
  assert_false(is_simple(&args));
  args = good_args();
  args.cache_batch_idx = address(9);
  assert_false(is_simple(&args));
  args = good_args();
  args.leftpad_k = address(9);
  assert_false(is_simple(&args));
  args = good_args();
  args.window_left = 5;
  assert_false(is_simple(&args));
  args = good_args();
  args.attention_chunk = 5;
  assert_false(is_simple(&args));
  args = good_args();
  args.sinks = address(9);
  assert_false(is_simple(&args));
  args = good_args();
  args.num_splits = 2;
  assert_false(is_simple(&args));
}

static bool meets_new_keys(const kjit_attention_serving_args *args) {
  return serving_arguments_problem(args).meets_new_keys;
}

static void test_serving_arguments__few_new_keys_are_met_by_the_rows(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  assert_true(meets_new_keys(&args));
  args.k_new.shape[1] = args.v_new.shape[1] = 16;
  assert_true(meets_new_keys(&args));
  args.k_new.shape[1] = args.v_new.shape[1] = 17;
  assert_false(meets_new_keys(&args));
  args = good_args();
  args.k_new.data = args.v_new.data = NULL;
  assert_false(meets_new_keys(&args));
}

/* A sequence without rows, or a window that leaves out a new key, needs the append pass. */
static void test_serving_arguments__new_keys_that_no_row_may_see_are_not_met(void **state) {
  (void)state;
  kjit_attention_serving_args args = good_args();
  args.seqused_q = address(9);
  assert_false(meets_new_keys(&args));
  args = good_args();
  args.cu_seqlens_k_new = address(9);
  assert_false(meets_new_keys(&args));
  args = good_args();
  args.window_left = 5;
  assert_true(meets_new_keys(&args)); /* no more new keys than rows */
  args.k_new.shape[1] = args.v_new.shape[1] = ROWS + 1;
  assert_false(meets_new_keys(&args));
  args.window_left = -1;
  assert_true(meets_new_keys(&args));
  args.attention_chunk = 64;
  assert_false(meets_new_keys(&args));
}

static void test_serving_choose__depends_on_rows_alone(void **state) {
  static const struct {
    int64_t rows;
    int32_t tile;
  } cases[] = {{1, 16}, {16, 16}, {17, 32}, {32, 32}, {33, 64}, {1 << 20, 64}};
  const struct family_place place = {"sm_90a", 132, 232448, {0}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct serving_problem problem = {.dtype = KJIT_BF16,
                                            .head_dim = 128,
                                            .head_dim_v = 128,
                                            .heads_kv = 8,
                                            .group = 4,
                                            .packed_rows = cases[i].rows};
    struct serving_choice choice;
    kjit_error error;
    assert_status(KJIT_OK, serving_choose(&problem, KJIT_SERVING_ATTEND, &place, &choice, &error), &error);
    kjit_config config = {.family = choice.family->family};
    memcpy(config.values, choice.values, sizeof choice.values);
    assert_status(KJIT_OK, kjit_config_check(&config, "sm_90a", &error), &error);
    assert_int_equal(((const kjit_attention_serving_config *)choice.values)->rows, cases[i].tile);
  }
}

static void test_serving_choose__fits_every_head_size_and_card(void **state) {
  static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"};
  (void)state;
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
    for (int64_t d = 8; d <= 256; d += 8) {
      for (int64_t dv = 8; dv <= 256; dv += 24) {
        kjit_serving_model model = kjit_serving_model_default();
        kjit_config configs[KJIT_SERVING_KERNELS_MAX];
        kjit_error error;
        size_t count;
        model.dtype = KJIT_BF16;
        model.heads_q = 8;
        model.head_dim = d;
        model.head_dim_v = dv;
        model.page_size = (d + dv) % 16;
        model.cache = d % 16 == 0 && dv % 16 == 0 && d % 32 ? KJIT_FP8_E4M3 : KJIT_BF16;
        assert_status(KJIT_OK, kjit_attention_serving_kernels(&model, archs[i], configs, &count, &error), &error);
        for (size_t j = 0; j < count; j++)
          assert_status(KJIT_OK, kjit_config_check(&configs[j], archs[i], &error), &error);
      }
    }
  }
}

static void test_serving_choose__a_model_needs_few_kernels(void **state) {
  (void)state;
  for (int64_t group = 1; group <= 64; group *= 2) {
    kjit_serving_model model = kjit_serving_model_default();
    kjit_config configs[KJIT_SERVING_KERNELS_MAX];
    size_t count;
    model.dtype = KJIT_BF16;
    model.heads_q = group;
    model.heads_kv = 1;
    model.head_dim = 128;
    model.cache = group % 3 == 1 ? KJIT_FP8_E4M3 : 0;
    assert_status(KJIT_OK, kjit_attention_serving_kernels(&model, "sm_90", configs, &count, NULL), NULL);
    assert_in_range(count, 3, 5);
    assert_status(KJIT_OK, kjit_attention_serving_kernels(&model, "sm_90a", configs, &count, NULL), NULL);
    /* Hopper's own: one of 64 rows and, with one_part, two for up to 64 rows and two for more, with runs and without,
     * one for new keys of few tiles, and prefill's two; with 8 bits one with and one without one_part for each tile,
     * and prefill's two. */
    assert_in_range(count, 2, 8);
  }
}

/* Head sizes, pages, groups, with both types of cache. There is room behind, so that one kernel too many is counted. */
static void test_serving_choose__no_model_needs_more_kernels_than_there_is_room_for(void **state) {
  static const int64_t pages[] = {0, 1, 2, 8, 16, 256};
  size_t most = 0;
  (void)state;
  for (int64_t i = 0; i < 2400; i++) { /* mixed radix */
    kjit_serving_model model = kjit_serving_model_default();
    kjit_config configs[2 * KJIT_SERVING_KERNELS_MAX];
    kjit_error error;
    size_t count;
    model.dtype = KJIT_BF16;
    model.cache = i % 2 ? KJIT_FP8_E4M3 : 0;
    model.head_dim = 16 << i / 2 % 5;
    model.head_dim_v = 16 << i / 10 % 5;
    model.page_size = pages[i / 50 % 6];
    model.heads_kv = i / 300 % 2 ? 8 : 1;
    model.heads_q = model.heads_kv << i / 600 % 4 * 2;
    assert_status(KJIT_OK, kjit_attention_serving_kernels(&model, "sm_90a", configs, &count, &error), &error);
    most = count > most ? count : most;
  }
  assert_in_range(most, 1, KJIT_SERVING_KERNELS_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_arguments__good_ones_pass),
      cmocka_unit_test(test_serving_arguments__what_is_wrong_is_named),
      cmocka_unit_test(test_serving_arguments__rotary_tables_are_checked),
      cmocka_unit_test(test_serving_arguments__dense_cache_needs_the_batch),
      cmocka_unit_test(test_serving_arguments__e4m3_cache_is_checked),
      cmocka_unit_test(test_serving_arguments__nothing_to_do_is_seen),
      cmocka_unit_test(test_serving_arguments__ragged_tensors_have_no_batch_axis),
      cmocka_unit_test(test_serving_arguments__causal_chunk_and_window_become_bounds),
      cmocka_unit_test(test_serving_arguments__a_bound_below_the_rows_is_not_simple),
      cmocka_unit_test(test_serving_arguments__what_needs_more_code_is_not_simple),
      cmocka_unit_test(test_serving_arguments__few_new_keys_are_met_by_the_rows),
      cmocka_unit_test(test_serving_arguments__new_keys_that_no_row_may_see_are_not_met),
      cmocka_unit_test(test_serving_choose__depends_on_rows_alone),
      cmocka_unit_test(test_serving_choose__fits_every_head_size_and_card),
      cmocka_unit_test(test_serving_choose__a_model_needs_few_kernels),
      cmocka_unit_test(test_serving_choose__no_model_needs_more_kernels_than_there_is_room_for),
  };
  return cmocka_run_group_tests_name("serving arguments", tests, NULL, NULL);
}
