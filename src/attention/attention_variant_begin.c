/* The launches in front of a variant's attention kernel: attention_variant_begin(), _abandon() and _end().
 *
 * 1. The blocks lie in memory that belongs to the stream or, where the caller gave some that is enough, in the
 *    caller's, in which case a key of all that they depend on is kept beside it.
 * 2. Where that key is the call's, the blocks are there, and nothing is launched. Else the map is made of the caller's
 *    lists, then the lists. Each may be a programmatic dependent of the one before, and so may the attention kernel.
 *
 * Threads: a launch is only read; memory of a stream is shared as stream_workspace.h says, and the caller's belongs to
 * one call at a time. */
#include <string.h>

#include "attention/attention_variant_launch.h"
#include "base/error.h"
#include "base/hash.h"
#include "runtime/runtime_internal.h"

static kjit_status run_map(const struct attention_variant_launch *launch, unsigned char *states, CUstream stream,
                           kjit_error *error) {
  struct attention_block_map_params params = launch->map;
  params.states = states;
  return runtime_kernel_enqueue(launch->map_kernel->kernel, launch->map_grid, launch->map_kernel->geometry.threads, 0,
                                &params, stream, error);
}

static kjit_status run_list(const struct attention_variant_launch *launch,
                            const struct attention_variant_blocks *blocks, CUstream stream, kjit_error *error) {
  struct attention_block_list_params params = launch->list;
  params.variant = launch->params;
  params.variant.lists = blocks->lists;
  params.variant.map.states = blocks->states;
  params.arrivals = blocks->space.arrivals;
  const kjit_geometry *geometry = &launch->list_kernel->geometry;
  const bool is_dependent = launch->is_mapped && launch->has_dependents;
  return runtime_kernel_enqueue_behind(launch->list_kernel->kernel, launch->list_grid, geometry->threads,
                                       geometry->shared_bytes, &params, is_dependent, stream, error);
}

/* ---- Where blocks lie ---- */

static size_t bytes_of(const struct attention_variant_launch *launch) {
  const size_t list_bytes =
      launch->count_bytes + launch->order_bytes + launch->ahead_bytes + launch->entry_bytes + launch->word_bytes;
  return launch->map_bytes + (launch->list_kernel ? list_bytes : 0);
}

/* Set the pointers into `memory`, which has bytes_of() bytes. Blocks that are kept have an order of their tiles; for
 * one call it takes longer than it saves where tiles are alike. */
static void point_into(const struct attention_variant_launch *launch, char *memory, bool is_kept,
                       struct attention_variant_blocks *out) {
  char *const counts = memory + launch->map_bytes, *const order = counts + launch->count_bytes,
              *const ahead = order + launch->order_bytes, *const entries = ahead + launch->ahead_bytes,
              *const words = entries + launch->entry_bytes;
  out->states = launch->is_mapped ? (const unsigned char *)memory : NULL;
  if (!launch->list_kernel) return;
  out->lists.counts = (int *)(void *)counts;
  out->lists.order = is_kept && launch->order_bytes > 0 ? (struct attention_listed_tile *)(void *)order : NULL;
  out->lists.ahead = is_kept && launch->ahead_bytes > 0 ? (int *)(void *)ahead : NULL;
  out->lists.entries = (int *)(void *)entries;
  out->lists.words = launch->word_bytes > 0 ? (unsigned *)(void *)words : NULL;
}

/* ---- Blocks that are kept ---- */

/* All that blocks depend on, but for what tensors and lists hold. None of these structs has padding. */
struct found_for {
  struct attention_variant_params params;
  struct attention_block_list_params list;
  struct attention_block_map_params map;
  struct digest digest;
  const void *memory;
};

static struct hash_128 key_of(const struct attention_variant_launch *launch) {
  struct found_for of;
  memset(&of, 0, sizeof of);
  of.params = launch->params;
  of.params.sinks = NULL; /* no block depends on them */
  of.list = launch->list;
  of.map = launch->map;
  of.digest = launch->extra.digest;
  of.memory = launch->kept->data;
  return hash_128(&of, sizeof of);
}

