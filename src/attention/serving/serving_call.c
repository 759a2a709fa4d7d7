/* The functions of include/kjit/attention_serving.h. A call is:
 *
 * 1. the arguments are checked, for the device that is current; they describe a problem;
 * 2. the problem and the card choose a config, which is a few comparisons; its kernel is looked up, and the first time
 *    compiled and loaded;
 * 3. with new keys the append pass is enqueued, unless the attend pass appends them;
 * 4. the attend pass is enqueued, with the caller's workspace or the stream's; where sequences with few rows on many
 *    keys may be among others, and the family does not divide their keys, in two launches, one for each kind.
 *
 * Threads: any number may call; the workspace is shared as attention/stream_workspace.h says. */
#include <assert.h>
#include <string.h>

#include "attention/serving/serving_arguments.h"
#include "attention/serving/serving_config.h"
#include "attention/stream_workspace.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/config_kernel.h"
#include "runtime/runtime_internal.h"

static void *create_workspace(kjit_runtime *runtime) {
  return stream_workspace_create(runtime);
}

static void destroy_workspace(kjit_runtime *runtime, void *state) {
  (void)runtime;
  stream_workspace_destroy(state);
}

static const struct runtime_slot slot = {create_workspace, destroy_workspace};

/* A launch of the attend pass, for the sequences that have from least_rows to most_rows rows (0: any number). */
struct part {
  struct serving_choice choice;
  uint32_t runs; /* its blocks of threads */
  int least_rows, most_rows;
};

enum { MOST_PARTS = 2 };

/* A call with everything decided but its kernels. */
struct call {
  kjit_runtime *runtime;
  const kjit_device_info *device;
  struct serving_problem problem;
  struct part parts[MOST_PARTS]; /* in the order in which they are launched */
  int part_count;
  size_t partial_bytes; /* most of a part */
  struct attention_serving_params params;
};

/* The part for which a schedule is made: that of the call's own problem. */
static const struct part *main_part(const struct call *call) {
  return &call->parts[call->part_count - 1];
}

/* Longest append pass: enough blocks of threads to fill any card, each of which takes row after row. */
#define APPEND_BLOCKS_PER_SM 8

/* Counters, zero before and after every launch, lie in front of the caller's workspace, as many as any kernel for the
 * device has: then they lie in one place for all calls that share the workspace, whatever else these write. */
static size_t counter_bytes(const struct call *call) {
  const int64_t of_runs = (int64_t)call->device->multiprocessors * SERVING_MOST_BLOCKS_PER_SM;
  return (size_t)integer_round_up((of_runs + SERVING_MORE_COUNTERS) * (int64_t)sizeof(int), SERVING_ARGUMENT_ALIGNMENT);
}

static size_t workspace_bytes(const struct call *call) {
  return counter_bytes(call) + call->partial_bytes;
}

static size_t schedule_bytes(const struct call *call) {
  return sizeof(struct attention_serving_plan_head) + main_part(call)->runs * sizeof(struct attention_serving_run);
}

static uint32_t mix(uint32_t digest, int64_t value) {
  const uint64_t product = (digest ^ (uint64_t)value) * 0x9E3779B97F4A7C15u;
  return (uint32_t)(product ^ product >> 32);
}

/* A digest of what the schedule depends on besides the lengths, never 0. */
static unsigned plan_tag(const struct call *call) {
  const struct attention_serving_params *params = &call->params;
  uint32_t tag = mix(1, params->batch);
  tag = mix(tag, (int64_t)params->heads_kv << 32 | (uint32_t)params->group);
  tag = mix(tag, (int64_t)params->window_left << 32 | (uint32_t)params->window_right);
  tag = mix(tag, (int64_t)params->most_splits << 32 | main_part(call)->runs);
  /* Where lengths are offsets, the totals that they end with are no part of them. */
  tag = mix(tag, params->cu_q ? -1 : params->rows_q);
  tag = mix(tag, params->cu_new ? -1 : params->rows_new);
  for (size_t i = 0; i < SERVING_FIELDS_MAX; i++)
    tag = mix(tag, main_part(call)->choice.values[i]);
  return tag | 1;
}

/* Can its kernel append new keys itself? */
static bool can_append(const struct part *part) {
  return part->choice.family->appends && part->choice.family->appends(part->choice.values);
}

/* Choose a part's kernel. */
static kjit_status decide_part(struct call *call, const struct serving_problem *problem, int32_t sm_margin,
                               struct part *part, kjit_error *error) {
  const uint32_t multiprocessors = call->device->multiprocessors, margin = (uint32_t)sm_margin;
  struct family_place place = family_place_of_device(call->device);
  place.sm_count = margin < multiprocessors ? multiprocessors - margin : 1;
  *part = (struct part){0};
  const kjit_status status = serving_choose(problem, KJIT_SERVING_ATTEND, &place, &part->choice, error);
  if (status != KJIT_OK) return status;
  const struct serving_family *family = part->choice.family;
  part->runs = family->runs(part->choice.values, place.sm_count);
  const size_t bytes = family->partial_bytes(part->choice.values, part->runs, problem);
  if (bytes > call->partial_bytes) call->partial_bytes = bytes;
  return KJIT_OK;
}

