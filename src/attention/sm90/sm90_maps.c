/* Tensor maps of calls: what the driver encodes is kept under a description of the tensors, because encoding four maps
 * takes a microsecond and finding them some tens of nanoseconds. Any thread; a look-up takes no lock
 * (base/threads/recent.h), and a miss encodes into the caller's own parameters. */
#include "attention/sm90/sm90_maps.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>

#include "attention/attention_variant_launch.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"
#include "attention_sm90/layout.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

_Static_assert(sizeof(struct attention_tensor_map) == RUNTIME_TENSOR_MAP_BYTES, "the kernel's map is the driver's");
_Static_assert(alignof(struct attention_tensor_map) == RUNTIME_TENSOR_MAP_ALIGNMENT, "the kernel's map is aligned");

/* The four maps are what the parameters begin with. */
_Static_assert(offsetof(struct attention_sm90_params, q) == 0, "q is first");
_Static_assert(offsetof(struct attention_sm90_params, lse) == 4 * RUNTIME_TENSOR_MAP_BYTES,
               "q, k, v, o, then the rest");

enum { VARIANT_AXES = 4 }; /* of a variant's tensor, and of its map */

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };

#define TENSORS SM90_MAPS

/* Everything that the maps depend on. */
struct key {
  struct runtime_tensor tensors[TENSORS];
};

#define MAPS_BYTES (TENSORS * RUNTIME_TENSOR_MAP_BYTES)

_Static_assert(sizeof(struct runtime_tensor) == 8 * (1 + 5 + 4 + 3), "a key has no padding");

/* How many calls are remembered, a power of two: more than a model has layers, so that a loop finds its calls of the
 * last round. 200 KiB. */
#define PLACES 256

struct recent *sm90_maps_create(const struct mem *mem) {
  return recent_create(mem, PLACES, sizeof(struct key), MAPS_BYTES);
}

static kjit_map_promotion promotion_of(const kjit_tensor *tensor, const struct sm90_boxes *boxes) {
  return boxes->shares_lines ? tensor_box_shared_promotion(tensor, boxes->promotion)
                             : tensor_box_promotion(tensor, boxes->promotion);
}

/* Describe rows of one head. */
static struct runtime_tensor describe_head(const kjit_tensor *tensor, int32_t rows, const struct sm90_boxes *boxes) {
  struct runtime_tensor box = tensor_box_describe(tensor, rows, boxes->promotion);
  box.promotion = promotion_of(tensor, boxes);
  return box;
}

/* Describe Q or O with its heads grouped by the key head that they share: (head_dim, heads of a group, seq, groups,
 * batch). A box that reaches past a group's last head reads zeros there. */
static struct runtime_tensor describe_packed(const kjit_tensor *tensor, int64_t groups,
                                             const struct sm90_boxes *boxes) {
  const int64_t group = tensor->shape[HEADS] / groups;
  const uint64_t head = tensor_box_stride_bytes(tensor, TENSOR_BOX_HEADS);
  return (struct runtime_tensor){
      .address = (uintptr_t)tensor->data,
      .size = {(uint64_t)tensor->shape[HEAD_DIM], (uint64_t)group, (uint64_t)tensor->shape[SEQ], (uint64_t)groups,
               (uint64_t)tensor->shape[BATCH]},
      .stride = {head, tensor_box_stride_bytes(tensor, TENSOR_BOX_SEQ), groups == 1 ? head : head * (uint64_t)group,
                 tensor_box_stride_bytes(tensor, TENSOR_BOX_BATCH)},
      .box = {(uint32_t)boxes->packed, (uint32_t)(SM90_GROUP_ROWS / boxes->packed)},
      .rank = 5,
      .dtype = tensor->dtype,
      .promotion = promotion_of(tensor, boxes)};
}

static struct runtime_tensor describe_rows(const kjit_tensor *tensor, const kjit_tensor *keys,
                                           const struct sm90_boxes *boxes) {
  if (boxes->packed == 1) return describe_head(tensor, SM90_GROUP_ROWS, boxes);
  return describe_packed(tensor, keys->shape[HEADS], boxes);
}

static const char *const names[TENSORS] = {"q", "k", "v", "o"};

