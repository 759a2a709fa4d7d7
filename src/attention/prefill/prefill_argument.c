/* The argument of an attention_prefill_sm90 launch: that of a serving call, and tensor maps of Q, K and V. Encoded maps
 * are kept under a description of the tensors, as sm90_maps.c has it.
 *
 * Threads: any; a look-up takes no lock (base/threads/recent.h), and a miss encodes into the caller's own argument. */
#include "attention/prefill/prefill_serving.h"

#include <stddef.h>

#include "attention/prefill/prefill_config.h"
#include "attention/serving/serving_box.h"
#include "attention/sm90/sm90_config.h"
#include "attention_prefill_sm90/params.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/threads/recent.h"
#include "runtime/runtime_internal.h"

_Static_assert(sizeof(struct attention_prefill_params) <= SERVING_ARGUMENT_MAX, "an argument has its place");
_Static_assert(offsetof(struct attention_prefill_params, base) == 0, "the maps are what the argument begins with");
_Static_assert(offsetof(struct attention_sm90_params, o) == 3 * RUNTIME_TENSOR_MAP_BYTES, "q, k, v, then the rest");

enum { TENSORS = 3 };

/* Bytes of L2 that K and V of heads at work may take; the rest is for Q, O and other sequences. */
#define L2_FOR_KEYS ((int64_t)32 << 20)

#define LOG2_E 1.44269504088896340736f

/* Everything that the maps depend on. */
struct key {
  struct runtime_tensor tensors[TENSORS];
};

/* How many calls are remembered, a power of two: more than a model has layers. */
#define PLACES 256

static void *create_maps(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), TENSORS * RUNTIME_TENSOR_MAP_BYTES);
}

static void destroy_maps(kjit_runtime *runtime, void *maps) {
  recent_destroy(runtime_mem(runtime), maps);
}

static const struct runtime_slot slot = {create_maps, destroy_maps};

static struct runtime_tensor describe_keys(const struct attention_serving_params *params, const void *data,
                                           const struct attention_serving_strides *strides,
                                           const struct prefill_config *config, int32_t columns, int32_t rows) {
  if (prefill_gathers(config)) return (struct runtime_tensor){0}; /* no map: rank 0 */
  if (config->loads == PREFILL_LOADS_WIDENED)
    return serving_box_describe(params, data, strides, KJIT_FP8_E4M3, columns, rows, KJIT_MAP_PROMOTION_128B);
  if (config->loads == PREFILL_LOADS_BANDS)
    return serving_box_describe(params, data, strides, config->dtype, columns, rows, KJIT_MAP_PROMOTION_256B);
  return serving_box_describe_bands(params, data, strides, config->dtype, columns, rows, KJIT_MAP_PROMOTION_256B);
}

/* Q: (columns, rows, heads, sequences) or, with packed heads, (columns, heads of a group, rows, groups, sequences). */
static struct runtime_tensor describe_queries(const struct attention_serving_params *params,
                                              const struct prefill_config *config) {
  const struct attention_serving_strides *strides = &params->q_stride;
  const uint64_t wide = (uint64_t)config->head_dim, seq = (uint64_t)params->rows_q, group = (uint64_t)params->group;
  const uint64_t key_heads = (uint64_t)params->heads_kv, outer = params->cu_q ? 1 : (uint64_t)params->batch;
  const uint64_t row = serving_box_stride(strides->seq, seq, wide),
                 batch = serving_box_stride(strides->batch, outer, wide);
  const uint64_t head = serving_box_stride(strides->head, group * key_heads, wide);
  struct runtime_tensor tensor = {.address = (uintptr_t)params->q,
                                  .size = {wide, seq, group * key_heads, outer},
                                  .stride = {row, head, batch},
                                  .box = {SM90_GROUP_ROWS, 1},
                                  .rank = 4,
                                  .dtype = config->dtype,
                                  .promotion = KJIT_MAP_PROMOTION_256B};
  if (config->packed == 1) return tensor;
  const uint64_t size[5] = {wide, group, seq, key_heads, outer};
  const uint64_t stride[4] = {head, row, key_heads == 1 ? head : head * group, batch};
  for (int i = 0; i < 5; i++)
    tensor.size[i] = size[i];
  for (int i = 0; i < 4; i++)
    tensor.stride[i] = stride[i];
  tensor.box[0] = (uint32_t)config->packed;
  tensor.box[1] = (uint32_t)(SM90_GROUP_ROWS / config->packed);
  tensor.rank = 5;
  return tensor;
}

static kjit_status encode(kjit_runtime *runtime, const struct key *key, struct attention_sm90_params *base,
                          kjit_error *error) {
  static const char *const names[TENSORS] = {"q", "k", "v"};
  struct attention_tensor_map *const maps[TENSORS] = {&base->q, &base->k, &base->v};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < TENSORS && key->tensors[i].rank && status == KJIT_OK; i++)
    status = runtime_tensor_map_encode(runtime, &key->tensors[i], names[i], maps[i], error);
  return status;
}

static void fill_base(const struct attention_serving_params *params, const struct prefill_config *config,
                      struct attention_sm90_params *base) {
  base->batch = params->batch;
  base->heads = params->heads_kv * params->group / config->packed;
  base->heads_per_kv = params->group / config->packed;
  base->group = params->group;
  base->splits = 1;
  base->scale = config->softcap ? 1.0f : params->scale;
  base->scale_log2 = config->softcap ? LOG2_E : params->scale_log2;
}

kjit_status prefill_argument(kjit_runtime *runtime, const int32_t *values,
                             const struct attention_serving_params *params, void *argument, kjit_error *error) {
  const struct prefill_config *config = prefill_config_view(values);
  struct attention_prefill_params *const to = argument;
  const int64_t key_bytes = (int64_t)(config->head_dim + config->head_dim_v) * SERVING_BOX_ELEMENT_BYTES;
  const int32_t page = params->page_size;
  struct recent *const maps = runtime_slot_get(runtime, &slot);
  if (!maps) return error_no_memory(error);
  *to = (struct attention_prefill_params){.serving = *params, .order = (int *)params->partials};
  to->slots = (float *)(void *)((char *)to->order + prefill_order_bytes((uint32_t)params->runs, params->batch));
  to->box_rows = page && page < config->tile_n ? page : config->tile_n;
  to->key_bands = serving_box_bands_of_head(params, &params->k_stride);
  to->value_bands = serving_box_bands_of_head(params, &params->v_stride);
  to->l2_keys = (int)(L2_FOR_KEYS / key_bytes);
  fill_base(params, config, &to->base);
  const struct key key = {
      {describe_queries(params, config),
       describe_keys(params, params->k, &params->k_stride, config, config->head_dim, to->box_rows),
       describe_keys(params, params->v, &params->v_stride, config, config->head_dim_v, to->box_rows)}};
  if (recent_get(maps, &key, &to->base)) return KJIT_OK;
  const kjit_status status = encode(runtime, &key, &to->base, error);
  if (status == KJIT_OK) recent_put(maps, &key, &to->base);
  return status;
}
