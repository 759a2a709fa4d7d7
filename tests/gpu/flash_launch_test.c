/* The ways to launch attention forward: direct, planned, timed, captured, from many streams, threads, contexts and
 * devices. Each way's output is judged beside float64. */
#include "case_generator.h"

#include <pthread.h>
#include <stdio.h>

#include "support/configs.h"
#include "support/test.h"

/* A call as work for card_capture(). */
struct call {
  kjit_runtime *runtime;
  const kjit_flash_config *config;
  const kjit_attention_args *args;
  const kjit_attention_plan *plan; /* NULL: by config */
};

static kjit_status enqueue_call(void *user, CUstream stream, kjit_error *error) {
  const struct call *call = user;
  if (call->plan) return kjit_attention_plan_run(call->plan, stream, error);
  return plain_forward(call->runtime, call->config, call->args, stream, error);
}

/* Setup and teardown of a test with one small problem. */
struct scene {
  struct gpu_fixture *fixture;
  struct gpu_trial trial;
  kjit_flash_config config;
  struct call call;
};

static void scene_begin(struct scene *scene, void **state) {
  *scene = (struct scene){.fixture = gpu_require(state), .config = gpu_plain_config()};
  const struct trial_problem problem = gpu_small_problem(scene->fixture);
  gpu_trial_create(&scene->trial, &scene->fixture->kernels, &problem);
  scene->call = (struct call){scene->fixture->runtime, &scene->config, &scene->trial.data.args, NULL};
}

static void scene_end(struct scene *scene) {
  gpu_trial_destroy(&scene->trial);
}

static void poison(const struct gpu_trial *trial, CUstream stream) {
  kjit_error error = {0};
  const kjit_status status = attention_data_poison(&trial->data, stream, &error);
  assert_status(KJIT_OK, status, &error);
}

static void synchronize(const struct card *card, CUstream stream) {
  kjit_error error = {0};
  const kjit_status status = card_synchronize(card, stream, &error);
  assert_status(KJIT_OK, status, &error);
}

/* Run the call once on the card's stream, and keep the digest of its output. */
static uint64_t digest_of_direct_call(struct scene *scene) {
  kjit_error error = {0};
  poison(&scene->trial, scene->fixture->card.stream);
  const kjit_status status = enqueue_call(&scene->call, scene->fixture->card.stream, &error);
  assert_status(KJIT_OK, status, &error);
  gpu_assert_right(scene->fixture, &scene->trial, "direct");
  return gpu_output_digest(&scene->trial);
}

static void test_flash_plan__run_equals_the_direct_call(void **state) {
  struct scene scene;
  scene_begin(&scene, state);
  const uint64_t direct = digest_of_direct_call(&scene);
  kjit_error error = {0};
  kjit_attention_plan *plan = NULL;
  kjit_status status = plain_plan_create(&plan, scene.fixture->runtime, &scene.config, &scene.trial.data.args, &error);
  assert_status(KJIT_OK, status, &error);
  for (int run = 0; run < 3; run++) {
    poison(&scene.trial, scene.fixture->card.stream);
    status = kjit_attention_plan_run(plan, scene.fixture->card.stream, &error);
    assert_status(KJIT_OK, status, &error);
    gpu_assert_right(scene.fixture, &scene.trial, "plan");
    assert_true(gpu_output_digest(&scene.trial) == direct);
  }
  kjit_attention_plan_destroy(plan);
  scene_end(&scene);
}

static void test_flash_plan_time__returns_the_time_and_the_result(void **state) {
  struct scene scene;
  scene_begin(&scene, state);
  kjit_error error = {0};
  float milliseconds = -1;
  poison(&scene.trial, scene.fixture->card.stream);
  kjit_attention_plan *plan = NULL;
  kjit_status status = plain_plan_create(&plan, scene.fixture->runtime, &scene.config, &scene.trial.data.args, &error);
  if (status == KJIT_OK) status = kjit_attention_plan_time(plan, scene.fixture->card.stream, &milliseconds, &error);
  kjit_attention_plan_destroy(plan);
  assert_status(KJIT_OK, status, &error);
  assert_true(milliseconds > 0 && milliseconds < 1000);
  gpu_assert_right(scene.fixture, &scene.trial, "timed");
  scene_end(&scene);
}

