/* Copies of K and V in rows that are whole lines of L2, from which attention_sm90 loads fewer lines.
 *
 * 1. sm90_padding_pays() says for which problems, by a model whose constants were measured on an H100.
 * 2. sm90_padding_prepare() describes the tensors and their copies. A tensor whose rows are whole lines as the caller
 *    has them is left where it is.
 * 3. sm90_padding_enqueue() is given the stream's memory, launches the copy and puts the maps of the copies in place of
 *    those of the tensors. The attention kernel behind it is the same, and so is its result, bit by bit.
 *
 * Threads: pure, or on the caller's own struct. Maps are shared by all threads; a look-up takes no lock
 * (base/threads/recent.h). */
#include "attention/sm90/sm90_padding.h"

#include <string.h>

#include "attention/rule.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"
#include "attention_sm90/layout.h"
#include "base/integer.h"
#include "family/config.h"

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };

enum { ELEMENT_BYTES = TENSOR_BOX_ELEMENT_BYTES, MAPS = 2, PLACES = 64, ROWS = 64, MOST_ROWS = 1024 };

/* ---- The family ---- */

static const kjit_field_info fields[] = {
    {"rows", "", "rows of K or V that a block of threads copies: 1 to 1024", KJIT_FIELD_INT, 0, NULL, 0, NULL}};

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return rule_is_between(*values, 1, MOST_ROWS) ? KJIT_OK : rule_broken(error, "rows", *values, "1 to 1024");
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  (void)family, (void)values;
  *out = (kjit_geometry){.threads = {PADDING_THREADS, 1, 1}};
}

const kjit_family attention_padding_family = {
    .table = {.family = "attention_padding", .fields = fields, .count = 1, .config_bytes = sizeof(int32_t)},
    .entry = "attention_padding",
    .main_file = "attention_padding/attention_padding.cu",
    .check = check,
    .check_place = rule_check_hopper,
    .is_arch_specific = rule_is_arch_specific,
    .geometry = geometry,
    .derive = config_derive_geometry,
};

/* ---- When ---- */

static bool is_whole(int64_t columns) {
  return columns * ELEMENT_BYTES % PADDING_LINE_BYTES == 0;
}

bool sm90_padding_is_possible(const kjit_attention_sm90_config *config, int32_t *values) {
  if (config->split || (is_whole(config->head_dim) && is_whole(config->head_dim_v))) return false;
  *values = ROWS;
  return true;
}

static int64_t pitch_of(int64_t columns) {
  return integer_round_up(columns * ELEMENT_BYTES, PADDING_LINE_BYTES);
}

/* How many lines of L2 a row of so many columns has, in thousandths. */
static int64_t lines_of_copy(int64_t columns) {
  return 1000 * pitch_of(columns) / PADDING_LINE_BYTES;
}

/* How many lines of L2 the boxes of a row ask for in the mean, in thousandths, where rows follow each other: a row
 * begins at every multiple of the largest power of two in its length equally often, and a box that reaches beyond the
 * end of a line asks for the next one too. */
static int64_t lines_of_rows(int64_t columns) {
  const int64_t bytes = columns * ELEMENT_BYTES, step = bytes & -bytes;
  if (step >= PADDING_LINE_BYTES) return lines_of_copy(columns);
  const int64_t places = PADDING_LINE_BYTES / step;
  int64_t lines = 0;
  for (int64_t left = bytes; left > 0; left -= PADDING_LINE_BYTES) {
    const int64_t box = integer_min(left, PADDING_LINE_BYTES);
    /* Of the places 0, step, 2 step, ... those above 128 - box make the box end in the next line. */
    const int64_t inside = (PADDING_LINE_BYTES - box) / step + 1;
    lines += 1000 + 1000 * (places - inside) / places;
  }
  return lines;
}

/* The time of one step of an SM, in picoseconds, when a key and its value ask for so many thousandths of lines. */
static int64_t step_time(const kjit_attention_sm90_config *config, const struct sm90_card *card, int64_t lines) {
  enum {
    LINE_PS = 1800, /* from one line to the next: hd168, hd200 and hd216 took 1,730 to 1,880 on an H100 */
    OVERHEAD = 9    /* eighths of the model's time that a step takes which does not wait for lines: 1.08 to 1.18 */
  };
  const int64_t compute = sm90_tiles_step_time(config, card) * 1000 * OVERHEAD / 8;
  return integer_max(compute, sm90_card_cycles(card, lines * config->tile_n * LINE_PS / 1000));
}

bool sm90_padding_pays(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                       const struct sm90_card *card) {
  enum { LAUNCH_NS = 4000 };
  const int64_t d = config->head_dim, dv = config->head_dim_v;
  if (config->split || (is_whole(d) && is_whole(dv))) return false;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  const int64_t now = step_time(config, card, lines_of_rows(d) + lines_of_rows(dv));
  const int64_t then = step_time(config, card, lines_of_copy(d) + lines_of_copy(dv));
  const int64_t rows = problem->batch * problem->heads_kv; /* of a position */
  const int64_t most_rows = SM90_PADDING_MOST / (pitch_of(d) + pitch_of(dv));
  if (rows > most_rows || problem->seq_kv > most_rows / rows) return false;
  const int64_t read = (is_whole(d) ? 0 : d) + (is_whole(dv) ? 0 : dv);
  const int64_t written = (is_whole(d) ? 0 : pitch_of(d)) + (is_whole(dv) ? 0 : pitch_of(dv));
  const int64_t bytes = rows * problem->seq_kv * (read * ELEMENT_BYTES + written);
  /* Copies reach three quarters of the rate at which K and V are read; a quarter more than they cost must be spared. */
  const int64_t cost = LAUNCH_NS + bytes * 4 / (3 * card->memory_bytes_a_ns);
  const int64_t steps = sm90_tiles_steps(&tiles, config) / card->multiprocessors; /* of an SM */
  return steps * (now - then) / 1000 > cost + cost / 4;
}

