/* Makes a builder from a caller's options and the environment, and ends it. An option wins over the environment, and
 * the environment over the default; the environment is read here and nowhere else in the builder. A folder that cannot
 * be used does not make the call fail: kernels are then kept in memory only, and the reason is logged. One thread. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "jit/builder.h"
#include "jit/builder_background.h"
#include "jit/builder_fork.h"
#include "jit/cache/cache_usage.h"

/* A variable that is empty counts as not set, so that a script can switch one off without unsetting it. */
static const char *read_environment(const struct builder *builder, const kjit_runtime_options *options,
                                    const char *name) {
  if (options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT) return NULL;
  const char *value = builder->ops->environment(builder->ops->user, name);
  return value && *value ? value : NULL;
}

/* A mode that is misspelt in the environment is an error and not the default, because who writes "r0" wants no writes
 * and would get them. */
static kjit_status choose_mode(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  static const struct {
    const char *name;
    kjit_cache_mode mode;
  } modes[] = {{"rw", KJIT_CACHE_RW}, {"ro", KJIT_CACHE_RO}, {"off", KJIT_CACHE_OFF}};
  if (options->cache_mode > KJIT_CACHE_OFF) return error_invalid(error, "cache_mode", "must be a kjit_cache_mode");
  builder->mode = (kjit_cache_mode)options->cache_mode;
  if (builder->mode != KJIT_CACHE_DEFAULT) return KJIT_OK;
  builder->mode = KJIT_CACHE_RW;
  const char *value = read_environment(builder, options, "KJIT_CACHE_MODE");
  if (!value) return KJIT_OK;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (!strcmp(value, modes[i].name)) {
      builder->mode = modes[i].mode;
      return KJIT_OK;
    }
  return error_set(error, KJIT_ERR_INVALID_ARG, "KJIT_CACHE_MODE: \"%.64s\"; must be rw, ro or off", value);
}

/* Read a number of bytes from the environment; `*out` stays as it is when the variable is not set. */
static kjit_status read_bytes(const struct builder *builder, const kjit_runtime_options *options, const char *name,
                              uint64_t *out, kjit_error *error) {
  const char *value = read_environment(builder, options, name);
  if (!value) return KJIT_OK;
  char *end = NULL;
  errno = 0;
  const unsigned long long bytes = strtoull(value, &end, 10);
  if (*value < '0' || *value > '9' || *end || errno || !bytes)
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: \"%.64s\"; must be a number of bytes from 1 on", name, value);
  *out = bytes;
  return KJIT_OK;
}

/* Only the bytes have a variable, because disk space is what the user of somebody else's program wants to bound. */
static kjit_status choose_bounds(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  builder->user.max_bytes = options->cache_max_bytes ? options->cache_max_bytes : BUILDER_DEFAULT_MAX_BYTES;
  builder->user.max_entries = options->cache_max_entries ? options->cache_max_entries : BUILDER_DEFAULT_MAX_ENTRIES;
  if (options->cache_max_bytes) return KJIT_OK;
  return read_bytes(builder, options, "KJIT_CACHE_MAX_BYTES", &builder->user.max_bytes, error);
}

/* The bound on sources' texts. "off" is a word, because a bound of 0 means the default everywhere else. */
static kjit_status choose_texts(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  static const char name[] = "KJIT_CACHE_SOURCES";
  uint64_t *bytes = &builder->user.max_text_bytes;
  const char *value = read_environment(builder, options, name);
  *bytes = options->source_max_bytes ? options->source_max_bytes : BUILDER_DEFAULT_TEXT_BYTES;
  if (*bytes == KJIT_KEEP_NO_SOURCES) *bytes = 0;
  if (options->source_max_bytes || !value) return KJIT_OK;
  if (strcmp(value, "off") != 0) return read_bytes(builder, options, name, bytes, error);
  *bytes = 0;
  return KJIT_OK;
}

struct word {
  const char *name;
  uint32_t value;
};

/* Choose a setting: the option if it is set, else the environment's word, else `usual`. */
static kjit_status choose_word(const struct builder *builder, const kjit_runtime_options *options, const char *variable,
                               const struct word *words, size_t count, uint32_t usual, uint32_t *out,
                               kjit_error *error) {
  const char *value = *out ? NULL : read_environment(builder, options, variable);
  if (!*out) *out = usual;
  if (!value) return KJIT_OK;
  for (size_t i = 0; i < count; i++)
    if (!strcmp(value, words[i].name)) {
      *out = words[i].value;
      return KJIT_OK;
    }
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s: \"%.40s\"; must be %s, %s%s%s", variable, value, words[0].name,
                   words[1].name, count > 2 ? " or " : "", count > 2 ? words[2].name : "");
}

