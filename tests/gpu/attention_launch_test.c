/* The ways to launch attention on a Hopper card: once, timed, by plan, from a graph, from many streams and threads. The
 * problem is causal and has more tiles than a card has multiprocessors, so that blocks take tiles by ticket. */
#include "attention_cases.h"

#include <pthread.h>

#include "support/test.h"

#define CALLERS 8
#define ROUNDS  10

static struct trial_problem busy_problem(struct gpu_fixture *fixture) {
  return (struct trial_problem){.asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 4, .heads_q = 16, .heads_kv = 4,
                                                    .seq_q = 700, .seq_kv = 900, .head_dim = 128,
                                                    .flags = KJIT_ATTENTION_CAUSAL),
                                .lse = 1,
                                .seed = random_next(&fixture->random)};
}

/* A few positions against a cache of keys: packed and split, with partial results in the stream's own memory. */
static struct trial_problem split_problem(struct gpu_fixture *fixture) {
  struct trial_problem problem = busy_problem(fixture);
  problem.asked.batch = 1;
  problem.asked.seq_q = 5;
  problem.asked.seq_kv = 16000;
  return problem;
}

/* A caller: a stream and tensors of its own; by plan where it has one. */
struct caller {
  struct gpu_fixture *fixture;
  kjit_runtime *runtime;
  CUstream stream;
  struct gpu_trial trial;
  kjit_attention_plan *plan;
  kjit_status status;
  kjit_error error;
};

static void caller_create(struct caller *caller, struct gpu_fixture *fixture, const struct trial_problem *problem) {
  *caller = (struct caller){.fixture = fixture, .runtime = fixture->runtime};
  gpu_trial_create(&caller->trial, &fixture->kernels, problem);
  assert_int_equal(CUDA_SUCCESS, fixture->card.api.stream_create(&caller->stream, CU_STREAM_NON_BLOCKING));
}

static void caller_begin(struct caller *caller, struct gpu_fixture *fixture, size_t index) {
  struct trial_problem problem = busy_problem(fixture);
  problem.asked.seq_q += (int64_t)index * 31;
  problem_set_causal(&problem, index % 4 != 3);
  caller_create(caller, fixture, &problem);
}

/* The first ones need more memory than the last ones. */
static void caller_begin_split(struct caller *caller, struct gpu_fixture *fixture, size_t index) {
  struct trial_problem problem = split_problem(fixture);
  problem.asked.seq_q += 16 * (int64_t)(CALLERS - index);
  problem.asked.seq_kv += 1001 * (int64_t)index;
  problem_set_causal(&problem, index % 2 != 0);
  caller_create(caller, fixture, &problem);
}

static kjit_status enqueue(void *user, CUstream stream, kjit_error *error) {
  const struct caller *caller = user;
  if (caller->plan) return kjit_attention_plan_run(caller->plan, stream, error);
  return kjit_attention_forward(caller->runtime, NULL, &caller->trial.data.args, stream, error);
}

static void caller_enqueue(struct caller *caller) {
  if (caller->status == KJIT_OK)
    caller->status = attention_data_poison(&caller->trial.data, caller->stream, &caller->error);
  if (caller->status == KJIT_OK) caller->status = enqueue(caller, caller->stream, &caller->error);
}

static void assert_right(struct caller *caller, const char *what) {
  assert_status(KJIT_OK, caller->status, &caller->error);
  const kjit_status status = card_synchronize(&caller->fixture->card, caller->stream, &caller->error);
  assert_status(KJIT_OK, status, &caller->error);
  gpu_assert_right(caller->fixture, &caller->trial, what);
}

static void caller_end(struct caller *caller) {
  kjit_attention_plan_destroy(caller->plan);
  caller->fixture->card.api.stream_destroy(caller->stream);
  gpu_trial_destroy(&caller->trial);
}

static void make_plan(struct caller *caller) {
  const kjit_status status =
      kjit_attention_plan_create(&caller->plan, caller->runtime, NULL, &caller->trial.data.args, &caller->error);
  assert_status(KJIT_OK, status, &caller->error);
}

