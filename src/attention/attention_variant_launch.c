/* A call's variant: see attention_variant_launch.h.
 *
 * 1. attention_variant_take() checks sinks and block lists, and makes the request's extra: the header, the defines that
 *    say how blocks are found, and a digest of both.
 * 2. attention_variant_prepare() lays out the lists for a config's tiles and gets the kernels that fill them: none
 * where the mask is row intervals, which the attention kernel evaluates itself.
 * 3. attention_variant_begin() (attention_variant_begin.c) takes memory and enqueues those kernels.
 *
 * Threads: a launch belongs to its caller and is only read once it is prepared. */
#include "attention/attention_variant_launch.h"

#include <string.h>

#include "attention/attention_variant_kernels.h"
#include "attention/rule.h"
#include "attention/stream_workspace.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/integer.h"
#include "runtime/runtime_internal.h"

enum axis { BATCH, SEQ, HEADS };

#define VARIANT_HEADER "attention_variant.cuh"

#define LN_2 0.69314718055994530942

/* Most bytes of lists: beyond, every block is judged instead. */
#define LISTS_MAX ((size_t)512 << 20)

/* Most bytes of keep words: beyond, fewer blocks of a list have them, and the others are judged. */
#define WORDS_MAX ((int64_t)64 << 20)

/* Most bytes of a map of blocks, which is more than a device has: beyond, their number might overflow. */
#define MAP_MAX (INT64_C(1) << 40)

/* A tensor map's strides are below this, in elements of 16 bits. */
#define STRIDE_LIMIT (INT64_C(1) << 39)

enum {
  LANES = 32,       /* of a warp */
  WORDS_SHARED = 8, /* tiles that share a list from which on it has keep words: fewer judge their scores as soon */
  WRITER_BITS = 2   /* 2^2 blocks of threads at most for a list, where there would be multiprocessors without any */
};

static void *create_memory(kjit_runtime *runtime) {
  return stream_workspace_create(runtime);
}

static void destroy_memory(kjit_runtime *runtime, void *state) {
  (void)runtime;
  stream_workspace_destroy(state);
}

static const struct runtime_slot memory_slot = {create_memory, destroy_memory};

/* ---- Arguments ---- */

static const char *const sink_axes[] = {"heads"};
static const char *const count_axes[] = {"batch", "heads", "rows"};
static const char *const index_axes[] = {"batch", "heads", "rows", "columns"};
static const struct tensor_rule sinks_rule = {"sinks", sink_axes, 1, 4, 1, 4, 0, 0};
static const struct tensor_rule counts_rule = {"blocks.counts", count_axes, 3, 4, 1, 4, 0, 0};
static const struct tensor_rule indices_rule = {"blocks.indices", index_axes, 4, 4, 1, 4, 0, 0};
static const struct tensor_rule full_counts_rule = {"blocks.full_counts", count_axes, 3, 4, 1, 4, 0, 0};
static const struct tensor_rule full_indices_rule = {"blocks.full_indices", index_axes, 4, 4, 1, 4, 0, 0};

static kjit_status check_tensor(const struct tensor_rule *rule, const kjit_tensor *tensor, int32_t dtype,
                                int32_t device, kjit_error *error) {
  kjit_status status = tensor_check_place(rule, tensor, device, error);
  if (status == KJIT_OK && tensor->dtype != dtype) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.dtype is %d: must be %s (%d)", rule->name, (int)tensor->dtype,
                     dtype == KJIT_FP32 ? "FP32" : "INT32", (int)dtype);
  }
  if (status == KJIT_OK) status = tensor_check_shape(rule, tensor, error);
  return status == KJIT_OK ? tensor_check_layout(rule, tensor, error) : status;
}

/* Check that an axis of a block list is as long as the problem's, or 1. */
static kjit_status check_shared_axis(const struct tensor_rule *rule, const kjit_tensor *tensor, uint32_t axis,
                                     int64_t length, kjit_error *error) {
  if (tensor->shape[axis] == 1 || tensor->shape[axis] == length) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.shape[%u] (%s) is %lld: must be 1 or that of q, %lld", rule->name,
                   axis, rule->axes[axis], (long long)tensor->shape[axis], (long long)length);
}