/* Make the compile server if it is wanted. No process is started before the first compile. */
static kjit_status create_server(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  static const struct word switches[] = {{"on", KJIT_COMPILE_SERVER_ON}, {"off", KJIT_COMPILE_SERVER_OFF}};
  static const struct word modes[] = {{"auto", KJIT_PCH_AUTO}, {"always", KJIT_PCH_ALWAYS}, {"off", KJIT_PCH_OFF}};
  uint32_t server = options->compile_server, pch = options->pch;
  struct compile_server_settings settings = {.mem = builder->mem,
                                             .log = builder->log,
                                             .nvrtc = builder->nvrtc,
                                             .worker_path = options->worker_path,
                                             .memory_bytes = options->compile_memory_max_bytes,
                                             .use_environment = !(options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT)};
  if (server > KJIT_COMPILE_SERVER_ON) return error_invalid(error, "compile_server", "must be a kjit_compile_server");
  if (pch > KJIT_PCH_ALWAYS) return error_invalid(error, "pch", "must be a kjit_pch_mode");
  kjit_status status =
      choose_word(builder, options, "KJIT_COMPILE_SERVER", switches, 2, KJIT_COMPILE_SERVER_OFF, &server, error);
  if (status == KJIT_OK) status = choose_word(builder, options, "KJIT_PCH", modes, 3, KJIT_PCH_AUTO, &pch, error);
  if (status == KJIT_OK && !settings.memory_bytes)
    status = read_bytes(builder, options, "KJIT_COMPILE_MEMORY_MAX_BYTES", &settings.memory_bytes, error);
  if (status != KJIT_OK || server != KJIT_COMPILE_SERVER_ON) return status;
  settings.pch = (kjit_pch_mode)pch;
  return compile_server_create(&builder->server, &settings, error);
}

/* A switch is on by its flag, or by its variable with any word but "off". */
static bool is_switched_on(const struct builder *builder, const kjit_runtime_options *options, uint32_t flag,
                           const char *variable) {
  const char *const word = read_environment(builder, options, variable);
  return options->flags & flag || (word && strcmp(word, "off") != 0);
}

/* KJIT_DUMP, KJIT_TIME and KJIT_NVTX, or the options in their place. */
static kjit_status choose_inspection(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  const char *dump = options->dump_dir ? options->dump_dir : read_environment(builder, options, "KJIT_DUMP");
  const bool timed = is_switched_on(builder, options, KJIT_RUNTIME_TIME_PHASES, "KJIT_TIME");
  if (timed || dump) nvrtc_inspect(builder->nvrtc, NVRTC_INSPECT_TIME);
  if (is_switched_on(builder, options, KJIT_RUNTIME_NVTX, "KJIT_NVTX") && nvtx_open())
    nvrtc_inspect(builder->nvrtc, NVRTC_INSPECT_RANGES);
  if (!dump) return KJIT_OK;
  if (*dump != '/') return error_invalid(error, "KJIT_DUMP", "must be an absolute path of a folder");
  nvrtc_inspect(builder->nvrtc, NVRTC_INSPECT_PTX);
  builder->dump_dir = mem_strdup(builder->mem, dump);
  return builder->dump_dir ? KJIT_OK : error_no_memory(error);
}

/* What both tiers have before they have a folder. Not writable until open_user() says so, so that a tier whose folder
 * could not be opened writes nothing. A negative grain is a test's, which wants every use recorded. */
static void init_tier(struct disk_cache *cache, struct builder *builder, kjit_origin origin, int64_t use_grain_s) {
  cache->ops = builder->ops;
  cache->mem = builder->mem;
  cache->log = builder->log;
  cache->counters = &builder->counters;
  cache->dir.folder = -1;
  cache->origin = origin;
  cache->use_grain_s = use_grain_s > 0 ? use_grain_s : use_grain_s < 0 ? 0 : BUILDER_USE_GRAIN_S;
  atomic_init(&cache->writable, 0);
}

/* Open the user's folder. A failure is logged and counted; everything then works from memory. */
static void open_user(struct builder *builder, const kjit_runtime_options *options) {
  const bool environment = !(options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT);
  const bool writable = builder->mode == KJIT_CACHE_RW;
  struct cache_dir *dir = &builder->user.dir;
  const kjit_status status = cache_dir_open_user(dir, builder->ops, builder->mem, options->cache_dir, environment,
                                                 writable, &builder->cache_error);
  if (status == KJIT_OK) {
    atomic_store(&builder->user.writable, writable);
    return;
  }
  cache_dir_finish(dir, builder->ops, builder->mem);
  count_add(&builder->counters, COUNT_cache_errors, 1);
  log_write(builder->log, KJIT_LOG_WARNING, "%s; kernels are kept in memory only", builder->cache_error.message);
}

