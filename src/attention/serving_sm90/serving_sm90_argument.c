/* The argument of an attention_serving_sm90 launch: that of a serving call, and tensor maps of K and V. Encoded maps
 * are kept under a description of the tensors.
 *
 * Threads: any; a look-up takes no lock (base/threads/recent.h), and a miss encodes into the caller's own argument. */
#include "attention/serving_sm90/serving_sm90_serving.h"

#include <stddef.h>

#include "attention/serving/serving_box.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/tensor_box.h"
#include "attention_serving_sm90/one_part_params.h"
#include "base/error.h"
#include "base/threads/recent.h"
#include "runtime/runtime_internal.h"

_Static_assert(sizeof(struct serving_tensor_map) == RUNTIME_TENSOR_MAP_BYTES, "the kernel's map is the driver's");
_Static_assert(sizeof(struct attention_serving_sm90_params) <= SERVING_ARGUMENT_MAX, "an argument has its place");
_Static_assert(offsetof(struct attention_serving_sm90_params, serving) == 2 * RUNTIME_TENSOR_MAP_BYTES,
               "k, v, then the rest");
_Static_assert(sizeof(struct attention_serving_one_part_params) <= SERVING_ARGUMENT_MAX &&
                   offsetof(struct attention_serving_one_part_params, used_k) == 2 * RUNTIME_TENSOR_MAP_BYTES,
               "k, v, then the rest, in the same place");

/* Everything that the maps depend on. */
struct key {
  struct runtime_tensor tensors[2];
};

/* In which the kernel with `gathered` counts. */
#define UNIT_BYTES 16

/* Key heads whose keys of one position lie side by side, and which neighbouring blocks of threads read at the same
 * time. */
#define MOST_HEADS_ABREAST 8

/* How many calls are remembered, a power of two: more than a model has layers. */
#define PLACES 256

static void *create_maps(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), 2 * RUNTIME_TENSOR_MAP_BYTES);
}

static void destroy_maps(kjit_runtime *runtime, void *maps) {
  recent_destroy(runtime_mem(runtime), maps);
}

static const struct runtime_slot slot = {create_maps, destroy_maps};

/* The largest power of two that divides both. */
static int32_t common_power_of_two(int32_t a, int32_t b) {
  const int32_t either = a | b;
  return either & -either;
}

/* L2 fetches up to 128 bytes at a time, a row of a box: attention/decode/decode_call.c. With e4m3 and heads of 64
 * columns the half that is the next head's is worth fetching: 87 us against 101 on an H200. */
static struct runtime_tensor describe(const struct attention_serving_params *params, const void *data,
                                      const struct attention_serving_strides *strides,
                                      const struct serving_sm90_config *config, int32_t columns, int32_t rows) {
  const int32_t dtype = config->cache;
  const uint64_t bytes = SERVING_BOX_ELEMENT_BYTES;
  const kjit_map_promotion promotion =
      dtype == KJIT_FP8_E4M3 ? KJIT_MAP_PROMOTION_128B
                             : tensor_box_row_promotion((uint64_t)columns * bytes, (uint64_t)strides->seq * bytes,
                                                        (uint64_t)strides->head * bytes, KJIT_MAP_PROMOTION_128B);
  if (config->grouped) return serving_box_describe_bands(params, data, strides, dtype, columns, rows, promotion);
  struct runtime_tensor tensor = serving_box_describe(params, data, strides, dtype, columns, rows, promotion);
  tensor.box_bytes = (uint16_t)serving_sm90_row_bytes(config, columns);
  return tensor;
}

static int log2_of(int value) {
  int log2 = 0;
  while (value >> log2 > 1)
    log2++;
  return log2;
}

/* The distance of an axis in units of 16 bytes; what an axis of length 1 has is never used. */
static unsigned units(long long stride, int32_t length) {
  return length == 1 ? 0 : (unsigned)(stride * SERVING_BOX_ELEMENT_BYTES / UNIT_BYTES);
}

/* K or V for `gathered`: serving_params.c has seen to it that the distances are right. */
static struct serving_rows rows_of(const void *data, const struct attention_serving_strides *strides, int32_t pages,
                                   int32_t page_size, int32_t heads) {
  return (struct serving_rows){data, units(strides->batch, pages), units(strides->seq, page_size),
                               units(strides->head, heads)};
}

/* A power of two that divides the key heads and the blocks of threads. Where a head has several tiles, these share its
 * keys, and neighbouring blocks of threads have them. Few tiles have neighbouring blocks of threads each, whose parts
 * the kernel finds in another way. */
