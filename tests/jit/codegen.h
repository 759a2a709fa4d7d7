/* Many configs through the real compiler, by all processors of a small machine: what the tests of the families' code
 * share. */
#ifndef KJIT_TESTS_JIT_CODEGEN_H
#define KJIT_TESTS_JIT_CODEGEN_H

#include <kjit/doctor.h>
#include <kjit/family.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pending_loads.h"
#include "support/test.h"

#define CODEGEN_THREADS 2

/* Of many alike configs every sixth, unless KJIT_TEST_ALL_CONFIGS is set. */
#define CODEGEN_STEP (getenv("KJIT_TEST_ALL_CONFIGS") ? 1 : 6)

/* First member of a family's own batch, which knows what its configs are. */
struct codegen {
  kjit_runtime *runtime; /* without a cache folder */
  size_t count;          /* configs */
  atomic_size_t next;
  void (*compile)(struct codegen *batch, size_t index); /* called by several threads */
};

/* For a setup: makes the family's batch, of `bytes` bytes, all zero. */
static inline int codegen_setup(void **state, size_t bytes) {
  struct codegen *batch = calloc(1, bytes);
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF;
  *state = batch;
  return batch && kjit_runtime_create(&batch->runtime, &options, NULL) == KJIT_OK ? 0 : -1;
}

static inline int codegen_teardown(void **state) {
  struct codegen *batch = *state;
  if (batch) kjit_runtime_destroy(batch->runtime);
  free(batch);
  return 0;
}

/* The batch, or the end of the test where there is no NVRTC. */
static inline void *codegen_or_skip(void **state) {
  struct codegen *batch = *state;
  kjit_doctor_report report = {.struct_size = sizeof report};
  assert_status(KJIT_OK, kjit_doctor(batch->runtime, &report, NULL), NULL);
  if (report.nvrtc_status != KJIT_OK) skip();
  return batch;
}

static inline void *codegen_compile_some(void *user) {
  struct codegen *batch = user;
  for (size_t mine; (mine = atomic_fetch_add(&batch->next, 1)) < batch->count;)
    batch->compile(batch, mine);
  return NULL;
}

/* Sort the first `count` configs, of `bytes` bytes each, and keep each once: the batch's count. */
static inline void codegen_keep_each_once(struct codegen *batch, void *configs, size_t bytes, size_t count,
                                          int (*compare)(const void *, const void *)) {
  char *const all = configs;
  size_t kept = 0;
  qsort(configs, count, bytes, compare);
  for (size_t i = 0; i < count; i++) {
    if (kept && compare(all + (kept - 1) * bytes, all + i * bytes) == 0) continue;
    memmove(all + kept++ * bytes, all + i * bytes, bytes);
  }
  batch->count = kept;
}

/* Keep `count` of the batch's sorted configs, the same ones on every machine, spread over all of them: the j-th from
 * somewhere in the j-th part. */
static inline void codegen_take_sample(struct codegen *batch, void *configs, size_t bytes, size_t count) {
  char *const all = configs;
  uint64_t random = 0x9E3779B97F4A7C15u;
  assert_true(batch->count > count);
  for (size_t j = 0; j < count; j++) {
    const size_t from = j * batch->count / count, to = (j + 1) * batch->count / count;
    random = random * 6364136223846793005u + 1442695040888963407u;
    memmove(all + j * bytes, all + (from + (size_t)(random >> 33) % (to - from)) * bytes, bytes);
  }
  batch->count = count;
}

/* Does a config compile without a word of the compiler's, without more than so many bytes of spills, and, for sm_90 and
 * sm_90a, so that no buffer is let go before it has been read? Otherwise what is wrong with it is printed. `outcome`
 * gets the figures of the compile, without texts; it may be NULL. */
static inline bool codegen_is_clean(const struct codegen *batch, const kjit_config *config, const char *arch,
                                    uint32_t most_spilled, kjit_artifact_info *outcome) {
  char text[KJIT_CONFIG_TEXT_MAX] = "";
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  const bool is_built = kjit_config_build(batch->runtime, config, arch, 0, &artifact, &error) == KJIT_OK &&
                        kjit_artifact_get_info(artifact, &info, &error) == KJIT_OK;
  const size_t pending =
      is_built && strncmp(arch, "sm_90", 5) == 0 ? pending_loads_in(info.cubin, info.cubin_bytes) : 0;
  const bool clean = is_built && info.spill_bytes <= most_spilled && info.log[0] == '\0' && !pending;
  if (!clean) {
    (void)!kjit_config_print(config, 0, text, sizeof text, NULL);
    print_error("%s %s: %s spills %u bytes, stack %u, %zu arrivals before what ldmatrix loads, log \"%.300s\"\n", arch,
                text, error.message, info.spill_bytes, info.local_bytes, pending, info.log ? info.log : "");
  }
  if (outcome) {
    *outcome = info;
    outcome->key = outcome->key_text = outcome->arch = outcome->entry = outcome->log = NULL;
    outcome->cubin = NULL;
  }
  kjit_artifact_release(artifact);
  return clean;
}

/* `compile` for each of the batch's configs. */
static inline void codegen_compile_all(struct codegen *batch, void (*compile)(struct codegen *batch, size_t index)) {
  pthread_t threads[CODEGEN_THREADS];
  batch->compile = compile;
  atomic_store(&batch->next, 0);
  for (int i = 0; i < CODEGEN_THREADS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, codegen_compile_some, batch));
  for (int i = 0; i < CODEGEN_THREADS; i++)
    pthread_join(threads[i], NULL);
}

#endif