static kjit_status check_list(const struct tensor_rule *count_rule, const kjit_tensor *counts,
                              const struct tensor_rule *index_rule, const kjit_tensor *indices,
                              const kjit_attention_args *args, kjit_error *error) {
  const int64_t *const q = args->q.shape;
  kjit_status status = check_tensor(count_rule, counts, KJIT_INT32, args->q.device, error);
  if (status == KJIT_OK) status = check_tensor(index_rule, indices, KJIT_INT32, args->q.device, error);
  if (status == KJIT_OK) status = check_shared_axis(count_rule, counts, 0, q[BATCH], error);
  if (status == KJIT_OK) status = check_shared_axis(count_rule, counts, 1, q[HEADS], error);
  for (uint32_t axis = 0; axis < 3 && status == KJIT_OK; axis++)
    status = tensor_check_length(index_rule, indices, axis, counts->shape[axis], count_rule->name, error);
  return status;
}

static kjit_status check_cover(const char *what, int64_t blocks, int32_t rows, int64_t length, kjit_error *error) {
  if (rows < 1)
    return error_set(error, KJIT_ERR_INVALID_ARG, "blocks.%s_rows is %d: must be at least 1", what, (int)rows);
  if (blocks >= integer_divide_up(length, rows)) return KJIT_OK;
  return error_set(
      error, KJIT_ERR_INVALID_ARG,
      "blocks.indices has %lld blocks along the %s axis: must be at least %lld, to cover %lld with %d each",
      (long long)blocks, what, (long long)integer_divide_up(length, rows), (long long)length, (int)rows);
}

/* The states of all blocks, a byte each. Axes of lists that are expanded take no memory, but states do. */
static kjit_status check_map(const int64_t shape[4], kjit_error *error) {
  const int64_t maps = integer_product(shape[0], shape[1]);
  const bool is_counted = shape[2] <= INT32_MAX && shape[3] <= INT32_MAX;
  if (is_counted && integer_product(maps, shape[2] * shape[3]) <= MAP_MAX) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "blocks.indices has %lld x %lld x %lld x %lld blocks: must be at most 2^31 - 1 along an axis and "
                   "2^40 together",
                   (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[3]);
}

static kjit_status check_blocks(const kjit_attention_args *args, kjit_error *error) {
  const kjit_block_lists *blocks = args->blocks;
  kjit_status status = check_list(&counts_rule, &blocks->counts, &indices_rule, &blocks->indices, args, error);
  if (status == KJIT_OK && blocks->full_counts.data) {
    status =
        check_list(&full_counts_rule, &blocks->full_counts, &full_indices_rule, &blocks->full_indices, args, error);
    for (uint32_t axis = 0; axis < 4 && status == KJIT_OK; axis++)
      status = tensor_check_length(&full_indices_rule, &blocks->full_indices, axis, blocks->indices.shape[axis],
                                   "blocks.indices", error);
  }
  if (status == KJIT_OK)
    status = check_cover("query", blocks->indices.shape[2], blocks->query_rows, args->q.shape[SEQ], error);
  if (status == KJIT_OK)
    status = check_cover("key", blocks->indices.shape[3], blocks->key_rows, args->k.shape[SEQ], error);
  return status == KJIT_OK ? check_map(blocks->indices.shape, error) : status;
}

static kjit_status check_sinks(const kjit_attention_args *args, kjit_error *error) {
  const kjit_status status = check_tensor(&sinks_rule, args->sinks, KJIT_FP32, args->q.device, error);
  return status == KJIT_OK ? tensor_check_length(&sinks_rule, args->sinks, 0, args->q.shape[HEADS], "q", error)
                           : status;
}

static kjit_status check_kept(const kjit_kept_blocks *kept, kjit_error *error) {
  if (kept->bytes > 0 && !kept->data)
    return error_invalid(error, "args.kept.data", "must not be NULL where bytes is not 0");
  if ((uintptr_t)kept->data % 16 == 0) return KJIT_OK;
  return error_invalid(error, "args.kept.data", "must be a multiple of 16");
}

/* The defines of each way to find blocks, by four bits: lists, a map, sinks, pairs. */
#define DEFINES(lists, map, sinks, pairs)                                                                              \
  "#define KJIT_variant 1\n#define KJIT_variant_lists " #lists "\n#define KJIT_variant_map " #map                      \
  "\n#define KJIT_variant_sinks " #sinks "\n#define KJIT_variant_pairs " #pairs "\n"
