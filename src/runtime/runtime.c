/* The runtime object: made from options and environment, counted, destroyed.
 *
 * Making one opens nothing but the cache folder and the bundles: libcuda and NVRTC are opened by the first call that
 * needs them. Its parts are the builder (src/jit: everything up to a cubin), the connection to the GPUs (gpu.c), the
 * table of loaded kernels (kernel_table.c), and slots in which kernel families keep their state.
 *
 * Destroying goes the other way round: families, kernels, builder, GPUs, memory. All functions but
 * kjit_runtime_destroy() may be called by any thread. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/toolkit/nvrtc.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* The smallest kjit_runtime_options that is accepted ends with `reserved`. A caller who leaves the later members out,
 * by a smaller struct_size, gets their defaults. */
#define OPTIONS_OLDEST_BYTES (offsetof(kjit_runtime_options, reserved) + sizeof(uint32_t))

/* Above what programs use at a time, below what a driver holds with ease. */
#define DEFAULT_MODULES_MAX_IDLE 1024

/* The path of libcuda: the option, else KJIT_LIBCUDA if it is not empty. secure_getenv() returns NULL in a set-user-id
 * process, so that its caller cannot choose the library. */
static const char *choose_libcuda(const kjit_runtime_options *options) {
  if (options->libcuda_path) return options->libcuda_path;
  if (options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT) return NULL;
  const char *const path = secure_getenv("KJIT_LIBCUDA");
  return path && *path ? path : NULL;
}

/* KJIT_TUNED=off means the same as KJIT_RUNTIME_IGNORE_TUNED. */
static kjit_status choose_tuned(kjit_runtime_options *options, kjit_error *error) {
  const char *const value = options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT ? NULL : secure_getenv("KJIT_TUNED");
  if (!value || !*value || !strcmp(value, "on")) return KJIT_OK;
  if (strcmp(value, "off") != 0) return error_invalid(error, "KJIT_TUNED", "must be on or off");
  options->flags |= KJIT_RUNTIME_IGNORE_TUNED;
  return KJIT_OK;
}

/* KJIT_TIERED=off, on, or a number of calls, where the options say nothing. */
static kjit_status choose_tiered(kjit_runtime_options *options, kjit_error *error) {
  if (options->tiered > KJIT_TIERED_ON)
    return error_set(error, KJIT_ERR_INVALID_ARG, "options.tiered: %u; must be a kjit_tiered, 0 to %d", options->tiered,
                     KJIT_TIERED_ON);
  const char *const value = options->flags & KJIT_RUNTIME_IGNORE_ENVIRONMENT ? NULL : secure_getenv("KJIT_TIERED");
  if (options->tiered != KJIT_TIERED_DEFAULT || !value || !*value || !strcmp(value, "off")) return KJIT_OK;
  options->tiered = KJIT_TIERED_ON;
  if (!strcmp(value, "on")) return KJIT_OK;
  char *end;
  const long calls = strtol(value, &end, 10);
  if (*end || calls < 1 || calls > INT32_MAX)
    return error_set(error, KJIT_ERR_INVALID_ARG, "KJIT_TIERED: \"%.64s\"; must be on, off or a number from 1 on",
                     value);
  options->tier_calls = (uint32_t)calls;
  return KJIT_OK;
}

/* The environment decides what the options leave to it. */
static kjit_status choose_by_environment(kjit_runtime_options *options, kjit_error *error) {
  const kjit_status status = choose_tuned(options, error);
  return status == KJIT_OK ? choose_tiered(options, error) : status;
}

#define KNOWN_FLAGS                                                                                                    \
  (KJIT_RUNTIME_IGNORE_ENVIRONMENT | KJIT_RUNTIME_IGNORE_TUNED | KJIT_RUNTIME_TIME_PHASES | KJIT_RUNTIME_NVTX)

/* Copy and check the caller's options; unknown flags are refused, because a newer header may give them a meaning. */
static kjit_status take_options(kjit_runtime_options *out, const kjit_runtime_options *given, kjit_error *error) {
  *out = kjit_runtime_options_default();
  if (!given) return choose_by_environment(out, error);
  const kjit_status status = struct_intake(out, sizeof *out, given, OPTIONS_OLDEST_BYTES, "options", error);
  if (status != KJIT_OK) return status;
  if (out->cache_mode > KJIT_CACHE_OFF) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "options.cache_mode: %u; must be a kjit_cache_mode, 0 to %d",
                     out->cache_mode, KJIT_CACHE_OFF);
  }
  if (out->flags & ~KNOWN_FLAGS) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "options.flags: 0x%x; only KJIT_RUNTIME_* may be set", out->flags);
  }
  if (out->reserved) return error_invalid(error, "options.reserved", "must be zero");
  return choose_by_environment(out, error);
}

/* End what the families keep, before the kernels and the builder that they use. */
static void finish_slots(kjit_runtime *runtime) {
  struct push_node *at = push_list_newest(&runtime->slots);
  while (at) {
    struct push_node *const next = at->next;
    struct runtime_slot_state *const used = (struct runtime_slot_state *)(void *)at;
    used->slot->destroy(runtime, used->state);
    mem_free(&runtime->mem, used);
    at = next;
  }
}

