/* Launches of attention_backward_sm90: tensor maps, encoded once for the same tensors, the kernel's argument struct and
 * the grid.
 *
 * Threads: what a launch is prepared into is its caller's own. Maps are shared by all threads; a look-up takes no lock
 * (base/recent.h), and a miss encodes into the caller's own parameters. */
#include <stddef.h>

#include "attention/backward/backward_call.h"
#include "attention/backward/sm90_backward.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"
#include "attention_backward_sm90/layout.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/recent.h"
#include "runtime/runtime_internal.h"

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };

/* The maps of a launch, in the order of the argument struct, and everything that they depend on. */
#define MAPS 6
struct key {
  struct runtime_tensor tensors[MAPS];
};
#define MAPS_BYTES (MAPS * RUNTIME_TENSOR_MAP_BYTES)

_Static_assert(sizeof(struct attention_backward_map) == RUNTIME_TENSOR_MAP_BYTES, "the kernel's map is the driver's");
_Static_assert(offsetof(struct attention_backward_sm90_params, own) == 0, "the maps are first");
_Static_assert(offsetof(struct attention_backward_sm90_params, rest) == MAPS_BYTES, "six maps, then the rest");

/* How many launches are remembered, a power of two: two or three for each layer of a model. */
#define PLACES 256

static void *create_maps(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), MAPS_BYTES);
}

static void destroy_maps(kjit_runtime *runtime, void *maps) {
  recent_destroy(runtime_mem(runtime), maps);
}

static const struct runtime_slot slot = {create_maps, destroy_maps};

static struct runtime_tensor describe(const kjit_tensor *tensor, int32_t rows) {
  return tensor_box_describe(tensor, rows, KJIT_MAP_PROMOTION_256B);
}

/* The tensors of a launch in the order of the maps; NULL where the kernel uses none. */
struct launch_tensors {
  const char *name[MAPS];
  const kjit_tensor *tensor[MAPS];
};

/* The first two tensors are a block's own, the next two are walked over, and the last two are written. */
static struct launch_tensors list_tensors(const kjit_attention_backward_args *args, int32_t pass) {
  if (pass & FLASH_BACKWARD_DQ)
    return (struct launch_tensors){{"q", "dout", "k", "v", "dq", NULL},
                                   {&args->q, &args->dout, &args->k, &args->v, &args->dq, NULL}};
  return (struct launch_tensors){{"k", "v", "q", "dout", "dk", "dv"},
                                 {&args->k, &args->v, &args->q, &args->dout,
                                  pass & FLASH_BACKWARD_DK ? &args->dk : NULL,
                                  pass & FLASH_BACKWARD_DV ? &args->dv : NULL}};
}

static kjit_status check_strides(const char *name, const kjit_tensor *tensor, kjit_error *error) {
  for (enum axis axis = BATCH; axis < HEAD_DIM; axis++) {
    if (tensor->shape[axis] == 1 || tensor->stride[axis] < TENSOR_BOX_STRIDE_LIMIT) continue;
    return error_set(error, KJIT_ERR_UNSUPPORTED, "%s.stride[%d] is %lld: must be below 2^39 elements for TMA", name,
                     (int)axis, (long long)tensor->stride[axis]);
  }
  return KJIT_OK;
}

static kjit_status encode(kjit_runtime *runtime, const struct launch_tensors *tensors, const struct key *key,
                          struct attention_backward_map *maps, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < MAPS && status == KJIT_OK; i++) {
    if (!tensors->tensor[i]) continue;
    status = check_strides(tensors->name[i], tensors->tensor[i], error);
    if (status == KJIT_OK)
      status = runtime_tensor_map_encode(runtime, &key->tensors[i], tensors->name[i], &maps[i], error);
  }
  return status;
}

/* The maps that are remembered for these tensors, or new ones, as the first members of `params`. Maps 2 and 3 are those
 * of the tensors that a block walks over, whose boxes have the rows of one step; the others are loaded and stored by a
 * warpgroup's rows. */
static kjit_status get_maps(kjit_runtime *runtime, const kjit_attention_backward_args *args,
                            const kjit_attention_backward_sm90_config *config,
                            struct attention_backward_sm90_params *params, kjit_error *error) {
  const struct launch_tensors tensors = list_tensors(args, config->pass);
  struct recent *kept = runtime_slot_get(runtime, &slot);
  struct key key = {0};
  if (!kept) return error_no_memory(error);
  for (size_t i = 0; i < MAPS; i++) {
    const bool is_step = i == 2 || i == 3;
    if (tensors.tensor[i])
      key.tensors[i] = describe(tensors.tensor[i], is_step ? config->tile : BACKWARD_SM90_GROUP_ROWS);
  }
  if (recent_get(kept, &key, params)) return KJIT_OK;
  const kjit_status status = encode(runtime, &tensors, &key, &params->own, error);
  if (status == KJIT_OK) recent_put(kept, &key, params);
  return status;
}

static kjit_status prepare(struct backward_launch *launch, kjit_runtime *runtime, const int32_t *values,
                           const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  const bool keys = sm90_backward_owns_keys(config);
  (void)device;
  launch->params.sm90 = (struct attention_backward_sm90_params){0};
  launch->grid[0] = (uint32_t)integer_divide_up(keys ? problem->seq_kv : problem->seq_q,
                                                BACKWARD_SM90_GROUP_ROWS * (int64_t)config->consumers);
  launch->grid[1] = (uint32_t)(keys ? problem->heads_kv : problem->heads_q);
  launch->grid[2] = (uint32_t)problem->batch;
  backward_fill(args, problem, &launch->params.sm90.rest);
  return get_maps(runtime, args, config, &launch->params.sm90, error);
}

static uint32_t computes(const int32_t *values) {
  return (uint32_t)sm90_backward_view(values)->pass;
}

static kjit_status fit(const kjit_attention_problem *problem, const int32_t *values, kjit_error *error) {
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  const struct backward_traits traits = {config->dtype, config->head_dim, config->head_dim_v, config->causal};
  return backward_match(problem, &traits, error);
}

const struct backward_family sm90_backward = {.family = &sm90_backward_family,
                                              .arch = SM90_BACKWARD_ARCH,
                                              .choose = sm90_backward_choose,
                                              .computes = computes,
                                              .fit = fit,
                                              .prepare = prepare};