static void test_attention_forward__launches_one_after_the_other_are_right(void **state) {
  struct caller caller;
  caller_begin(&caller, attention_require(state), 0);
  uint64_t first = 0;
  for (int round = 0; round < ROUNDS; round++) {
    caller_enqueue(&caller);
    assert_right(&caller, "one of several launches");
    const uint64_t digest = gpu_output_digest(&caller.trial);
    if (round == 0) first = digest;
    assert_true(digest == first);
  }
  caller_end(&caller);
}

/* The last part to arrive is another one each time; the result is the same to the bit. */
static void test_attention_forward__split_launches_repeat_to_the_bit(void **state) {
  struct caller caller;
  caller_begin_split(&caller, attention_require(state), CALLERS);
  uint64_t first = 0;
  for (int round = 0; round < 10 * ROUNDS; round++) {
    caller_enqueue(&caller);
    assert_right(&caller, "one of several split launches");
    const uint64_t digest = gpu_output_digest(&caller.trial);
    if (round == 0) first = digest;
    assert_true(digest == first);
  }
  caller_end(&caller);
}

static void test_attention_plan__run_equals_the_direct_call(void **state) {
  struct caller caller;
  caller_begin(&caller, attention_require(state), 1);
  caller_enqueue(&caller);
  assert_right(&caller, "direct");
  const uint64_t direct = gpu_output_digest(&caller.trial);
  make_plan(&caller);
  for (int round = 0; round < 3; round++) {
    caller_enqueue(&caller);
    assert_right(&caller, "plan");
    assert_true(gpu_output_digest(&caller.trial) == direct);
  }
  caller_end(&caller);
}

static void test_attention_plan_time__returns_the_time_and_the_result(void **state) {
  struct caller caller;
  float milliseconds = -1;
  caller_begin(&caller, attention_require(state), 0);
  kjit_attention_plan *plan = NULL;
  caller.status = kjit_attention_plan_create(&plan, caller.runtime, NULL, &caller.trial.data.args, &caller.error);
  if (caller.status == KJIT_OK)
    caller.status = kjit_attention_plan_time(plan, caller.stream, &milliseconds, &caller.error);
  kjit_attention_plan_destroy(plan);
  assert_right(&caller, "timed");
  assert_true(milliseconds > 0 && milliseconds < 1000);
  caller_end(&caller);
}

/* Replay three times over poisoned outputs; then a direct call, which finds its tickets as it left them. */
static void assert_replays(struct caller *caller, const char *what) {
  const struct card *card = &caller->fixture->card;
  CUgraphExec graph = NULL;
  caller_enqueue(caller); /* resident now: nothing is loaded during the capture */
  assert_right(caller, "before the capture");
  kjit_status status = card_capture(card, caller->stream, enqueue, caller, &graph, &caller->error);
  assert_status(KJIT_OK, status, &caller->error);
  for (int round = 0; round < 3; round++) {
    status = attention_data_poison(&caller->trial.data, caller->stream, &caller->error);
    assert_status(KJIT_OK, status, &caller->error);
    assert_int_equal(CUDA_SUCCESS, card->api.graph_launch(graph, caller->stream));
    assert_right(caller, what);
  }
  caller_enqueue(caller);
  assert_right(caller, "after the capture");
  card->api.graph_exec_destroy(graph);
}

static void test_attention_forward__captured_into_a_graph_replays(void **state) {
  struct caller caller;
  caller_begin(&caller, attention_require(state), 0);
  assert_replays(&caller, "graph of a call");
  caller_end(&caller);
}

/* The graph allocates what the parts leave their results in. */
static void test_attention_forward__split_and_captured_into_a_graph_replays(void **state) {
  struct caller caller;
  caller_begin_split(&caller, attention_require(state), 1);
  assert_replays(&caller, "graph of a split call");
  caller_end(&caller);
}

static void test_attention_plan__captured_into_a_graph_replays(void **state) {
  struct caller caller;
  caller_begin(&caller, attention_require(state), 2);
  make_plan(&caller);
  assert_replays(&caller, "graph of a plan");
  caller_end(&caller);
}