static int32_t heads_abreast(const struct attention_serving_params *params, int row_tiles, int runs_of_tile) {
  if (row_tiles > 1 || runs_of_tile >= SERVING_SM90_FEW_TILES) return 1;
  return common_power_of_two(common_power_of_two(params->heads_kv, params->runs), MOST_HEADS_ABREAST);
}

/* What the kernel with one_part reads of the argument, behind the maps, in place of `serving`. */
static void fill_one_part(const struct serving_sm90_config *config, const struct attention_serving_params *params,
                          int box_rows, struct attention_serving_one_part_params *to) {
  const int64_t slots = params->page_size ? (int64_t)params->max_pages * params->page_size : params->rows_k;
  to->used_k = params->used_k;
  to->page_table = params->page_table;
  to->page_table_stride = params->page_table_stride;
  to->max_pages = params->max_pages;
  to->batch = params->batch;
  to->row_tiles = (params->rows_q * params->group + config->rows - 1) / config->rows;
  to->tiles = params->heads_kv * to->row_tiles;
  to->runs_of_tile = params->runs / (params->batch * to->tiles);
  to->capacity = (int)slots; /* serving_params.c: fewer than 2^26 */
  to->rows_new = params->k_new ? params->rows_new : 0;
  to->appends = params->appends;
  to->rotates = params->cos != NULL;
  if (to->appends || to->rotates || serving_sm90_is_narrow(config)) to->all = *params;
  to->rows_q = params->rows_q;
  to->group = params->group;
  to->window_right = params->window_right;
  to->box_rows = box_rows;
  to->box_shift = config->gathered ? 0 : log2_of(config->keys / box_rows);
  to->page_shift = params->page_shift;
  to->cache_rows = params->cache_rows;
  to->scale_log2 = params->scale_log2;
  to->abreast_log2 = log2_of(heads_abreast(params, to->row_tiles, to->runs_of_tile));
  to->q = params->q;
  to->q_stride = params->q_stride;
  to->partials = params->partials;
  to->arrivals = params->arrivals;
  to->o = params->o;
  to->o_stride = params->o_stride;
  to->lse = params->lse;
  to->lse_batch_stride = params->lse_batch_stride;
  to->lse_head_stride = params->lse_head_stride;
  if (!config->gathered && !config->grouped) {
    to->k_rows = to->v_rows = (struct serving_rows){0}; /* so that the argument is the same each time */
    return;
  }
  const int32_t heads = params->heads_kv;
  to->k_rows = rows_of(params->k, &params->k_stride, params->cache_rows, params->page_size, heads);
  to->v_rows = rows_of(params->v, &params->v_stride, params->cache_rows, params->page_size, heads);
}

kjit_status serving_sm90_encode(kjit_runtime *runtime, const int32_t *values,
                                const struct attention_serving_params *params, void *argument, bool *is_again,
                                kjit_error *error) {
  const struct serving_sm90_config *config = serving_sm90_view(values);
  struct attention_serving_sm90_params *const to = argument;
  struct recent *const maps = runtime_slot_get(runtime, &slot);
  if (!maps) return error_no_memory(error);
  const int box_rows = params->page_size ? common_power_of_two(params->page_size, config->keys) : config->keys;
  if (config->one_part) {
    fill_one_part(config, params, box_rows, argument);
    if (config->gathered) return KJIT_OK;
  } else {
    to->serving = *params;
    to->box_rows = box_rows;
  }
  const struct key key = {{describe(params, params->k, &params->k_stride, config, config->head_dim, box_rows),
                           describe(params, params->v, &params->v_stride, config, config->head_dim_v, box_rows)}};
  const bool found = recent_get(maps, &key, to);
  if (is_again) *is_again = found;
  if (found) return KJIT_OK;
  kjit_status status = runtime_tensor_map_encode(runtime, &key.tensors[0], "k", &to->k, error);
  if (status == KJIT_OK) status = runtime_tensor_map_encode(runtime, &key.tensors[1], "v", &to->v, error);
  if (status == KJIT_OK) recent_put(maps, &key, to);
  return status;
}

kjit_status serving_sm90_argument(kjit_runtime *runtime, const int32_t *values,
                                  const struct attention_serving_params *params, void *argument, kjit_error *error) {
  return serving_sm90_encode(runtime, values, params, argument, NULL, error);
}
