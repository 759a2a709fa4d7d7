/* A builder over a private folder and the fake compiler (fake_nvrtc.h), and requests that differ by a number.
 *
 * Life cycle: cache_world_setup(), cache_world_open(), any number of cache_world_get(); opening again replaces the
 * builder, as a new process would; cache_world_teardown(). */
#ifndef KJIT_TESTS_SUPPORT_CACHE_WORLD_H
#define KJIT_TESTS_SUPPORT_CACHE_WORLD_H

#include <stdbool.h>

#include "jit/builder.h"
#include "jit/builder_internal.h"
#include "support/fake_nvrtc.h"
#include "support/temp_folder.h"
#include "support/test.h"

struct cache_world {
  struct temp_folder folder;
  char cache_dir[TEMP_PATH_BYTES]; /* "<folder>/cache" */
  struct mem mem;
  struct log log;
  kjit_runtime_options options;
  struct builder_parts parts;
  const char *identity; /* the fake compiler's identity; NULL: the machine has no compiler */
  struct builder *builder;
  atomic_long log_lines;
};

/* One source file and a prologue that says `number`. */
struct cache_request {
  char prologue[96], label[32], text[128];
  struct source_file file;
  struct source_set sources;
  struct jit_request request;
};

/* Compute the digest of the request's sources again, after a test has changed the file. */
static inline void cache_request_seal(struct cache_request *made) {
  struct mem mem;
  mem_init(&mem, NULL);
  if (!source_set_seal(&made->sources, &made->file, 1, &mem)) abort();
}

static inline void cache_request_make(struct cache_request *made, long number) {
  *made = (struct cache_request){0};
  snprintf(made->prologue, sizeof made->prologue, "#define KJIT_NUMBER %ld\n#line 1 \"k.cu\"\n", number);
  snprintf(made->label, sizeof made->label, "number %ld", number);
  snprintf(made->text, sizeof made->text, "extern \"C\" __global__ void k() {}\n");
  made->file = (struct source_file){.name = "k.cu", .text = made->text, .bytes = strlen(made->text)};
  cache_request_seal(made);
  made->request.family = "custom";
  made->request.label = made->label;
  strcpy(made->request.target.name, "sm_80");
  made->request.target.capability = 80;
  made->request.entry = "k";
  made->request.prologue = made->prologue;
  made->request.sources = &made->sources;
}

static inline void cache_world_log(void *user, kjit_log_level level, const char *line) {
  struct cache_world *world = user;
  (void)level;
  if (getenv("KJIT_TEST_LOG")) fprintf(stderr, "# %s\n", line);
  atomic_fetch_add(&world->log_lines, 1);
}

/* Make the builder, in place of an older one, with the options and parts that the world holds now. */
static inline kjit_status cache_world_open(struct cache_world *world, kjit_error *error) {
  struct builder_parts parts = world->parts;
  builder_destroy(world->builder);
  world->builder = NULL;
  const kjit_status made = world->identity
                               ? nvrtc_create_fake(&parts.nvrtc, &world->mem, fake_nvrtc_api(), world->identity, error)
                               : nvrtc_create(&parts.nvrtc, &world->mem, "/nonexistent/libnvrtc.so", 0, error);
  if (made != KJIT_OK) return made;
  return builder_create_parts(&world->builder, &world->options, &world->mem, &world->log, &parts, error);
}

static inline int cache_world_setup(void **state) {
  struct cache_world *world = calloc(1, sizeof *world);
  *state = world;
  if (!world || temp_folder_create(&world->folder)) return -1;
  temp_folder_path(&world->folder, "cache", world->cache_dir);
  mem_init(&world->mem, NULL);
  world->log = (struct log){cache_world_log, world, KJIT_LOG_DEBUG};
  world->options = kjit_runtime_options_default();
  world->options.cache_dir = world->cache_dir;
  world->options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  world->identity = "nvrtc-fake-1";
  memset(&fake_nvrtc, 0, sizeof fake_nvrtc);
  return cache_world_open(world, NULL) == KJIT_OK ? 0 : -1;
}

/* The system's file calls without syncing, for tests of thousands of rounds: a test need not survive a power cut. */
static inline int cache_world_no_sync(void *user, int file) {
  (void)user, (void)file;
  return 0;
}

static inline int cache_world_setup_fast(void **state) {
  static struct file_ops ops;
  if (cache_world_setup(state)) return -1;
  ops = *file_ops_system();
  ops.sync = cache_world_no_sync;
  ((struct cache_world *)*state)->parts.ops = &ops;
  return cache_world_open(*state, NULL) == KJIT_OK ? 0 : -1;
}

static inline int cache_world_teardown(void **state) {
  struct cache_world *world = *state;
  if (!world) return 0;
  builder_destroy(world->builder);
  temp_folder_remove(&world->folder);
  free(world);
  *state = NULL;
  return 0;
}

/* Does the artifact hold exactly the cubin that the fake compiler makes of this request? */
static inline bool cache_world_right(const struct cache_request *made, const kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  char source[sizeof made->prologue + sizeof made->text];
  if (kjit_artifact_get_info(artifact, &info, NULL) != KJIT_OK) return false;
  snprintf(source, sizeof source, "%s%s", made->prologue, made->text);
  void *expected = malloc(info.cubin_bytes + 1);
  if (!expected || info.cubin_bytes < FAKE_CUBIN_LEAST_BYTES) {
    free(expected);
    return false;
  }
  fake_nvrtc_cubin(source, expected, info.cubin_bytes);
  const bool right = !memcmp(expected, info.cubin, info.cubin_bytes);
  free(expected);
  return right;
}

/* Ask for a number; `origin` (may be NULL) says where it came from. The cubin is checked. */
static inline kjit_status cache_world_get(struct cache_world *world, long number, uint32_t flags, kjit_origin *origin,
                                          kjit_error *error) {
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  cache_request_make(&made, number);
  made.request.flags = flags;
  kjit_status status = builder_get(world->builder, &made.request, &artifact, error);
  kjit_artifact_info info = {.struct_size = sizeof info};
  if (artifact && kjit_artifact_get_info(artifact, &info, NULL) != KJIT_OK) status = KJIT_ERR_INTERNAL;
  if (status == KJIT_OK && !cache_world_right(&made, artifact)) status = KJIT_ERR_CORRUPT;
  if (origin) *origin = (kjit_origin)info.origin;
  kjit_artifact_release(artifact);
  return status;
}

static inline uint64_t cache_world_count(const struct cache_world *world, enum cache_counter which) {
  return count_get(&world->builder->counters, which);
}

/* The name of a number's entry under the fake compiler. */
static inline void cache_world_name(const struct cache_world *world, long number, struct entry_name *name) {
  struct cache_request made;
  struct key key;
  cache_request_make(&made, number);
  if (key_make(&key, &world->mem, &made.request, world->identity, NULL) != KJIT_OK) abort();
  entry_name_make(name, &key.request, &key.digest);
  key_finish(&key);
}

/* The path of a number's entry in the file system. */
static inline void cache_world_path(const struct cache_world *world, long number, char path[TEMP_PATH_BYTES]) {
  struct entry_name name;
  cache_world_name(world, number, &name);
  if (snprintf(path, TEMP_PATH_BYTES, "%s/%s", world->cache_dir, name.path) >= TEMP_PATH_BYTES) abort();
}

#endif
