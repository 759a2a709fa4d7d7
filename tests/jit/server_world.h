/* A builder with a compile server over the fake compiler (support/fake_nvrtc_library.c), for tests of what it costs
 * when a compiler misbehaves. */
#ifndef KJIT_TESTS_JIT_SERVER_WORLD_H
#define KJIT_TESTS_JIT_SERVER_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "jit/builder.h"
#include "jit/builder_internal.h"
#include "support/test.h"

struct world {
  struct temp_folder folder;
  struct mem mem;
  struct log log;
  kjit_runtime_options options;
  struct builder *builder;
  const char *option;         /* of every request; NULL: none */
  kjit_stop_fn stop;          /* of every request */
  const struct file_ops *ops; /* NULL: the system's */
  atomic_int warnings;
  kjit_error error;
};

static inline void count_warning(void *user, kjit_log_level level, const char *line) {
  struct world *world = user;
  (void)line;
  atomic_fetch_add(&world->warnings, level <= KJIT_LOG_WARNING);
}

static inline int setup(void **state) {
  struct world *world = calloc(1, sizeof *world);
  *state = world;
  if (!world || temp_folder_create(&world->folder)) return -1;
  mem_init(&world->mem, NULL);
  world->log = (struct log){count_warning, world, KJIT_LOG_DEBUG};
  world->options = kjit_runtime_options_default();
  world->options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  world->options.cache_mode = KJIT_CACHE_OFF;
  world->options.nvrtc_path = FAKE_NVRTC;
  world->options.worker_path = WORKER;
  world->options.compile_server = KJIT_COMPILE_SERVER_ON;
  return 0;
}

static inline int teardown(void **state) {
  struct world *world = *state;
  builder_destroy(world->builder);
  temp_folder_remove(&world->folder);
  free(world);
  return 0;
}

static inline double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static inline kjit_status open_builder(struct world *world, kjit_error *error) {
  const struct builder_parts parts = {.ops = world->ops};
  return builder_create_parts(&world->builder, &world->options, &world->mem, &world->log, &parts, error);
}

/* Build a kernel whose source has that word. */
static inline kjit_status get(struct world *world, const char *word, uint32_t timeout_ms, kjit_artifact **out,
                              kjit_error *error) {
  char text[TEMP_PATH_BYTES + 200];
  kjit_artifact *artifact = NULL;
  if (!world->builder) {
    const kjit_status opened = open_builder(world, error);
    if (opened != KJIT_OK) return opened;
  }
  snprintf(text, sizeof text, "// %s\nextern \"C\" __global__ void k() {}\n", word);
  struct source_file file = {.name = "k.cu", .text = text, .bytes = strlen(text)};
  struct source_set set = {0};
  if (!source_set_seal(&set, &file, 1, &world->mem)) abort();
  struct jit_request request = {.family = "custom", .label = "k.cu", .entry = "k", .prologue = "#line 1 \"k.cu\"\n"};
  strcpy(request.target.name, "sm_80");
  request.target.capability = 80;
  request.sources = &set;
  request.options = &world->option;
  request.option_count = world->option != NULL;
  request.timeout_ms = timeout_ms;
  request.stop = world->stop;
  const kjit_status status = builder_get(world->builder, &request, &artifact, error);
  if (out)
    *out = artifact;
  else
    kjit_artifact_release(artifact);
  return status;
}

static inline void assert_works(struct world *world, const char *word) {
  memset(&world->error, 0, sizeof world->error);
  assert_status(KJIT_OK, get(world, word, 0, NULL, &world->error), &world->error);
}

#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