#define DEFINES_OF_BLOCKS(sinks, pairs)                                                                                \
  DEFINES(0, 0, sinks, pairs), DEFINES(1, 0, sinks, pairs), DEFINES(0, 1, sinks, pairs), DEFINES(1, 1, sinks, pairs)
static const char *const defines[] = {DEFINES_OF_BLOCKS(0, 0), DEFINES_OF_BLOCKS(1, 0), DEFINES_OF_BLOCKS(0, 1),
                                      DEFINES_OF_BLOCKS(1, 1), DEFINES_OF_BLOCKS(0, 2), DEFINES_OF_BLOCKS(1, 2),
                                      DEFINES_OF_BLOCKS(0, 3), DEFINES_OF_BLOCKS(1, 3)};

/* The parts of the request that the variant adds. The bits that choose the defines change the variant's digest, which
 * is told apart from all others by each of its bytes. */
static void describe(struct attention_variant_launch *launch, bool has_sinks) {
  const unsigned level = launch->has_boxes ? 3 : launch->has_chunks ? 2 : launch->has_pairs ? 1 : 0;
  const unsigned bits = (launch->is_listed ? 1u : 0) | (launch->is_mapped ? 2u : 0) | (has_sinks ? 4u : 0) | level << 3;
  launch->extra = (struct config_extra){.name = VARIANT_HEADER,
                                        .text = launch->source.header,
                                        .bytes = strlen(launch->source.header),
                                        .defines = defines[bits],
                                        .digest = launch->source.digest,
                                        .closure_main = "attention_variant/block_list.cu"};
  launch->extra.digest.bytes[0] ^= (uint8_t)bits;
}

/* Can the terms of `count` keys, the first a multiple of it, be read as one aligned word, of every key that there is?
 */
static bool has_words(const struct attention_variant_source *source, const struct kjit_variant_arguments *arguments,
                      int count) {
  if (source->tile == 0) return false;
  const struct kjit_variant_tensor_argument *tensor = &arguments->tensors[source->tile - 1];
  const int last = source->tile_axes - 1;
  bool pairs = tensor->stride[last] == 1 && tensor->size[last] % count == 0 &&
               tensor->size[last] >= arguments->seq_kv && (uintptr_t)tensor->data % (2 * (uintptr_t)count) == 0;
  for (int axis = 0; axis < last; axis++)
    pairs = pairs && (tensor->size[axis] == 1 || tensor->stride[axis] % count == 0);
  return pairs;
}

/* Can a tensor map describe terms that are read as words of 8 keys, in boxes of several queries? An axis whose elements
 * are all one may have any stride, because its size is taken to be 1. */
static bool has_boxes(const struct attention_variant_source *source, const struct kjit_variant_arguments *arguments) {
  const struct kjit_variant_tensor_argument *tensor = &arguments->tensors[source->tile - 1];
  const int rows = source->tile_rows - 1;
  if (rows < 0 || tensor->size[rows] < arguments->seq_q || tensor->stride[rows] == 0) return false;
  bool has_strides = true;
  for (int axis = 0; axis < source->tile_axes - 1; axis++)
    has_strides =
        has_strides && (tensor->size[axis] == 1 || (tensor->stride[axis] >= 0 && tensor->stride[axis] < STRIDE_LIMIT));
  return has_strides;
}

kjit_status attention_variant_take(struct attention_variant_launch *launch, const kjit_attention_args *args,
                                   const struct attention_variant_source *source,
                                   const struct kjit_variant_arguments *arguments, kjit_error *error) {
  kjit_status status = args->sinks ? check_sinks(args, error) : KJIT_OK;
  if (status == KJIT_OK && args->blocks) status = check_blocks(args, error);
  if (status == KJIT_OK && args->kept) status = check_kept(args->kept, error);
  if (status != KJIT_OK) return status;
  memset(launch, 0, sizeof *launch);
  launch->kept = args->kept;
  launch->source = *source;
  launch->params.arguments = *arguments;
  launch->params.sinks = args->sinks ? args->sinks->data : NULL;
  launch->has_pairs = has_words(source, arguments, 2);
  launch->has_chunks = has_words(source, arguments, 8);
  launch->has_boxes = launch->has_chunks && has_boxes(source, arguments);
  launch->gathered = launch->has_pairs ? 0 : source->key_loads;
  launch->is_mapped = args->blocks != NULL;
  launch->is_listed = launch->is_mapped || (source->has_mask && source->intervals == 0);
  describe(launch, args->sinks != NULL);
  return KJIT_OK;
}