void kjit_runtime_destroy(kjit_runtime *runtime) {
  if (!runtime) return;
  finish_slots(runtime);
  const uint64_t borrowed = module_table_finish(&runtime->modules);
  if (borrowed) {
    log_write(&runtime->log, KJIT_LOG_WARNING, "the runtime ended while %llu references to kernels were still held",
              (unsigned long long)borrowed);
  }
  builder_destroy(runtime->builder);
  gpu_finish(&runtime->gpu);
  gate_keeper_finish(&runtime->keeper);
  const struct mem mem = runtime->mem;
  mem_free(&mem, runtime);
}

/* Returns false when the system is out of resources; nothing has to be undone then. */
static bool init_parts(kjit_runtime *runtime, uint64_t idle_max) {
  if (!gate_keeper_init(&runtime->keeper)) return false;
  if (module_table_init(&runtime->modules, &runtime->mem, runtime, &runtime->gpu, idle_max)) return true;
  gate_keeper_finish(&runtime->keeper);
  return false;
}

static kjit_runtime *make(const kjit_runtime_options *options, const struct mem *mem, kjit_error *error) {
  kjit_runtime *const runtime = mem_alloc(mem, sizeof *runtime);
  if (!runtime) {
    error_no_memory(error);
    return NULL;
  }
  runtime->mem = *mem;
  runtime->log = (struct log){options->log, options->log_user, KJIT_LOG_DEBUG};
  runtime->is_tiered = options->tiered == KJIT_TIERED_ON;
  runtime->tier_calls = options->tier_calls;
  runtime->uses_tuned = !(options->flags & KJIT_RUNTIME_IGNORE_TUNED);
  if (init_parts(runtime, options->modules_max_idle ? options->modules_max_idle : DEFAULT_MODULES_MAX_IDLE))
    return runtime;
  mem_free(mem, runtime);
  error_no_memory(error);
  return NULL;
}

/* Make the parts in the order in which they depend on each other. On failure kjit_runtime_destroy() ends those that
 * exist. */
kjit_status runtime_create_with(kjit_runtime **out, const kjit_runtime_options *options,
                                const struct runtime_fakes *fakes, kjit_error *error) {
  static const struct runtime_fakes none;
  if (!fakes) fakes = &none;
  *out = NULL;
  kjit_runtime_options known;
  struct mem mem;
  kjit_runtime *runtime = NULL;
  struct nvrtc *nvrtc = fakes->nvrtc;
  kjit_status status = take_options(&known, options, error);
  if (status == KJIT_OK && !mem_init(&mem, &known.allocator)) {
    status = error_invalid(error, "options.allocator", "set both functions or neither");
  }
  if (status != KJIT_OK) goto done;
  runtime = make(&known, &mem, error);
  if (!runtime) {
    status = KJIT_ERR_NO_MEMORY;
    goto done;
  }
  status = gpu_init(&runtime->gpu, &runtime->mem, &runtime->keeper, choose_libcuda(&known), fakes->driver, error);
  if (status != KJIT_OK) goto done;
  status = builder_create_with(&runtime->builder, &known, &runtime->mem, &runtime->log, nvrtc, error);
  nvrtc = NULL; /* the builder owns it now */
  if (status != KJIT_OK) goto done;
  *out = runtime;
  runtime = NULL;

done:
  nvrtc_destroy(nvrtc);
  kjit_runtime_destroy(runtime);
  return status;
}

kjit_status kjit_runtime_create(kjit_runtime **out, const kjit_runtime_options *options, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  return runtime_create_with(out, options, NULL, error);
}

void kjit_runtime_cancel(kjit_runtime *runtime) {
  if (runtime) builder_cancel(runtime->builder);
}

kjit_status kjit_runtime_wait_compiles(kjit_runtime *runtime, uint32_t timeout_ms, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (builder_wait_compiles(runtime->builder, timeout_ms)) return KJIT_OK;
  return error_set(error, KJIT_ERR_TIMEOUT, "a thread is still inside the compiler after %u ms", timeout_ms);
}

kjit_status kjit_runtime_get_stats(kjit_runtime *runtime, kjit_runtime_stats *stats, kjit_error *error) {
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_runtime_stats all = {.struct_size = sizeof all};
  builder_add_stats(runtime->builder, &all);
  all.kernels_loaded = atomic_load_explicit(&runtime->kernels_loaded, memory_order_relaxed);
  all.kernels_unloaded = atomic_load_explicit(&runtime->kernels_unloaded, memory_order_relaxed);
  all.first_tier_calls = atomic_load_explicit(&runtime->first_tier_calls, memory_order_relaxed);
  all.tier_swaps = atomic_load_explicit(&runtime->tier_swaps, memory_order_relaxed);
  all.launches = atomic_load_explicit(&runtime->launches, memory_order_relaxed);
  return struct_fill(stats, &all, sizeof all, "stats", error);
}

void kjit_text_free(kjit_runtime *runtime, char *text) {
  if (runtime) mem_free(&runtime->mem, text);
}