/* Is there memory of the caller's for the launch's blocks? Tells the caller how much it takes. */
static bool is_keeping(const struct attention_variant_launch *launch, CUstream stream) {
  kjit_kept_blocks *const kept = launch->kept;
  if (!kept) return false;
  if (!launch->is_listed) {
    kept->wanted = 0;
    return false;
  }
  if (runtime_stream_is_captured(launch->runtime, stream)) return false;
  kept->wanted = bytes_of(launch);
  return kept->wanted > 0 && kept->bytes >= kept->wanted;
}

/* ---- Launching ---- */

static kjit_status find_blocks(const struct attention_variant_launch *launch, char *memory, bool is_kept,
                               CUstream stream, struct attention_variant_blocks *out, kjit_error *error) {
  point_into(launch, memory, is_kept, out);
  kjit_status status = launch->is_mapped ? run_map(launch, (unsigned char *)memory, stream, error) : KJIT_OK;
  if (status != KJIT_OK || !launch->list_kernel) return status;
  out->may_depend = launch->has_dependents;
  out->lists.made = !is_kept && launch->made > 0 ? out->space.arrivals : NULL;
  return run_list(launch, out, stream, error);
}

/* Find the blocks in the caller's memory, unless they are there. */
static kjit_status begin_kept(const struct attention_variant_launch *launch, CUstream stream,
                              struct attention_variant_blocks *out, kjit_error *error) {
  kjit_kept_blocks *const kept = launch->kept;
  const struct hash_128 key = key_of(launch);
  if (kept->filled_for[0] == key.low && kept->filled_for[1] == key.high) {
    point_into(launch, kept->data, true, out);
    return KJIT_OK;
  }
  memset(kept->filled_for, 0, sizeof kept->filled_for);
  const size_t arrivals = 2 * (size_t)launch->list_grid[1] * launch->list_grid[2];
  if (launch->list_kernel && launch->order_bytes > 0 &&
      !stream_workspace_hold(launch->memory, 0, arrivals, false, stream, &out->space))
    return error_set(error, KJIT_ERR_NO_MEMORY, "no device memory for counters of lists");
  const kjit_status status = find_blocks(launch, kept->data, true, stream, out, error);
  if (status != KJIT_OK) return status;
  kept->filled_for[0] = key.low;
  kept->filled_for[1] = key.high;
  return KJIT_OK;
}

kjit_status attention_variant_begin(const struct attention_variant_launch *launch, CUstream stream,
                                    struct attention_variant_blocks *out, kjit_error *error) {
  kjit_status status;
  *out = (struct attention_variant_blocks){.lists = launch->params.lists};
  const bool is_kept = is_keeping(launch, stream);
  if (!launch->is_listed || bytes_of(launch) == 0) return KJIT_OK;
  if (is_kept) {
    status = begin_kept(launch, stream, out, error);
  } else if (stream_workspace_hold(launch->memory, bytes_of(launch), launch->made, false, stream, &out->space)) {
    status = find_blocks(launch, (char *)out->space.partials, false, stream, out, error);
  } else {
    if (!launch->is_mapped) return KJIT_OK; /* every block is judged */
    return error_set(error, KJIT_ERR_NO_MEMORY, "no device memory for %zu bytes of block states", launch->map_bytes);
  }
  if (status != KJIT_OK) attention_variant_end(launch, stream, out);
  return status;
}

void attention_variant_abandon(const struct attention_variant_launch *launch, CUstream stream,
                               const struct attention_variant_blocks *blocks) {
  if (blocks->lists.made)
    (void)runtime_memory_clear(launch->runtime, (uintptr_t)blocks->lists.made, launch->made * sizeof(int), stream);
}

void attention_variant_end(const struct attention_variant_launch *launch, CUstream stream,
                           const struct attention_variant_blocks *blocks) {
  stream_workspace_put(launch->memory, &blocks->space, stream);
}