/* Capture the scene's call, replay it three times over poisoned outputs. */
static void assert_replays(struct scene *scene, const char *what) {
  const struct card *card = &scene->fixture->card;
  kjit_error error = {0};
  CUgraphExec graph = NULL;
  kjit_status status = card_capture(card, card->stream, enqueue_call, &scene->call, &graph, &error);
  assert_status(KJIT_OK, status, &error);
  for (int run = 0; run < 3; run++) {
    poison(&scene->trial, card->stream);
    status = card_result(card, card->api.graph_launch(graph, card->stream), "cuGraphLaunch", &error);
    assert_status(KJIT_OK, status, &error);
    gpu_assert_right(scene->fixture, &scene->trial, what);
  }
  card->api.graph_exec_destroy(graph);
}

static void test_flash_forward__captured_into_a_graph_replays(void **state) {
  struct scene scene;
  scene_begin(&scene, state);
  digest_of_direct_call(&scene); /* resident now: nothing is loaded during the capture */
  assert_replays(&scene, "graph by config");
  scene_end(&scene);
}

static void test_flash_plan__captured_into_a_graph_replays(void **state) {
  struct scene scene;
  scene_begin(&scene, state);
  kjit_error error = {0};
  kjit_attention_plan *plan = NULL;
  const kjit_status status =
      plain_plan_create(&plan, scene.fixture->runtime, &scene.config, &scene.trial.data.args, &error);
  assert_status(KJIT_OK, status, &error);
  scene.call.plan = plan;
  assert_replays(&scene, "graph by plan");
  kjit_attention_plan_destroy(plan);
  scene_end(&scene);
}

/* One of several callers at once: a stream and tensors of its own. */
struct caller {
  struct gpu_fixture *fixture;
  const struct card *card;
  CUstream stream;
  struct gpu_trial trial;
  kjit_flash_config config;
  kjit_status status;
  kjit_error error;
};

#define CALLERS 8
#define ROUNDS  10

static void caller_begin(struct caller *caller, struct gpu_fixture *fixture, const struct check_kernels *kernels,
                         size_t index) {
  *caller = (struct caller){.fixture = fixture, .card = kernels->card, .config = gpu_plain_config()};
  generator_flags(&caller->config, index % GENERATOR_FLAG_ROWS);
  struct trial_problem problem = gpu_small_problem(fixture);
  problem.asked.seq_q += (int64_t)index * 31;
  gpu_trial_create(&caller->trial, kernels, &problem);
  const CUresult result = caller->card->api.stream_create(&caller->stream, CU_STREAM_NON_BLOCKING);
  assert_int_equal(CUDA_SUCCESS, result);
}

static void caller_enqueue(struct caller *caller) {
  if (caller->status == KJIT_OK)
    caller->status = attention_data_poison(&caller->trial.data, caller->stream, &caller->error);
  if (caller->status == KJIT_OK)
    caller->status = plain_forward(caller->fixture->runtime, &caller->config, &caller->trial.data.args, caller->stream,
                                   &caller->error);
}

static void caller_end(struct caller *caller, const char *what) {
  assert_status(KJIT_OK, caller->status, &caller->error);
  synchronize(caller->card, caller->stream);
  gpu_assert_right(caller->fixture, &caller->trial, what);
  caller->card->api.stream_destroy(caller->stream);
  gpu_trial_destroy(&caller->trial);
}

static void test_flash_forward__several_streams_at_once_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct caller callers[CALLERS];
  for (size_t i = 0; i < CALLERS; i++)
    caller_begin(&callers[i], fixture, &fixture->kernels, i);
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < CALLERS; i++)
      caller_enqueue(&callers[i]);
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i], "one of several streams");
}

static void *call_repeatedly(void *argument) {
  struct caller *caller = argument;
  caller->status = card_make_current(caller->card, &caller->error);
  for (int round = 0; round < ROUNDS; round++)
    caller_enqueue(caller);
  return NULL;
}

