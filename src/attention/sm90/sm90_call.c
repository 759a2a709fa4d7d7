#include "attention/sm90/sm90_call.h"

#include "attention/attention_table.h"
#include "attention/sm90/sm90_arguments.h"
#include "attention/sm90/sm90_maps.h"
#include "attention/sm90/sm90_request.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/sm90/sm90_tickets.h"
#include "attention/sm90/sm90_tiles.h"
#include "attention/sm90/sm90_workspace.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

/* What the family keeps in a runtime. */
struct state {
  struct attention_table *kernels; /* kjit_attention_sm90_config to struct sm90_kernel */
  struct recent *maps;             /* sm90_maps.h */
  struct sm90_tickets *tickets;
  struct sm90_workspace *workspace;
};

static void destroy_state(kjit_runtime *runtime, void *user) {
  struct state *state = user;
  const struct mem *mem = runtime_mem(runtime);
  sm90_workspace_destroy(state->workspace);
  sm90_tickets_destroy(state->tickets);
  recent_destroy(mem, state->maps);
  attention_table_destroy(state->kernels);
  mem_free(mem, state);
}

static void *create_state(kjit_runtime *runtime) {
  const struct mem *mem = runtime_mem(runtime);
  struct state *state = mem_alloc(mem, sizeof *state);
  if (!state) return NULL;
  state->kernels = attention_table_create(mem, sizeof(kjit_attention_sm90_config), sizeof(struct sm90_kernel));
  state->maps = sm90_maps_create(mem);
  state->tickets = sm90_tickets_create(runtime);
  state->workspace = sm90_workspace_create(runtime);
  if (state->kernels && state->maps && state->tickets && state->workspace) return state;
  destroy_state(runtime, state);
  return NULL;
}

/* The first call with a config on a device: the rules, then the compiler and the driver. */
static kjit_status load(kjit_runtime *runtime, const kjit_attention_sm90_config *config, const kjit_device_info *device,
                        struct sm90_kernel *kernel, kjit_error *error) {
  struct sm90_request request;
  kjit_status status = sm90_rules_check(config, error);
  if (status == KJIT_OK) status = sm90_rules_check_arch(device->arch_specific, error);
  if (status == KJIT_OK)
    status = sm90_request_init(&request, builder_sources(runtime_builder(runtime)), config, 0, error);
  if (status == KJIT_OK) status = runtime_kernel_get(runtime, &request.request, &kernel->kernel, error);
  if (status != KJIT_OK) return status;
  const kjit_attention_sm90_geometry geometry = kjit_attention_sm90_config_geometry(config);
  kernel->threads = geometry.threads;
  kernel->shared_bytes = geometry.shared_bytes;
  return runtime_kernel_prepare(kernel->kernel, device->ordinal, kernel->shared_bytes, error);
}

static kjit_status find_or_load(struct sm90_call *call, struct state *state, kjit_runtime *runtime,
                                const kjit_attention_sm90_config *config, const kjit_device_info *device,
                                kjit_error *error) {
  struct sm90_kernel kernel;
  call->kernel = attention_table_find(state->kernels, config, device->ordinal);
  if (call->kernel) return KJIT_OK;
  const kjit_status status = load(runtime, config, device, &kernel, error);
  if (status != KJIT_OK) return status;
  call->kernel = attention_table_add(state->kernels, config, device->ordinal, &kernel);
  return call->kernel ? KJIT_OK : error_no_memory(error);
}

uint32_t sm90_call_parts(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                         uint32_t multiprocessors) {
  if (!config->split) return 1;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  return (uint32_t)sm90_tiles_parts(&tiles, config, multiprocessors);
}

/* Tiles, and what they need where they are worked on in parts. */
static void cut(struct sm90_call *call, struct state *state, const struct sm90_tiles *tiles, uint32_t parts,
                const kjit_attention_sm90_config *config, const kjit_device_info *device) {
  call->multiprocessors = device->multiprocessors;
  call->tiles = (uint32_t)tiles->count;
  call->tickets = config->causal && call->tiles > device->multiprocessors ? state->tickets : NULL;
  call->workspace = NULL;
  if (parts == 1) return;
  call->tickets = NULL; /* parts are all alike, and are dealt out */
  call->workspace = state->workspace;
  call->parts = parts;
  call->partial_bytes = sm90_tiles_partial_bytes(tiles, config, parts);
  call->arrivals = sm90_tiles_arrivals(tiles, config, parts);
}

kjit_status sm90_call_prepare(struct sm90_call *call, kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                              uint32_t parts, const kjit_attention_args *args, const kjit_attention_problem *problem,
                              const kjit_device_info *device, kjit_error *error) {
  struct state *state = runtime_slot_get(runtime, RUNTIME_SLOT_ATTENTION_SM90, create_state, destroy_state);
  if (!state) return error_no_memory(error);
  kjit_status status = find_or_load(call, state, runtime, config, device, error);
  if (status == KJIT_OK) status = sm90_maps_get(state->maps, runtime, args, config, &call->params, error);
  if (status != KJIT_OK) return status;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  sm90_arguments_fill(args, problem, &tiles, device, &call->params);
  cut(call, state, &tiles, parts, config, device);
  return KJIT_OK;
}

static kjit_status enqueue(const struct sm90_call *call, const struct attention_sm90_params *params, CUstream stream,
                           kjit_error *error) {
  const struct sm90_kernel *kernel = call->kernel;
  const uint32_t pieces = call->tiles * (uint32_t)params->splits;
  const uint32_t blocks = pieces < call->multiprocessors ? pieces : call->multiprocessors;
  const uint32_t grid[3] = {blocks, 1, 1}, block[3] = {kernel->threads, 1, 1};
  return runtime_kernel_enqueue(kernel->kernel, grid, block, kernel->shared_bytes, params, stream, error);
}

static kjit_status enqueue_split(const struct sm90_call *call, CUstream stream, kjit_error *error) {
  struct sm90_space space;
  if (!sm90_workspace_get(call->workspace, call->partial_bytes, call->arrivals, stream, &space))
    return enqueue(call, &call->params, stream, error);
  struct attention_sm90_params params = call->params;
  params.splits = (int)call->parts;
  params.partials = space.partials;
  params.arrivals = space.arrivals;
  const kjit_status status = enqueue(call, &params, stream, error);
  sm90_workspace_put(call->workspace, &space, stream);
  return status;
}

kjit_status sm90_call_enqueue(const struct sm90_call *call, CUstream stream, kjit_error *error) {
  if (call->workspace) return enqueue_split(call, stream, error);
  if (!call->tickets) return enqueue(call, &call->params, stream, error);
  struct attention_sm90_params params = call->params;
  params.tickets = sm90_tickets_of(call->tickets, stream);
  return enqueue(call, &params, stream, error);
}
