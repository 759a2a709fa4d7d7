/* What cannot be run on this GPU is refused, with a sentence that names it, before anything is launched. */
#include "gpu_fixture.h"
#include "support/configs.h"

#include "support/test.h"

/* A small right call, to be spoilt in one way by each test. */
struct call {
  struct gpu_fixture *fixture;
  struct gpu_trial trial;
  kjit_flash_config config;
  kjit_attention_args args;
  kjit_error error;
};

static void call_begin_with(struct call *call, int32_t head_dim, void **state) {
  *call = (struct call){.fixture = gpu_require(state), .config = gpu_plain_config()};
  struct trial_problem problem = gpu_small_problem(call->fixture);
  call->config.d_head = head_dim;
  problem.asked.head_dim = head_dim;
  gpu_trial_create(&call->trial, &call->fixture->kernels, &problem);
  call->args = call->trial.data.args;
}

static void call_begin(struct call *call, void **state) {
  call_begin_with(call, 128, state);
}

static kjit_status call_run(struct call *call) {
  return plain_forward(call->fixture->runtime, &call->config, &call->args, call->fixture->card.stream, &call->error);
}

/* Refused, and nothing was written anywhere. */
static void call_end_refused(struct call *call, kjit_status expected, kjit_status actual, const char *named) {
  struct census_result census = {0};
  kjit_error error = {0};
  assert_status(expected, actual, &call->error);
  assert_contains(call->error.message, named);
  const struct card_buffer memory = call->trial.data.memory[TENSOR_O];
  const kjit_status status = check_census(&call->fixture->kernels, memory, 2, &census, &error);
  assert_status(KJIT_OK, status, &error);
  assert_true(census.poisoned == memory.bytes / 2);
  gpu_trial_destroy(&call->trial);
}

static void test_flash_forward__tensor_of_another_device_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  call.args.k.device = call.fixture->card.ordinal + 1;
  call_end_refused(&call, KJIT_ERR_INVALID_ARG, call_run(&call), "k.device");
}

static void test_flash_forward__tensor_in_host_memory_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  call.args.v.device = KJIT_DEVICE_HOST;
  call_end_refused(&call, KJIT_ERR_INVALID_ARG, call_run(&call), "v.device");
}

static void test_flash_plan__pointer_that_is_not_device_memory_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  static _Alignas(16) uint16_t host_memory[1 << 20];
  kjit_attention_plan *plan = NULL;
  call.args.q.data = host_memory;
  const kjit_status status = plain_plan_create(&plan, call.fixture->runtime, &call.config, &call.args, &call.error);
  assert_null(plan);
  call_end_refused(&call, KJIT_ERR_INVALID_ARG, status, "q");
}

static void test_flash_forward__misaligned_tensor_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  call.args.o.data = (char *)call.args.o.data + 2;
  call_end_refused(&call, KJIT_ERR_INVALID_ARG, call_run(&call), "o.data");
}

static void test_flash_forward__config_of_another_type_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  call.config.dtype = KJIT_BF16;
  call_end_refused(&call, KJIT_ERR_INVALID_CONFIG, call_run(&call), "dtype");
}

static void test_flash_forward__config_of_another_head_size_is_refused(void **state) {
  struct call call;
  call_begin(&call, state);
  call.config.d_head = 64;
  call_end_refused(&call, KJIT_ERR_INVALID_CONFIG, call_run(&call), "d_head");
}

static void test_flash_forward__more_shared_memory_than_the_device_has_is_refused(void **state) {
  struct call call;
  call_begin_with(&call, 256, state);
  call.config.B_r = 128;
  call.config.B_c = 256;
  call.config.n_warps = 8; /* (128 + 2 * 256) * 256 * 2 bytes = 320 KiB; no GPU has more than 228 */
  call_end_refused(&call, KJIT_ERR_UNSUPPORTED, call_run(&call), "shared memory");
}

/* On the stream NULL, because a created stream brings a context of its own. */
static void test_flash_forward__no_current_context_is_reported(void **state) {
  struct call call;
  call_begin(&call, state);
  const struct card *card = &call.fixture->card;
  assert_int_equal(CUDA_SUCCESS, card->api.context_set(NULL));
  const kjit_status status = plain_forward(call.fixture->runtime, &call.config, &call.args, NULL, &call.error);
  assert_int_equal(CUDA_SUCCESS, card->api.context_set(card->context));
  call_end_refused(&call, KJIT_ERR_NO_DRIVER, status, "context");
}

static void test_flash_forward__is_right_again_after_every_error(void **state) {
  struct call call;
  call_begin(&call, state);
  const kjit_status status = call_run(&call);
  assert_status(KJIT_OK, status, &call.error);
  gpu_assert_right(call.fixture, &call.trial, "after the errors");
  gpu_trial_destroy(&call.trial);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_forward__tensor_of_another_device_is_refused),
      cmocka_unit_test(test_flash_forward__tensor_in_host_memory_is_refused),
      cmocka_unit_test(test_flash_plan__pointer_that_is_not_device_memory_is_refused),
      cmocka_unit_test(test_flash_forward__misaligned_tensor_is_refused),
      cmocka_unit_test(test_flash_forward__config_of_another_type_is_refused),
      cmocka_unit_test(test_flash_forward__config_of_another_head_size_is_refused),
      cmocka_unit_test(test_flash_forward__more_shared_memory_than_the_device_has_is_refused),
      cmocka_unit_test(test_flash_forward__no_current_context_is_reported),
      cmocka_unit_test(test_flash_forward__is_right_again_after_every_error),
  };
  return cmocka_run_group_tests_name("refusals on the GPU", tests, gpu_setup, gpu_teardown);
}