/* Check the stride from one of every `heads` heads to the next, where the axis is that of heads. */
static kjit_status check_stride(const char *name, const kjit_tensor *tensor, enum axis axis, int64_t heads,
                                kjit_error *error) {
  const bool together = axis == HEADS && heads > 1;
  if (tensor_stride(tensor, axis) < TENSOR_BOX_STRIDE_LIMIT / (together ? heads : 1)) return KJIT_OK;
  return error_set(
      error, KJIT_ERR_UNSUPPORTED, "%s.stride[%d] is %lld: attention_sm90 needs strides below 2^39 elements%s", name,
      (int)axis, (long long)tensor->stride[axis], together ? ", that of heads times those that share a key head" : "");
}

static kjit_status encode(kjit_runtime *runtime, const kjit_attention_args *args, const struct key *key,
                          struct attention_tensor_map maps[TENSORS], kjit_error *error) {
  const kjit_tensor *const tensors[TENSORS] = {&args->q, &args->k, &args->v, &args->o};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < TENSORS && status == KJIT_OK; i++) {
    for (int axis = BATCH; axis <= HEADS && status == KJIT_OK; axis++)
      status = check_stride(names[i], tensors[i], (enum axis)axis,
                            key->tensors[i].rank == 5 ? (int64_t)key->tensors[i].size[1] : 1, error);
    if (status == KJIT_OK) status = runtime_tensor_map_encode(runtime, &key->tensors[i], names[i], &maps[i], error);
  }
  return status;
}

kjit_status sm90_maps_get(struct recent *known, kjit_runtime *runtime, const kjit_attention_args *args,
                          const struct sm90_boxes *boxes, struct attention_tensor_map maps[TENSORS], bool *is_again,
                          kjit_error *error) {
  const struct key key = {{describe_rows(&args->q, &args->k, boxes), describe_head(&args->k, boxes->key_rows, boxes),
                           describe_head(&args->v, boxes->key_rows, boxes), describe_rows(&args->o, &args->k, boxes)}};
  const bool found = recent_get(known, &key, maps);
  if (is_again) *is_again = found;
  if (found) return KJIT_OK;
  const kjit_status status = encode(runtime, args, &key, maps, error);
  if (status == KJIT_OK) recent_put(known, &key, maps);
  return status;
}

/* ---- Terms ---- */

/* Fewer than there are layers: most models have one bias for all of them. */
#define TERM_PLACES 64

struct recent *sm90_maps_create_terms(const struct mem *mem) {
  return recent_create(mem, TERM_PLACES, sizeof(struct runtime_tensor), RUNTIME_TENSOR_MAP_BYTES);
}

/* A map has four axes; those that the tensor does not have, and those whose elements are all one, have one element, and
 * the stride of the queries' axis, since it must have one. */
static struct runtime_tensor describe_terms(const struct attention_variant_launch *variant, int32_t dtype) {
  const struct attention_variant_source *source = &variant->source;
  const struct kjit_variant_tensor_argument *of = &variant->params.arguments.tensors[source->tile - 1];
  const int keys = source->tile_axes - 1, rows = source->tile_rows - 1;
  struct runtime_tensor tensor = {.address = (uintptr_t)of->data,
                                  .size = {(uint64_t)of->size[keys]},
                                  .rank = VARIANT_AXES,
                                  .dtype = dtype,
                                  .promotion = KJIT_MAP_PROMOTION_256B};
  for (int i = 1; i < VARIANT_AXES; i++) {
    const int axis = keys - i;
    const bool is_one = axis < 0 || of->size[axis] == 1 || of->stride[axis] == 0;
    tensor.size[i] = is_one ? 1 : (uint64_t)of->size[axis];
    tensor.stride[i - 1] = (uint64_t)of->stride[is_one ? rows : axis] * TENSOR_BOX_ELEMENT_BYTES;
    tensor.box[i - 1] = axis == rows ? SM90_GROUP_ROWS : 1;
  }
  return tensor;
}

kjit_status sm90_maps_get_terms(struct recent *known, kjit_runtime *runtime,
                                const struct attention_variant_launch *variant, int32_t dtype,
                                struct attention_tensor_map *map, kjit_error *error) {
  const struct runtime_tensor tensor = describe_terms(variant, dtype);
  if (recent_get(known, &tensor, map)) return KJIT_OK;
  const kjit_status status = runtime_tensor_map_encode(runtime, &tensor, "the score function's tensor", map, error);
  if (status == KJIT_OK) recent_put(known, &tensor, map);
  return status;
}