static void test_flash_forward__eight_threads_at_once_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_error error = {0};
  kjit_runtime *shared = fixture->runtime, *fresh = NULL;
  /* A fresh runtime: the threads also race to build and to load. */
  const kjit_status status = kjit_runtime_create(&fresh, NULL, &error);
  assert_status(KJIT_OK, status, &error);
  struct caller callers[CALLERS];
  pthread_t threads[CALLERS];
  for (size_t i = 0; i < CALLERS; i++)
    caller_begin(&callers[i], fixture, &fixture->kernels, i / 2);
  fixture->runtime = fresh;
  for (size_t i = 0; i < CALLERS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, call_repeatedly, &callers[i]));
  for (size_t i = 0; i < CALLERS; i++)
    pthread_join(threads[i], NULL);
  fixture->runtime = shared;
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i], "one of eight threads");
  kjit_runtime_destroy(fresh);
}

/* The first device again, in a context of its own. */
static void open_second_context(struct card *second, const struct card *first) {
  *second = *first;
  assert_int_equal(CUDA_SUCCESS, first->api.context_create(&second->context, 0, first->device));
  assert_int_equal(CUDA_SUCCESS, first->api.stream_create(&second->stream, CU_STREAM_NON_BLOCKING));
}

static void close_second_context(const struct card *second, const struct card *first) {
  second->api.stream_destroy(second->stream);
  second->api.context_destroy(second->context);
  assert_int_equal(CUDA_SUCCESS, first->api.context_set(first->context));
}

static void make_current(const struct card *card) {
  kjit_error error = {0};
  const kjit_status status = card_make_current(card, &error);
  assert_status(KJIT_OK, status, &error);
}

static void test_flash_forward__two_contexts_of_one_device_are_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  struct card cards[2];
  struct check_kernels kernels[2];
  struct caller callers[2];
  kjit_error error = {0};
  cards[0] = fixture->card;
  kernels[0] = fixture->kernels;
  open_second_context(&cards[1], &cards[0]);
  const kjit_status status = check_kernels_create(&kernels[1], fixture->runtime, &cards[1], &error);
  assert_status(KJIT_OK, status, &error);
  for (size_t i = 0; i < 2; i++) {
    make_current(&cards[i]);
    caller_begin(&callers[i], fixture, &kernels[i], 0);
  }
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < 2; i++) {
      make_current(&cards[i]);
      caller_enqueue(&callers[i]);
    }
  for (size_t i = 0; i < 2; i++) {
    make_current(&cards[i]);
    caller_end(&callers[i], "one of two contexts");
  }
  check_kernels_destroy(&kernels[1]);
  close_second_context(&cards[1], &cards[0]);
}

static void check_device(struct gpu_fixture *fixture, int ordinal) {
  struct card card;
  struct check_kernels kernels;
  struct caller caller;
  kjit_error error = {0};
  kjit_status status = card_open(&card, ordinal, &error);
  assert_status(KJIT_OK, status, &error);
  status = check_kernels_create(&kernels, fixture->runtime, &card, &error);
  assert_status(KJIT_OK, status, &error);
  caller_begin(&caller, fixture, &kernels, 0);
  for (int round = 0; round < ROUNDS; round++)
    caller_enqueue(&caller);
  caller_end(&caller, "one of the devices");
  check_kernels_destroy(&kernels);
  card_close(&card);
}

static void test_flash_forward__every_device_is_right(void **state) {
  struct gpu_fixture *fixture = gpu_require(state);
  for (int ordinal = 0; ordinal < fixture->card.device_count; ordinal++)
    check_device(fixture, ordinal);
  print_message("%d device(s)\n", fixture->card.device_count);
  make_current(&fixture->card);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flash_plan__run_equals_the_direct_call),
      cmocka_unit_test(test_flash_plan_time__returns_the_time_and_the_result),
      cmocka_unit_test(test_flash_forward__captured_into_a_graph_replays),
      cmocka_unit_test(test_flash_plan__captured_into_a_graph_replays),
      cmocka_unit_test(test_flash_forward__several_streams_at_once_are_right),
      cmocka_unit_test(test_flash_forward__eight_threads_at_once_are_right),
      cmocka_unit_test(test_flash_forward__two_contexts_of_one_device_are_right),
      cmocka_unit_test(test_flash_forward__every_device_is_right),
  };
  return cmocka_run_group_tests_name("launching on the GPU", tests, gpu_setup, gpu_teardown);
}
