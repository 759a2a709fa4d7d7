/* The arguments of a backward call: what is refused, with which sentence. */
#include "attention/backward/backward_arguments.h"
#include "unit/attention/arguments.h"

static kjit_tensor rows(uintptr_t number) {
  return (kjit_tensor){.data = address(number),
                       .dtype = KJIT_FP32,
                       .device = DEVICE,
                       .rank = 3,
                       .shape = {BATCH, HEADS, SEQ_Q},
                       .stride = {HEADS * SEQ_Q, SEQ_Q, 1}};
}

static kjit_attention_backward_args good(void) {
  const kjit_attention_args forward = good_args();
  kjit_attention_backward_args args = kjit_attention_backward_args_default();
  args.q = forward.q, args.k = forward.k, args.v = forward.v, args.o = forward.o;
  args.dout = forward.o, args.dq = forward.q, args.dk = forward.k, args.dv = forward.v;
  args.dout.data = address(6), args.dq.data = address(7), args.dk.data = address(8), args.dv.data = address(9);
  args.lse = rows(5), args.dlse = rows(10), args.delta = rows(11);
  return args;
}

static void expect_fine(const kjit_attention_backward_args *args) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_OK, backward_arguments_check(args, DEVICE, &error), &error);
}

static void expect_error(const kjit_attention_backward_args *args, const char *message) {
  kjit_error error;
  error_clear(&error);
  assert_status(KJIT_ERR_INVALID_ARG, backward_arguments_check(args, DEVICE, &error), &error);
  assert_string_equal(error.message, message);
}

static void test_backward_arguments__good_ones_pass(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  expect_fine(&args);
  args.dlse.data = NULL;
  expect_fine(&args);
}

static void test_backward_arguments__say_which_gradients_are_wanted(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  assert_int_equal(backward_arguments_gradients(&args), KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  args.dq.data = NULL;
  assert_int_equal(backward_arguments_gradients(&args), KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  expect_fine(&args);
}

static void test_backward_arguments__without_any_gradient_are_refused(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.dq.data = args.dk.data = args.dv.data = NULL;
  expect_error(&args, "dq.data, dk.data and dv.data: at least one must not be NULL");
}

static void test_backward_arguments__need_delta_but_for_dv(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.delta.data = NULL;
  expect_error(&args, "delta.data: must be scratch memory of lse's shape where more than dv is wanted");
  args.dq.data = args.dk.data = NULL;
  expect_fine(&args);
}

static void test_backward_arguments__need_what_the_forward_wrote(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.lse.data = NULL;
  expect_error(&args, "lse.data: must be the forward's log-sum-exp, not NULL");
  args = good();
  args.dout.data = NULL;
  expect_error(&args, "dout.data: must be the gradient of o, not NULL");
}

static void test_backward_arguments__have_the_forwards_rules(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.v.shape[1] = SEQ_KV - 1;
  expect_error(&args, "v.shape[1] (seq) is 69: must equal that of k, 70");
}

static void test_backward_arguments__more_than_a_grid_or_nothing_is_refused(void **state) {
  kjit_attention_backward_args args = good();
  kjit_error error;
  (void)state;
  kjit_tensor *const wide[] = {&args.q, &args.k, &args.v, &args.o, &args.dout, &args.dq, &args.dk, &args.dv};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    wide[i]->shape[0] = 65536;
  args.lse.shape[0] = args.dlse.shape[0] = args.delta.shape[0] = 65536;
  error_clear(&error);
  assert_status(KJIT_ERR_UNSUPPORTED, backward_arguments_check(&args, DEVICE, &error), &error);
  assert_string_equal(error.message, "batch is 65536 and heads 3: attention backward takes at most 65535 of each");
  args = good();
  args.k.shape[1] = args.v.shape[1] = 0;
  expect_error(&args, "q and k: an axis has no element; must be at least 1 for gradients, which are zeros then");
}

static void test_backward_arguments__gradients_have_their_tensors_shapes_and_types(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.dk.shape[1] = SEQ_Q;
  expect_error(&args, "dk.shape[1] (seq) is 100: must equal that of k, 70");
  args = good();
  args.dv.dtype = KJIT_BF16;
  expect_error(&args, "dv.dtype is 15: must be that of v, 5");
  args = good();
  args.delta.shape[2] = 1;
  expect_error(&args, "delta.shape[2] (seq) is 1: must equal that of lse, 100");
}

static void test_backward_arguments__dout_may_be_expanded_and_dq_may_not(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.dout.stride[0] = args.dout.stride[1] = args.dout.stride[2] = 0;
  expect_fine(&args);
  args.dq.stride[1] = 0;
  expect_error(&args, "dq.stride[1] (seq) is 0: must be at least 1");
}

static void test_backward_arguments__written_tensors_have_memory_of_their_own(void **state) {
  kjit_attention_backward_args args = good();
  (void)state;
  args.dq.data = args.q.data;
  expect_error(&args, "dq.data is q.data: must be memory of its own");
  args = good();
  args.dv.data = args.dk.data;
  expect_error(&args, "dv.data is dk.data: must be memory of its own");
  args = good();
  args.dlse.data = args.lse.data; /* both are read */
  expect_fine(&args);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_backward_arguments__good_ones_pass),
      cmocka_unit_test(test_backward_arguments__say_which_gradients_are_wanted),
      cmocka_unit_test(test_backward_arguments__without_any_gradient_are_refused),
      cmocka_unit_test(test_backward_arguments__need_delta_but_for_dv),
      cmocka_unit_test(test_backward_arguments__need_what_the_forward_wrote),
      cmocka_unit_test(test_backward_arguments__have_the_forwards_rules),
      cmocka_unit_test(test_backward_arguments__more_than_a_grid_or_nothing_is_refused),
      cmocka_unit_test(test_backward_arguments__gradients_have_their_tensors_shapes_and_types),
      cmocka_unit_test(test_backward_arguments__dout_may_be_expanded_and_dq_may_not),
      cmocka_unit_test(test_backward_arguments__written_tensors_have_memory_of_their_own),
  };
  return cmocka_run_group_tests_name("backward_arguments", tests, NULL, NULL);
}