/* Open the folder of the whole machine. That there is none is the usual case and no failure. */
static void open_site(struct builder *builder, const kjit_runtime_options *options) {
  const bool environment = !(options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT);
  kjit_error error = {0};
  const kjit_status status =
      cache_dir_open_site(&builder->site.dir, builder->ops, builder->mem, options->site_dir, environment, &error);
  if (status == KJIT_OK) return;
  cache_dir_finish(&builder->site.dir, builder->ops, builder->mem);
  if (status == KJIT_ERR_NOT_FOUND) return;
  count_add(&builder->counters, COUNT_cache_errors, 1);
  log_write(builder->log, KJIT_LOG_WARNING, "%s", error.message);
}

/* Open the bundles, also with the cache switched off, because nothing is read that the caller did not name. */
static kjit_status open_bundles(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  builder->bundles.mem = builder->mem;
  builder->bundles.log = builder->log;
  builder->bundles.counters = &builder->counters;
  return bundle_set_open(&builder->bundles, options, read_environment(builder, options, "KJIT_BUNDLE"), error);
}

/* An option wins over the variable. Only an empty path and a lack of memory are failures here: a file that cannot be
 * written is found out with the first request, and costs the record alone. */
static kjit_status start_record(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  const char *const path =
      options->record_path ? options->record_path : read_environment(builder, options, "KJIT_RECORD");
  return path ? record_to(builder->record, path, error) : KJIT_OK;
}

/* Open the remote stores. Options win over the environment; a program that gives its own stores wants no others. */
static kjit_status open_remote(struct builder *builder, const kjit_runtime_options *options, kjit_error *error) {
  const struct remote_settings settings = {
      .mem = builder->mem,
      .log = builder->log,
      .ops = builder->ops,
      .counters = &builder->counters,
      .folder = &builder->user,
      .urls = options->cache_remote         ? options->cache_remote
              : options->remote_store_count ? NULL
                                            : read_environment(builder, options, "KJIT_CACHE_REMOTE"),
      .stores = options->remote_stores,
      .store_count = options->remote_store_count,
      .trusted_keys = options->trusted_keys,
      .trusted_key_count = options->trusted_key_count,
      .trusted_list = read_environment(builder, options, "KJIT_CACHE_TRUSTED_KEYS"),
      .signing_key_path = options->signing_key_path ? options->signing_key_path
                                                    : read_environment(builder, options, "KJIT_CACHE_SIGNING_KEY"),
      .end_ms = options->remote_end_ms,
      .read_only = builder->mode == KJIT_CACHE_RO};
  return remote_create(&builder->remote, &settings, error);
}

static struct resident *create_resident(const struct builder *builder, const kjit_runtime_options *options) {
  const struct resident_bounds bounds = {
      .max_bytes = options->memory_max_bytes ? options->memory_max_bytes : BUILDER_DEFAULT_MEMORY_MAX_BYTES,
      .max_entries = options->memory_max_entries ? options->memory_max_entries : BUILDER_DEFAULT_MEMORY_MAX_ENTRIES};
  return resident_create(builder->mem, &bounds);
}

/* Settings are read before anything is made, so that a wrong one costs nothing, and the folders are opened last,
 * because they alone may fail without an error. */