/* ---- Preparing ---- */

struct recent *sm90_padding_maps_create(const struct mem *mem) {
  return recent_create(mem, PLACES, MAPS * sizeof(struct runtime_tensor), MAPS * RUNTIME_TENSOR_MAP_BYTES);
}

/* Are all rows whole lines, the caller's padding included? */
static bool has_whole_lines(const kjit_tensor *tensor) {
  uint64_t all = (uintptr_t)tensor->data;
  for (enum axis axis = BATCH; axis <= HEADS; axis++) {
    if (tensor->shape[axis] > 1) all |= (uint64_t)(tensor_stride(tensor, axis) * ELEMENT_BYTES);
  }
  return all % PADDING_LINE_BYTES == 0;
}

/* Describe a tensor and its copy, which comes `offset` bytes behind the memory's beginning. */
static void describe(const kjit_tensor *tensor, int32_t key_rows, size_t offset, struct attention_padding_tensor *copy,
                     struct runtime_tensor *map) {
  const int64_t pitch = pitch_of(tensor->shape[HEAD_DIM]), row = pitch / ELEMENT_BYTES;
  kjit_tensor padded = *tensor;
  *copy =
      (struct attention_padding_tensor){.from = tensor->data,
                                        .to = (char *)(uintptr_t)offset,
                                        .batch_stride = tensor_stride(tensor, BATCH) * ELEMENT_BYTES,
                                        .seq_stride = tensor_stride(tensor, SEQ) * ELEMENT_BYTES,
                                        .head_stride = tensor_stride(tensor, HEADS) * ELEMENT_BYTES,
                                        .chunks = (int)(tensor->shape[HEAD_DIM] * ELEMENT_BYTES / PADDING_CHUNK_BYTES),
                                        .row_bytes = (int)pitch};
  padded.data = (void *)(uintptr_t)offset;
  padded.stride[SEQ] = row;
  padded.stride[HEADS] = row * tensor->shape[SEQ];
  padded.stride[BATCH] = row * tensor->shape[SEQ] * tensor->shape[HEADS];
  *map = tensor_box_describe(&padded, key_rows, KJIT_MAP_PROMOTION_256B);
}

bool sm90_padding_prepare(struct sm90_padding *padding, const kjit_attention_args *args,
                          const kjit_attention_sm90_config *config, const struct config_kernel *kernel) {
  const kjit_tensor *const tensors[MAPS] = {&args->k, &args->v};
  const int64_t *const shape = args->k.shape;
  const int64_t pairs = shape[BATCH] * shape[HEADS], pieces = integer_divide_up(shape[SEQ], ROWS);
  uint32_t copies = 0;
  memset(padding, 0, sizeof *padding);
  for (size_t i = 0; i < MAPS; i++) {
    if (has_whole_lines(tensors[i])) continue;
    describe(tensors[i], config->tile_n, padding->bytes, &padding->params.tensors[copies++], &padding->tensors[i]);
    padding->bytes += (size_t)(pairs * shape[SEQ] * pitch_of(tensors[i]->shape[HEAD_DIM]));
  }
  padding->kernel = kernel;
  padding->params.heads = (int)shape[HEADS];
  padding->params.seq = (int)shape[SEQ];
  padding->params.pieces = (int)pieces;
  padding->grid[0] = (uint32_t)(pairs * pieces);
  padding->grid[1] = copies;
  padding->grid[2] = 1;
  return copies > 0;
}

/* ---- Launching ---- */

static const char *const names[MAPS] = {"k", "v"};

/* The maps of the copies at these addresses: those that are remembered, or new ones. */
static kjit_status get_maps(const struct sm90_padding *padding, const struct runtime_tensor tensors[MAPS],
                            struct attention_tensor_map maps[MAPS], kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (recent_get(padding->maps, tensors, maps)) return KJIT_OK;
  memset(maps, 0, MAPS * sizeof *maps);
  for (size_t i = 0; i < MAPS && status == KJIT_OK; i++) {
    if (tensors[i].rank) status = runtime_tensor_map_encode(padding->runtime, &tensors[i], names[i], &maps[i], error);
  }
  if (status == KJIT_OK) recent_put(padding->maps, tensors, maps);
  return status;
}

kjit_status sm90_padding_enqueue(const struct sm90_padding *padding, void *memory, struct attention_sm90_params *params,
                                 CUstream stream, kjit_error *error) {
  struct attention_padding_params copy = padding->params;
  struct runtime_tensor tensors[MAPS] = {padding->tensors[0], padding->tensors[1]};
  struct attention_tensor_map maps[MAPS];
  for (size_t i = 0; i < MAPS; i++) {
    copy.tensors[i].to = (char *)memory + (uintptr_t)copy.tensors[i].to;
    if (tensors[i].rank) tensors[i].address += (uintptr_t)memory;
  }
  kjit_status status = get_maps(padding, tensors, maps, error);
  if (status == KJIT_OK)
    status = runtime_kernel_enqueue(padding->kernel->kernel, padding->grid, padding->kernel->geometry.threads, 0, &copy,
                                    stream, error);
  if (status != KJIT_OK) return status;
  if (tensors[0].rank) params->k = maps[0];
  if (tensors[1].rank) params->v = maps[1];
  return KJIT_OK;
}