void attention_variant_leave_blocks(struct attention_variant_launch *launch) {
  launch->is_listed = launch->is_mapped = launch->has_pairs = launch->has_chunks = launch->has_boxes = false;
  describe(launch, false);
}

/* ---- Kernels that run before ---- */

static int64_t stride_of(const kjit_tensor *tensor, uint32_t axis) {
  return tensor->data ? tensor_stride(tensor, axis) : 0;
}

/* Lay out the map of the caller's lists. */
static void lay_map(struct attention_variant_launch *launch, const kjit_block_lists *blocks) {
  const kjit_tensor *counts = &blocks->counts, *indices = &blocks->indices;
  const int64_t batch = counts->shape[0], heads = counts->shape[1], rows = indices->shape[2],
                columns = indices->shape[3];
  launch->map = (struct attention_block_map_params){.counts = counts->data,
                                                    .indices = indices->data,
                                                    .full_counts = blocks->full_counts.data,
                                                    .full_indices = blocks->full_indices.data,
                                                    .count_batch_stride = stride_of(counts, 0),
                                                    .count_head_stride = stride_of(counts, 1),
                                                    .index_batch_stride = stride_of(indices, 0),
                                                    .index_head_stride = stride_of(indices, 1),
                                                    .index_row_stride = stride_of(indices, 2),
                                                    .full_count_batch_stride = stride_of(&blocks->full_counts, 0),
                                                    .full_count_head_stride = stride_of(&blocks->full_counts, 1),
                                                    .full_index_batch_stride = stride_of(&blocks->full_indices, 0),
                                                    .full_index_head_stride = stride_of(&blocks->full_indices, 1),
                                                    .full_index_row_stride = stride_of(&blocks->full_indices, 2),
                                                    .rows = (int)rows,
                                                    .columns = (int)columns};
  launch->params.map = (struct attention_block_map){.batch_stride = batch > 1 ? heads * rows * columns : 0,
                                                    .head_stride = heads > 1 ? rows * columns : 0,
                                                    .query_rows = blocks->query_rows,
                                                    .key_rows = blocks->key_rows,
                                                    .rows = (int)rows,
                                                    .columns = (int)columns};
  launch->map_bytes = (size_t)integer_round_up(batch * heads * rows * columns, 16);
  launch->map_grid[0] = (uint32_t)rows;
  launch->map_grid[1] = (uint32_t)heads;
  launch->map_grid[2] = (uint32_t)batch;
}

/* Lay out the keep words of `lists` lists, each of which so many tiles share. */
static void lay_words(struct attention_variant_launch *launch, const struct attention_tiling *tiling, int64_t lists,
                      int64_t sharing, uint32_t multiprocessors) {
  const int64_t block_bytes = (int64_t)tiling->parts * VARIANT_WORDS_OF_PART(tiling->key_rows) * 4;
  if (!tiling->takes_words || sharing < WORDS_SHARED) return;
  const int64_t written = integer_min(launch->params.lists.capacity, LIST_WRITTEN);
  launch->params.lists.written = (int)integer_min(written, WORDS_MAX / (lists * block_bytes));
  launch->word_bytes = (size_t)(lists * launch->params.lists.written * block_bytes);
  if (launch->word_bytes == 0) return;
  while (launch->list.writer_bits < WRITER_BITS && lists << (launch->list.writer_bits + 1) <= multiprocessors)
    launch->list.writer_bits++;
}