static void test_attention_forward__several_streams_at_once_are_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct caller callers[CALLERS];
  for (size_t i = 0; i < CALLERS; i++)
    caller_begin(&callers[i], fixture, i);
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < CALLERS; i++)
      caller_enqueue(&callers[i]);
  for (size_t i = 0; i < CALLERS; i++)
    assert_right(&callers[i], "one of several streams");
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i]);
}

static void test_attention_forward__several_streams_that_split_are_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct caller callers[CALLERS];
  for (size_t i = 0; i < CALLERS; i++)
    caller_begin_split(&callers[i], fixture, i);
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < CALLERS; i++)
      caller_enqueue(&callers[i]);
  for (size_t i = 0; i < CALLERS; i++)
    assert_right(&callers[i], "one of several streams that split");
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i]);
}

static void test_attention_plan__on_several_streams_is_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct caller callers[CALLERS];
  for (size_t i = 0; i < CALLERS; i++) {
    caller_begin(&callers[i], fixture, i);
    make_plan(&callers[i]);
  }
  for (int round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < CALLERS; i++)
      caller_enqueue(&callers[i]);
  for (size_t i = 0; i < CALLERS; i++)
    assert_right(&callers[i], "one of several plans");
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i]);
}

static void *call_repeatedly(void *user) {
  struct caller *caller = user;
  caller->status = card_make_current(&caller->fixture->card, &caller->error);
  for (int round = 0; round < ROUNDS; round++)
    caller_enqueue(caller);
  return NULL;
}

static void test_attention_forward__eight_threads_at_once_are_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct caller callers[CALLERS];
  pthread_t threads[CALLERS];
  kjit_runtime *fresh = NULL;
  kjit_error error = {0};
  /* A fresh runtime: the threads also race to build, to load, and for the first tickets. */
  const kjit_status status = kjit_runtime_create(&fresh, NULL, &error);
  assert_status(KJIT_OK, status, &error);
  for (size_t i = 0; i < CALLERS; i++) {
    caller_begin(&callers[i], fixture, i / 2);
    callers[i].runtime = fresh;
  }
  for (size_t i = 0; i < CALLERS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, call_repeatedly, &callers[i]));
  for (size_t i = 0; i < CALLERS; i++)
    pthread_join(threads[i], NULL);
  for (size_t i = 0; i < CALLERS; i++)
    assert_right(&callers[i], "one of eight threads");
  for (size_t i = 0; i < CALLERS; i++)
    caller_end(&callers[i]);
  kjit_runtime_destroy(fresh);
}

static void test_attention_choose__a_hopper_card_gets_its_own_family(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_config config;
  kjit_error error = {0};
  problem.dtype = KJIT_BF16;
  problem.seq_q = 4096;
  problem.head_dim = 128;
  const kjit_status status = kjit_attention_choose(fixture->runtime, &problem, NULL, &config, NULL, &error);
  assert_status(KJIT_OK, status, &error);
  assert_ptr_equal(config.family, kjit_family_find("attention_sm90"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_forward__launches_one_after_the_other_are_right),
      cmocka_unit_test(test_attention_forward__split_launches_repeat_to_the_bit),
      cmocka_unit_test(test_attention_plan__run_equals_the_direct_call),
      cmocka_unit_test(test_attention_plan_time__returns_the_time_and_the_result),
      cmocka_unit_test(test_attention_forward__captured_into_a_graph_replays),
      cmocka_unit_test(test_attention_forward__split_and_captured_into_a_graph_replays),
      cmocka_unit_test(test_attention_plan__captured_into_a_graph_replays),
      cmocka_unit_test(test_attention_forward__several_streams_at_once_are_right),
      cmocka_unit_test(test_attention_forward__several_streams_that_split_are_right),
      cmocka_unit_test(test_attention_plan__on_several_streams_is_right),
      cmocka_unit_test(test_attention_forward__eight_threads_at_once_are_right),
      cmocka_unit_test(test_attention_choose__a_hopper_card_gets_its_own_family),
  };
  return cmocka_run_group_tests_name("launching attention on the GPU", tests, gpu_setup, gpu_teardown);
}