/* The call's launches. Sequences with few rows have one of their own, the first, where the family that takes the
 * problem does not divide their keys. */
static kjit_status decide_parts(struct call *call, int32_t sm_margin, kjit_error *error) {
  struct part all;
  call->partial_bytes = 0;
  call->part_count = 0;
  kjit_status status = decide_part(call, &call->problem, sm_margin, &all, error);
  if (status != KJIT_OK) return status;
  const struct serving_family *family = all.choice.family;
  const int few = family->undivided_rows ? (int)(family->undivided_rows(all.choice.values) / call->problem.group) : 0;
  if (call->problem.is_mixed && few > 0) {
    struct serving_problem problem = call->problem;
    problem.packed_rows = few * problem.group;
    problem.rows = integer_min(problem.rows, problem.batch * few);
    status = decide_part(call, &problem, sm_margin, &call->parts[call->part_count], error);
    call->parts[call->part_count++].most_rows = few;
    all.least_rows = few + 1;
  }
  call->parts[call->part_count++] = all;
  return status;
}

/* Steps 1 and 2, without the kernel. `is_empty`: there is nothing to do. */
static kjit_status decide(struct call *call, kjit_runtime *runtime, const kjit_attention_serving_args *args,
                          bool *is_empty, kjit_error *error) {
  int32_t ordinal;
  call->runtime = runtime;
  *is_empty = serving_arguments_are_empty(args);
  if (*is_empty) return KJIT_OK;
  kjit_status status = runtime_device_of_launch(runtime, &ordinal, error);
  if (status == KJIT_OK) status = serving_arguments_check(args, ordinal, error);
  if (status != KJIT_OK) return status;
  call->device = runtime_known_device(runtime, ordinal);
  if (!call->device) call->device = runtime_device(runtime, ordinal, error);
  if (!call->device) {
    assert(error->status != KJIT_OK);
    return (kjit_status)error->status;
  }
  call->problem = serving_arguments_problem(args);
  status = decide_parts(call, args->sm_margin, error);
  if (status != KJIT_OK) return status;
  serving_arguments_fill(args, &call->params);
  call->params.runs = (int)main_part(call)->runs;
  call->params.plan_tag = plan_tag(call);
  call->params.appends = call->problem.meets_new_keys && call->part_count == 1 && can_append(main_part(call));
  if (args->schedule && args->schedule_bytes >= schedule_bytes(call))
    call->params.plan = (struct attention_serving_plan_head *)(uintptr_t)args->schedule;
  return KJIT_OK;
}

/* `is_dependent`: it begins before the append pass in front of it has ended. */
static kjit_status enqueue(const struct call *call, const struct serving_choice *choice, uint32_t blocks,
                           const void *params, bool is_dependent, CUstream stream, kjit_error *error) {
  const struct config_kernel *kernel;
  const uint32_t grid[3] = {blocks, 1, 1};
  const kjit_status status =
      config_kernel_get(call->runtime, choice->family->family, choice->values, call->device, NULL, 0, &kernel, error);
  if (status != KJIT_OK) return status;
  return runtime_kernel_enqueue_behind(kernel->kernel, grid, kernel->geometry.threads, kernel->geometry.shared_bytes,
                                       params, is_dependent, stream, error);
}

/* Choose and enqueue one of the small passes. */
static kjit_status enqueue_pass(const struct call *call, kjit_serving_pass pass, uint32_t blocks, CUstream stream,
                                kjit_error *error) {
  struct serving_choice choice;
  const struct family_place place = family_place_of_device(call->device);
  const kjit_status status = serving_choose(&call->problem, pass, &place, &choice, error);
  return status == KJIT_OK ? enqueue(call, &choice, blocks, &call->params, false, stream, error) : status;
}

static kjit_status enqueue_append(const struct call *call, CUstream stream, kjit_error *error) {
  const struct attention_serving_params *params = &call->params;
  const int64_t rows = (params->cu_new ? 1 : (int64_t)params->batch) * params->rows_new * params->heads_kv;
  const int64_t most = (int64_t)call->device->multiprocessors * APPEND_BLOCKS_PER_SM, wanted = (rows + 3) / 4;
  return enqueue_pass(call, KJIT_SERVING_APPEND, (uint32_t)(wanted < most ? wanted : most), stream, error);
}

/* Is the append pass needed? */
static bool needs_append(const struct call *call) {
  return call->params.k_new && !call->params.appends;
}

/* Enqueue a part of the attend pass. */
static kjit_status enqueue_part(struct call *call, const struct part *part, bool is_dependent, CUstream stream,
                                kjit_error *error) {
  _Alignas(SERVING_ARGUMENT_ALIGNMENT) char argument[SERVING_ARGUMENT_MAX];
  const struct serving_family *family = part->choice.family;
  struct attention_serving_params *params = &call->params;
  params->least_rows = part->least_rows;
  params->most_rows = part->most_rows;
  params->runs = (int)part->runs;
  if (call->part_count > 1) params->plan = NULL; /* a schedule is of all sequences */
  if (!family->argument) return enqueue(call, &part->choice, part->runs, params, is_dependent, stream, error);
  const kjit_status status = family->argument(call->runtime, part->choice.values, params, argument, error);
  return status == KJIT_OK ? enqueue(call, &part->choice, part->runs, argument, is_dependent, stream, error) : status;
}