/* Lay out the lists of a config's tiles. Heads and batch entries that cannot differ share a list. */
static void lay_lists(struct attention_variant_launch *launch, const kjit_attention_args *args,
                      const struct attention_tiling *tiling, uint32_t multiprocessors) {
  const struct attention_block_map *map = &launch->params.map;
  const bool by_head = (launch->source.has_mask && launch->source.by_head) || map->head_stride > 0;
  const bool by_batch = (launch->source.has_mask && launch->source.by_batch) || map->batch_stride > 0;
  const int heads = by_head ? tiling->heads : 1;
  const int64_t batch = by_batch ? (int64_t)tiling->batch : 1;
  const int64_t lists = (int64_t)tiling->query_tiles * heads * batch;
  const int64_t capacity = integer_divide_up(args->k.shape[SEQ], tiling->key_rows);
  const int pieces =
      (int)integer_divide_up(tiling->key_rows, LIST_PIECE_KEYS) + (tiling->key_rows % LIST_PIECE_KEYS != 0);
  launch->list = (struct attention_block_list_params){
      .query_tiles = tiling->query_tiles,
      .tile_queries = tiling->tile_queries,
      .packed = tiling->packed,
      .packs = tiling->packed > 1 ? tiling->heads_per_kv : 1,
      .group = tiling->packed > 1 ? launch->params.arguments.heads_q / launch->params.arguments.heads_kv : 1,
      .key_rows = tiling->key_rows,
      .parts = tiling->parts,
      .key_pieces = pieces,
      .lane_blocks = LANES / pieces,
      .inverse = (1 << 16) / pieces + 1,
      .causal = args->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0};
  launch->params.lists = (struct attention_block_lists){.batch_stride = by_batch ? tiling->query_tiles * heads : 0,
                                                        .head_stride = by_head ? tiling->query_tiles : 0,
                                                        .capacity = (int)capacity};
  const int64_t tiles = (int64_t)tiling->query_tiles * tiling->heads * tiling->batch;
  lay_words(launch, tiling, lists, tiles / lists, multiprocessors);
  launch->order_bytes = tiling->takes_order && tiles > multiprocessors
                            ? (size_t)integer_round_up(lists * (int64_t)sizeof(struct attention_listed_tile), 16)
                            : 0;
  launch->ahead_bytes = launch->order_bytes > 0 && lists == tiling->query_tiles ? 16 : 0;
  launch->params.lists.writers = 1 << launch->list.writer_bits;
  launch->params.lists.readers = (int)(tiles / lists);
  launch->list_grid[0] = (uint32_t)tiling->query_tiles << launch->list.writer_bits;
  launch->list_grid[1] = (uint32_t)heads;
  launch->list_grid[2] = (uint32_t)batch;
  launch->count_bytes = (size_t)integer_round_up(lists * 4, 16);
  launch->entry_bytes = lists > INT32_MAX || lists * capacity > (int64_t)(LISTS_MAX / 4)
                            ? 0
                            : (size_t)integer_round_up(lists * capacity * 4, 16);
  launch->made = tiling->awaits_each && launch->entry_bytes > 0 ? (size_t)lists : 0;
}

/* Where blocks differ by batch entry or head, these are axes of the grids that find them. */
static kjit_status check_grids(const struct attention_variant_launch *launch, kjit_error *error) {
  const kjit_status status =
      rule_check_grid(launch->list_grid[2], launch->list_grid[1], "a mask that reads b and h", error);
  if (status != KJIT_OK || !launch->is_mapped) return status;
  return rule_check_grid(launch->map_grid[2], launch->map_grid[1], "a list of blocks", error);
}

kjit_status attention_variant_prepare(struct attention_variant_launch *launch, kjit_runtime *runtime,
                                      const kjit_attention_args *args, const struct attention_tiling *tiling,
                                      const kjit_device_info *device, kjit_error *error) {
  if (!launch->is_listed) return KJIT_OK;
  launch->runtime = runtime;
  launch->memory = runtime_slot_get(runtime, &memory_slot);
  if (!launch->memory) return error_no_memory(error);
  kjit_status status = KJIT_OK;
  if (launch->is_mapped) {
    lay_map(launch, args->blocks);
    status = config_kernel_get(runtime, &attention_block_map_family, attention_no_fields, device, NULL, 0,
                               &launch->map_kernel, error);
  }
  lay_lists(launch, args, tiling, device->multiprocessors);
  launch->has_dependents = runtime_has_dependents(device);
  if (!launch->has_dependents) launch->made = 0; /* the whole kernel has ended before */
  if (status == KJIT_OK) status = check_grids(launch, error);
  if (status == KJIT_OK && launch->entry_bytes > 0)
    status = config_kernel_get(runtime, &attention_block_list_family, attention_no_fields, device, &launch->extra, 0,
                               &launch->list_kernel, error);
  return status;
}

void attention_variant_fill(const struct attention_variant_launch *launch, float *scale, float *scale_log2,
                            struct attention_variant_params *params) {
  *params = launch->params;
  params->score_scale = *scale;
  if (!launch->source.has_score) return;
  *scale = (float)LN_2;
  *scale_log2 = 1;
}