static kjit_status set_up(struct builder *builder, const kjit_runtime_options *options,
                          const struct builder_parts *parts, kjit_error *error) {
  init_tier(&builder->user, builder, KJIT_ORIGIN_USER, parts->use_grain_s);
  init_tier(&builder->site, builder, KJIT_ORIGIN_SITE, parts->use_grain_s);
  kjit_status status = choose_mode(builder, options, error);
  if (status == KJIT_OK) status = choose_bounds(builder, options, error);
  if (status == KJIT_OK) status = choose_texts(builder, options, error);
  if (status != KJIT_OK) return status;
  if (!builder->nvrtc)
    status = nvrtc_create(&builder->nvrtc, builder->mem, options->nvrtc_path,
                          !(options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT), error);
  if (status == KJIT_OK) status = create_server(builder, options, error);
  if (status != KJIT_OK) return status;
  status = choose_inspection(builder, options, error);
  if (status != KJIT_OK) return status;
  builder->resident = create_resident(builder, options);
  builder->record = record_create(builder->mem, builder->log, builder->ops, &builder->counters);
  builder->memo = source_memo_create(builder->mem, &builder->user);
  if (!builder->resident || !builder->record || !builder->memo || !builder_fork_init(builder))
    return error_no_memory(error);
  status = open_bundles(builder, options, error);
  if (status == KJIT_OK) status = start_record(builder, options, error);
  if (status != KJIT_OK) return status;
  /* With the cache switched off, only stores that the caller named himself are asked, as for bundles. */
  const bool named = options->cache_remote || options->remote_store_count;
  if (builder->mode == KJIT_CACHE_OFF) return named ? open_remote(builder, options, error) : KJIT_OK;
  open_user(builder, options);
  open_site(builder, options);
  builder->toolkit.cache_dir = builder->user.dir.path;
  builder->toolkit.writable = atomic_load(&builder->user.writable);
  return open_remote(builder, options, error);
}

/* What a test puts in place of the real thing comes in `parts`; zero and NULL mean the library's own. From the first
 * failure on builder_destroy() takes back whatever was made, since each of its steps accepts what is all zero. */
kjit_status builder_create_parts(struct builder **out, const kjit_runtime_options *options, const struct mem *mem,
                                 const struct log *log, const struct builder_parts *parts, kjit_error *error) {
  *out = NULL;
  struct builder *builder = mem_alloc(mem, sizeof *builder);
  if (!builder) {
    nvrtc_destroy(parts->nvrtc);
    return error_no_memory(error);
  }
  builder->mem = mem;
  builder->log = log;
  atomic_init(&builder->ending, 0);
  atomic_init(&builder->compiling, 0);
  background_init(builder);
  source_shelf_init(&builder->sources, mem);
  toolkit_init(&builder->toolkit, mem);
  builder->ops = parts->ops ? parts->ops : file_ops_system();
  builder->nvrtc = parts->nvrtc;
  builder->wait_bound_ns = parts->wait_bound_ns ? parts->wait_bound_ns : BUILDER_WAIT_BOUND_NS;
  const uint32_t background_ms = options->background_max_ms;
  builder->background_max_ns = (int64_t)(background_ms ? background_ms : BUILDER_DEFAULT_BACKGROUND_MAX_MS) * 1000000;
  builder->failure_s = parts->failure_s ? parts->failure_s : BUILDER_FAILURE_S;
  const kjit_status status = set_up(builder, options, parts, error);
  if (status != KJIT_OK)
    builder_destroy(builder);
  else
    *out = builder;
  return status;
}

kjit_status builder_create_with(struct builder **out, const kjit_runtime_options *options, const struct mem *mem,
                                const struct log *log, struct nvrtc *nvrtc, kjit_error *error) {
  const struct builder_parts parts = {.nvrtc = nvrtc};
  return builder_create_parts(out, options, mem, log, &parts, error);
}

void builder_cancel(struct builder *builder) {
  atomic_store(&builder->ending, 1);
}

/* It asks again and again, since a compile takes seconds and whoever waits is about to end. */
bool builder_wait_compiles(const struct builder *builder, uint32_t timeout_ms) {
  static const struct timespec millisecond = {0, 1000000};
  const int64_t end_ns = builder_now_ns(builder) + (int64_t)timeout_ms * 1000000;
  while (atomic_load(&builder->compiling) > 0) {
    if (builder_now_ns(builder) >= end_ns) return false;
    (void)nanosleep(&millisecond, NULL);
  }
  return true;
}

/* In the order of who uses whom; counters are written to the folder before it is closed. */
void builder_destroy(struct builder *builder) {
  if (!builder) return;
  background_finish(builder);      /* first, because its threads use everything else */
  remote_destroy(builder->remote); /* while the folder that it fills is open */
  builder_fork_finish(builder);
  compile_server_destroy(builder->server);
  resident_destroy(builder->resident);
  record_destroy(builder->record);
  source_memo_destroy(builder->memo);
  toolkit_finish(&builder->toolkit);
  bundle_set_close(&builder->bundles);
  cache_usage_flush(&builder->user);
  cache_dir_finish(&builder->user.dir, builder->ops, builder->mem);
  cache_dir_finish(&builder->site.dir, builder->ops, builder->mem);
  nvrtc_destroy(builder->nvrtc);
  mem_free(builder->mem, builder->dump_dir);
  source_shelf_finish(&builder->sources);
  mem_free(builder->mem, builder);
}
