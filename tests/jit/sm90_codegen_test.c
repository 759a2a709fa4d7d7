/* What the real compiler makes of attention_sm90's configs: every one that the planner can choose over a grid of
 * problems compiles without a word (ptxas's warnings on serialised wgmma are words) and without spills.
 *
 * A run takes a sample of them; KJIT_TEST_ALL_CONFIGS=1 takes all. */
#include <kjit/attention_sm90.h>
#include <kjit/doctor.h>
#include <pthread.h>
#include <stdlib.h>

#include "support/attention_grid.h"
#include "support/test.h"

#define COMPILER_THREADS 2

/* NVRTC itself is the same in a sanitized build, only slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(KJIT_TESTS_ONE_ARCHITECTURE)
#define SAMPLE 6
#else
#define SAMPLE 24
#endif

struct batch {
  kjit_runtime *runtime;
  kjit_attention_sm90_config configs[ATTENTION_GRID_SIZE];
  size_t count, next, wrong;
  pthread_mutex_t lock;
};

static int setup(void **state) {
  struct batch *batch = calloc(1, sizeof *batch);
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF;
  *state = batch;
  if (!batch || pthread_mutex_init(&batch->lock, NULL)) return -1;
  return kjit_runtime_create(&batch->runtime, &options, NULL) == KJIT_OK ? 0 : -1;
}

static int teardown(void **state) {
  struct batch *batch = *state;
  kjit_runtime_destroy(batch->runtime);
  pthread_mutex_destroy(&batch->lock);
  free(batch);
  return 0;
}

static struct batch *batch_or_skip(void **state) {
  struct batch *batch = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, kjit_doctor(batch->runtime, &report, NULL), NULL);
  if (report.nvrtc_status != KJIT_OK) skip();
  return batch;
}

static int compare(const void *a, const void *b) {
  return kjit_attention_sm90_config_compare(a, b);
}

/* What the planner chooses over the grid, sorted, each once. */
static void choose_all(struct batch *batch) {
  size_t kept = 0;
  for (size_t i = 0; i < ATTENTION_GRID_SIZE; i++) {
    const kjit_attention_problem problem = attention_grid_problem(i);
    kjit_error error;
    assert_status(KJIT_OK, kjit_attention_sm90_choose(&problem, 0, &batch->configs[i], &error), &error);
  }
  qsort(batch->configs, ATTENTION_GRID_SIZE, sizeof *batch->configs, compare);
  for (size_t i = 0; i < ATTENTION_GRID_SIZE; i++) {
    if (kept && compare(&batch->configs[kept - 1], &batch->configs[i]) == 0) continue;
    batch->configs[kept++] = batch->configs[i];
  }
  batch->count = kept;
}

/* `count` of them, the same ones on every machine, spread over the sorted list: the j-th somewhere in the j-th part. */
static void take_sample(struct batch *batch, size_t count) {
  uint64_t random = 0x9E3779B97F4A7C15u;
  assert_true(batch->count > count);
  for (size_t j = 0; j < count; j++) {
    const size_t from = j * batch->count / count, to = (j + 1) * batch->count / count;
    random = random * 6364136223846793005u + 1442695040888963407u;
    batch->configs[j] = batch->configs[from + (size_t)(random >> 33) % (to - from)];
  }
  batch->count = count;
}

static _Bool is_clean(struct batch *batch, const kjit_attention_sm90_config *config) {
  char text[KJIT_ATTENTION_SM90_TEXT_MAX] = "";
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  _Bool clean = 0;
  if (kjit_attention_sm90_build(batch->runtime, config, 0, &artifact, &error) == KJIT_OK &&
      kjit_artifact_get_info(artifact, &info, &error) == KJIT_OK)
    clean = info.spill_bytes == 0 && info.local_bytes == 0 && info.log[0] == '\0';
  if (!clean && kjit_attention_sm90_config_print(config, 0, text, sizeof text, NULL) == KJIT_OK) {
    print_error("%s: %s spills %u bytes, stack %u, log \"%.300s\"\n", text, error.message, info.spill_bytes,
                info.local_bytes, info.log ? info.log : "");
  }
  kjit_artifact_release(artifact);
  return clean;
}

static void *compile_some(void *user) {
  struct batch *batch = user;
  for (;;) {
    pthread_mutex_lock(&batch->lock);
    const size_t mine = batch->next < batch->count ? batch->next++ : batch->count;
    pthread_mutex_unlock(&batch->lock);
    if (mine == batch->count) return NULL;
    const _Bool clean = is_clean(batch, &batch->configs[mine]);
    pthread_mutex_lock(&batch->lock);
    batch->wrong += !clean;
    pthread_mutex_unlock(&batch->lock);
  }
}

static void assert_all_clean(struct batch *batch) {
  pthread_t threads[COMPILER_THREADS];
  for (int i = 0; i < COMPILER_THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, compile_some, batch), 0);
  for (int i = 0; i < COMPILER_THREADS; i++)
    pthread_join(threads[i], NULL);
  if (batch->wrong) fail_msg("%zu of %zu configs are not clean", batch->wrong, batch->count);
}

static void test_sm90_codegen__chosen_configs_compile_without_a_word_and_without_spills(void **state) {
  struct batch *batch = batch_or_skip(state);
  const char *all = getenv("KJIT_TEST_ALL_CONFIGS");
  choose_all(batch);
  if (!all || !*all) take_sample(batch, SAMPLE);
  print_message("%zu configs\n", batch->count);
  assert_all_clean(batch);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_sm90_codegen__chosen_configs_compile_without_a_word_and_without_spills,
                                      setup, teardown),
  };
  return cmocka_run_group_tests_name("sm90_codegen", tests, NULL, NULL);
}