/* Enqueue the attend pass with its workspace. The first part follows the append pass, if there is one. */
static kjit_status enqueue_with(struct call *call, const struct stream_space *space, CUstream stream,
                                kjit_error *error) {
  kjit_status status = KJIT_OK;
  call->params.partials = space->partials;
  call->params.arrivals = space->arrivals;
  for (int i = 0; i < call->part_count && status == KJIT_OK; i++) {
    const struct part *part = &call->parts[i];
    const bool appended = i == 0 && needs_append(call) && part->choice.family->waits;
    status = enqueue_part(call, part, appended && runtime_has_dependents(call->device), stream, error);
  }
  return status;
}

/* Step 4 with the caller's workspace, or with the stream's own. */
static kjit_status enqueue_attend(struct call *call, const kjit_attention_serving_args *args, CUstream stream,
                                  kjit_error *error) {
  struct stream_space space = {0};
  if (args->workspace) {
    if (args->workspace_bytes < workspace_bytes(call)) {
      return error_set(error, KJIT_ERR_INVALID_ARG, "workspace_bytes is %zu: must be at least %zu",
                       args->workspace_bytes, workspace_bytes(call));
    }
    space.arrivals = args->workspace;
    space.partials = (float *)(void *)((char *)args->workspace + counter_bytes(call));
    return enqueue_with(call, &space, stream, error);
  }
  struct stream_workspace *workspace = runtime_slot_get(call->runtime, &slot);
  if (!workspace) return error_no_memory(error);
  if (!stream_workspace_get(workspace, call->partial_bytes, counter_bytes(call) / sizeof(int), stream, &space))
    return error_set(error, KJIT_ERR_DRIVER, "no device memory for a workspace of %zu bytes", workspace_bytes(call));
  const kjit_status status = enqueue_with(call, &space, stream, error);
  stream_workspace_put(workspace, &space, stream);
  return status;
}

/* Take the caller's struct, of this or an older version of the library. */
static kjit_status take(kjit_attention_serving_args *known, kjit_runtime *runtime,
                        const kjit_attention_serving_args *args, kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  return struct_intake(known, sizeof *known, args, sizeof *known, "args", error);
}

kjit_status kjit_attention_serving(kjit_runtime *runtime, const kjit_attention_serving_args *args, CUstream stream,
                                   kjit_error *error) {
  kjit_attention_serving_args known = {0};
  struct call call;
  kjit_error unread;
  bool is_empty;
  if (!error) error = &unread;
  error_clear(error);
  kjit_status status = take(&known, runtime, args, error);
  if (status == KJIT_OK) status = decide(&call, runtime, &known, &is_empty, error);
  if (status != KJIT_OK || is_empty) return status;
  if (needs_append(&call)) status = enqueue_append(&call, stream, error);
  if (status == KJIT_OK) status = enqueue_attend(&call, &known, stream, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  return status;
}

kjit_status kjit_attention_schedule(kjit_runtime *runtime, const kjit_attention_serving_args *args, CUstream stream,
                                    kjit_error *error) {
  kjit_attention_serving_args known = {0};
  struct call call;
  kjit_error unread;
  bool is_empty;
  if (!error) error = &unread;
  error_clear(error);
  kjit_status status = take(&known, runtime, args, error);
  if (status == KJIT_OK) status = decide(&call, runtime, &known, &is_empty, error);
  if (status != KJIT_OK || is_empty) return status;
  if (!known.schedule) return error_invalid(error, "schedule", "must not be NULL");
  if (!call.params.plan) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "schedule_bytes is %zu: must be at least %zu", known.schedule_bytes,
                     schedule_bytes(&call));
  }
  call.params.tile_shift = serving_tile_shift(&main_part(&call)->choice);
  return enqueue_pass(&call, KJIT_SERVING_PLAN, 1, stream, error);
}

kjit_status kjit_attention_serving_get_sizes(kjit_runtime *runtime, const kjit_attention_serving_args *args,
                                             kjit_attention_serving_sizes *sizes, kjit_error *error) {
  kjit_attention_serving_args known = {0};
  struct call call;
  kjit_error unread;
  bool is_empty;
  if (!error) error = &unread;
  error_clear(error);
  if (!sizes) return error_invalid(error, "sizes", "must not be NULL");
  *sizes = (kjit_attention_serving_sizes){.struct_size = sizeof *sizes};
  kjit_status status = take(&known, runtime, args, error);
  if (status == KJIT_OK) status = decide(&call, runtime, &known, &is_empty, error);
  if (status != KJIT_OK || is_empty) return status;
  sizes->schedule_bytes = schedule_bytes(&call);
  sizes->workspace_bytes = workspace_bytes(&call);
  return KJIT_OK;
}
