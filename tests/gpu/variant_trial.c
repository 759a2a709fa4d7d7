/* One variant on one problem: variant_trial.h.
 *
 * 1. make_world() and make_inputs() draw inputs on the host, from a seed, and copy them to the card.
 * 2. launch() makes the variant of its text, fills the arguments and waits.
 * 3. variant_judge() compares what came out (variant_judge.h).
 *
 * Threads: one. */
#include "variant_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/half.h"

static double uniform(struct random *random) {
  return (double)(random_next(random) >> 11) * 0x1p-53;
}
static double normal(struct random *random) {
  double sum = -6;
  for (int i = 0; i < 12; i++)
    sum += uniform(random);
  return sum;
}

static size_t count_q(const struct variant_trial *t) {
  const struct variant_shape *s = t->shape;
  return (size_t)s->batch * (size_t)s->seq_q * (size_t)s->heads * (size_t)s->head_dim;
}
static size_t count_k(const struct variant_trial *t) {
  const struct variant_shape *s = t->shape;
  return (size_t)s->batch * (size_t)s->seq_kv * (size_t)s->heads_kv * (size_t)s->head_dim;
}
static size_t row_count(const struct variant_trial *t) {
  return (size_t)t->shape->batch * (size_t)t->shape->heads * (size_t)t->shape->seq_q;
}

static uint16_t *draw(struct variant_trial *t, size_t count) {
  uint16_t *values = malloc(count * sizeof *values);
  for (size_t i = 0; values && i < count; i++)
    values[i] = half_from_float(t->dtype, (float)normal(&t->random));
  return values;
}

static float *widened(const struct variant_trial *t, const uint16_t *values, size_t count) {
  float *wide = values ? malloc(count * sizeof *wide) : NULL;
  for (size_t i = 0; wide && i < count; i++)
    wide[i] = half_to_float(t->dtype, values[i]);
  return wide;
}

static kjit_status upload(const struct card *card, struct card_buffer *out, const void *from, size_t bytes,
                          kjit_error *error) {
  const kjit_status status = card_buffer_create(card, out, bytes, error);
  return status == KJIT_OK ? card_write(card, out->address, from, bytes, error) : status;
}

static float *floats(struct variant_trial *t, size_t count, double scale) {
  float *values = malloc(count * sizeof *values);
  for (size_t i = 0; values && i < count; i++)
    values[i] = (float)(scale * normal(&t->random));
  return values;
}

/* The keys of a row of the level: those of an odd number are padded to whole chunks of 16 bytes, those of an even one
 * are left to be loaded in pairs. */
static size_t level_keys(const struct variant_world *w) {
  const size_t keys = (size_t)w->seq_kv;
  return keys % 2 ? (keys + 7) / 8 * 8 : keys;
}

/* The bias loses the bits that bf16 has not, so that both have the same numbers. What pads a row is NaN. */
static void make_level(struct variant_world *w) {
  const size_t keys = (size_t)w->seq_kv, rows = (size_t)w->heads * (size_t)w->seq_q, padded = level_keys(w);
  w->level = malloc(rows * padded * sizeof *w->level);
  if (w->level) memset(w->level, 0xff, rows * padded * sizeof *w->level);
  for (size_t i = 0; w->level && w->bias && i < rows * keys; i++) {
    uint32_t bits;
    memcpy(&bits, &w->bias[i], 4);
    bits &= 0xffff0000u;
    w->level[i / keys * padded + i % keys] = (uint16_t)(bits >> 16);
    memcpy(&w->bias[i], &bits, 4);
  }
}

static void make_world(struct variant_trial *t) {
  const struct variant_shape *s = t->shape;
  struct variant_world *w = &t->world;
  const int keys = s->seq_q > s->seq_kv ? s->seq_q : s->seq_kv;
  *w = (struct variant_world){.batch = s->batch,
                              .heads = s->heads,
                              .heads_kv = s->heads_kv,
                              .seq_q = s->seq_q,
                              .seq_kv = s->seq_kv,
                              .keys = keys};
  w->doc = calloc((size_t)s->batch * (size_t)keys, sizeof *w->doc);
  w->length = calloc((size_t)s->batch, sizeof *w->length);
  w->flag = calloc((size_t)keys, 1);
  for (int b = 0; b < s->batch; b++) {
    w->length[b] = 1 + (int32_t)random_below(&t->random, (size_t)s->seq_kv);
    for (int i = 1; i < keys; i++)
      w->doc[b * keys + i] = w->doc[b * keys + i - 1] + (random_below(&t->random, 70) == 0);
  }
  for (int i = 0; i < keys; i++)
    w->flag[i] = random_below(&t->random, 8) == 0;
  w->slope = floats(t, (size_t)s->heads, 0);
  for (int h = 0; h < s->heads; h++)
    w->slope[h] = (float)exp2(-(h + 1) * 8.0 / s->heads);
  w->bias = floats(t, (size_t)s->heads * (size_t)s->seq_q * (size_t)s->seq_kv, 0.5);
  make_level(w);
  w->table = floats(t, (size_t)keys, 0.5);
  w->sinks = floats(t, (size_t)s->heads, 1);
  w->window = 37;
  w->prefix = 50;
  w->cap = 5;
}

static kjit_status upload_world(struct variant_trial *t, kjit_error *error) {
  const struct variant_world *w = &t->world;
  const size_t keys = (size_t)w->keys, heads = (size_t)w->heads;
  const struct {
    const void *data;
    size_t bytes;
  } parts[WORLD_TENSORS] = {{w->doc, (size_t)w->batch * keys * 4},
                            {w->length, (size_t)w->batch * 4},
                            {w->flag, keys},
                            {w->slope, heads * 4},
                            {w->bias, heads * (size_t)w->seq_q * (size_t)w->seq_kv * 4},
                            {w->table, keys * 4},
                            {w->level, heads * (size_t)w->seq_q * level_keys(w) * 2}};
  kjit_status status = KJIT_OK;
  for (int i = 0; i < WORLD_TENSORS && status == KJIT_OK; i++)
    status = upload(t->card, &t->dworld[i], parts[i].data, parts[i].bytes, error);
  return status == KJIT_OK ? upload(t->card, &t->dsinks, w->sinks, heads * 4, error) : status;
}

/* Make NaN of the K and V that no block with a seen key holds, since blocks have at most 256 keys. */
static void hide_nan(struct variant_trial *t) {
  enum { BLOCK = 256 };
  const struct variant_shape *s = t->shape;
  const size_t key_elements = (size_t)s->heads_kv * (size_t)s->head_dim;
  for (int b = 0; b < s->batch; b++)
    for (int k = 0, last_seen = -BLOCK; k < s->seq_kv + BLOCK; k++) {
      for (int i = 0; i < s->heads * s->seq_q && k < s->seq_kv && last_seen < k; i++)
        if (t->one->mask_at(&t->world, (struct variant_place_of){b, i / s->seq_q, i % s->seq_q, k})) last_seen = k;
      const int far = k - BLOCK; /* all keys so far from it are known */
      if (far < 0 || last_seen > far - BLOCK) continue;
      memset(t->k + ((size_t)(b * s->seq_kv) + (size_t)far) * key_elements, 0xff, key_elements * 2);
      memset(t->v + ((size_t)(b * s->seq_kv) + (size_t)far) * key_elements, 0xff, key_elements * 2);
    }
}

static kjit_status make_inputs(struct variant_trial *t, kjit_error *error) {
  const size_t nq = count_q(t), nk = count_k(t);
  t->q = draw(t, nq);
  t->k = draw(t, nk);
  t->v = draw(t, nk);
  t->q32 = widened(t, t->q, nq);
  t->k32 = widened(t, t->k, nk);
  t->v32 = widened(t, t->v, nk);
  if (t->one->hides_nan && t->k32 && t->v32) hide_nan(t);
  t->o = malloc(nq * 2);
  t->lse = malloc(row_count(t) * sizeof *t->lse);
  if (!t->q32 || !t->k32 || !t->v32 || !t->o || !t->lse) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory");
  kjit_status status = upload(t->card, &t->dq, t->q, nq * 2, error);
  if (status == KJIT_OK) status = upload(t->card, &t->dk, t->k, nk * 2, error);
  if (status == KJIT_OK) status = upload(t->card, &t->dv, t->v, nk * 2, error);
  if (status == KJIT_OK) status = card_buffer_create(t->card, &t->d_o, nq * 2, error);
  if (status == KJIT_OK) status = card_buffer_create(t->card, &t->dlse, row_count(t) * 4, error);
  return status == KJIT_OK ? upload_world(t, error) : status;
}

static kjit_tensor view(struct card_buffer buffer, int32_t dtype, uint32_t rank, const int64_t *shape) {
  kjit_tensor tensor = {.data = (void *)(uintptr_t)buffer.address, .dtype = dtype, .rank = rank};
  int64_t stride = 1;
  for (uint32_t axis = rank; axis-- > 0;) {
    tensor.shape[axis] = shape[axis];
    tensor.stride[axis] = stride;
    stride *= shape[axis];
  }
  return tensor;
}

/* ---- Block lists ---- */

/* Draw a state for each block: a third empty, a third partial, a third full; heads differ. */
static kjit_status make_blocks(struct variant_trial *t, kjit_block_lists *lists, kjit_error *error) {
  const int block = t->one->block, heads = t->shape->heads;
  const int rows = (t->shape->seq_q + block - 1) / block, columns = (t->shape->seq_kv + block - 1) / block;
  const size_t lists_count = (size_t)heads * (size_t)rows, places = lists_count * (size_t)columns;
  int32_t *counts[2], *indices[2];
  for (int i = 0; i < 2; i++) {
    counts[i] = calloc(lists_count, 4);
    indices[i] = malloc(places * 4);
    memset(indices[i], 0x7f, places * 4); /* what is behind the counts must not be read */
  }
  t->rows = rows;
  t->columns = columns;
  t->states = calloc(places, 1);
  for (int row = 0; row < heads * rows; row++)
    for (int c = 0; c < columns; c++) {
      const int state = (int)random_below(&t->random, 3);
      t->states[row * columns + c] = (uint8_t)state;
      if (state) indices[state - 1][row * columns + counts[state - 1][row]++] = c;
    }
  kjit_status status = KJIT_OK;
  for (int i = 0; i < 2 && status == KJIT_OK; i++) {
    status = upload(t->card, &t->dblocks[2 * i], counts[i], lists_count * 4, error);
    if (status == KJIT_OK) status = upload(t->card, &t->dblocks[2 * i + 1], indices[i], places * 4, error);
  }
  for (int i = 0; i < 2; i++) {
    free(counts[i]);
    free(indices[i]);
  }
  const int64_t shape[4] = {1, heads, rows, columns};
  *lists = (kjit_block_lists){view(t->dblocks[0], KJIT_INT32, 3, shape),
                              view(t->dblocks[1], KJIT_INT32, 4, shape),
                              view(t->dblocks[2], KJIT_INT32, 3, shape),
                              view(t->dblocks[3], KJIT_INT32, 4, shape),
                              block,
                              block};
  return status;
}

/* ---- Launch ---- */

#define TENSORS_MAX 8
#define SCALARS_MAX 4

/* Is the name a word of one of the texts? */
static bool is_used(const struct variant_case *one, const char *name) {
  const char *const texts[] = {one->score, one->mask};
  for (int i = 0; i < 2; i++) {
    for (const char *at = texts[i] ? strstr(texts[i], name) : NULL; at; at = strstr(at + 1, name)) {
      const char after = at[strlen(name)];
      if ((at == texts[i] || !strchr("abcdefghijklmnopqrstuvwxyz_", at[-1])) &&
          (!after || !strchr("abcdefghijklmnopqrstuvwxyz_", after)))
        return true;
    }
  }
  return false;
}

struct declared {
  kjit_variant_scalar scalars[SCALARS_MAX];
  int32_t values[SCALARS_MAX];
  kjit_variant_tensor tensors[TENSORS_MAX];
  kjit_tensor views[TENSORS_MAX];
  size_t scalar_count, tensor_count;
};

static void declare_tensor(const struct variant_trial *t, struct declared *all, int which, const char *name,
                           int32_t dtype, uint32_t rank, const int64_t *shape) {
  if (!is_used(t->one, name)) return;
  all->tensors[all->tensor_count] = (kjit_variant_tensor){name, dtype, rank};
  all->views[all->tensor_count++] = view(t->dworld[which], dtype, rank, shape);
}

static void declare_scalar(const struct variant_trial *t, struct declared *all, const char *name, int32_t kind,
                           const void *bits) {
  if (!is_used(t->one, name)) return;
  all->scalars[all->scalar_count] = (kjit_variant_scalar){name, kind};
  memcpy(&all->values[all->scalar_count++], bits, 4);
}

static void declare(const struct variant_trial *t, struct declared *all) {
  const struct variant_world *w = &t->world;
  declare_scalar(t, all, "window", KJIT_VARIANT_INT32, &w->window);
  declare_scalar(t, all, "prefix", KJIT_VARIANT_INT32, &w->prefix);
  declare_scalar(t, all, "cap", KJIT_VARIANT_FP32, &w->cap);
  declare_tensor(t, all, DOC, "doc", KJIT_INT32, 2, (int64_t[]){w->batch, w->keys});
  declare_tensor(t, all, LENGTH, "length", KJIT_INT32, 1, (int64_t[]){w->batch});
  declare_tensor(t, all, FLAG, "flag", 11, 1, (int64_t[]){w->keys});
  declare_tensor(t, all, SLOPE, "slope", KJIT_FP32, 1, (int64_t[]){w->heads});
  declare_tensor(t, all, BIAS, "bias", KJIT_FP32, 4, (int64_t[]){1, w->heads, w->seq_q, w->seq_kv});
  declare_tensor(t, all, LEVEL, "level", KJIT_BF16, 4, (int64_t[]){1, w->heads, w->seq_q, (int64_t)level_keys(w)});
  declare_tensor(t, all, TABLE, "table", KJIT_FP32, 1, (int64_t[]){w->keys});
}

static kjit_attention_args arguments(const struct variant_trial *t) {
  const struct variant_shape *s = t->shape;
  const kjit_dtype dtype = (kjit_dtype)t->dtype;
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd((void *)(uintptr_t)t->dq.address, dtype, 0, s->batch, s->seq_q, s->heads, s->head_dim);
  args.k = kjit_tensor_bshd((void *)(uintptr_t)t->dk.address, dtype, 0, s->batch, s->seq_kv, s->heads_kv, s->head_dim);
  args.v = kjit_tensor_bshd((void *)(uintptr_t)t->dv.address, dtype, 0, s->batch, s->seq_kv, s->heads_kv, s->head_dim);
  args.o = kjit_tensor_bshd((void *)(uintptr_t)t->d_o.address, dtype, 0, s->batch, s->seq_q, s->heads, s->head_dim);
  args.lse = view(t->dlse, KJIT_FP32, 3, (int64_t[]){s->batch, s->heads, s->seq_q});
  args.flags = t->one->causal ? KJIT_ATTENTION_CAUSAL : 0;
  return args;
}

static kjit_status run_call(struct variant_trial *t, const kjit_config *config, const kjit_attention_args *args,
                            kjit_error *error) {
  kjit_status status = card_poison(t->card, t->d_o, t->card->stream, error);
  if (status == KJIT_OK) status = card_poison(t->card, t->dlse, t->card->stream, error);
  if (status == KJIT_OK) status = kjit_attention_forward(t->runtime, config, args, t->card->stream, error);
  return status == KJIT_OK ? card_synchronize(t->card, t->card->stream, error) : status;
}

/* Three calls: the first tells how much memory its blocks take, the second fills it, the third reads it. */
static kjit_status run_kept(struct variant_trial *t, const kjit_config *config, kjit_attention_args *args,
                            kjit_error *error) {
  struct card_buffer memory = {0};
  kjit_kept_blocks kept = {0};
  args->kept = &kept;
  kjit_status status = run_call(t, config, args, error);
  if (status == KJIT_OK && kept.wanted > 0) status = card_buffer_create(t->card, &memory, kept.wanted, error);
  kept.data = (void *)(uintptr_t)memory.address;
  kept.bytes = kept.wanted;
  for (int i = 0; i < 2 && status == KJIT_OK; i++)
    status = run_call(t, config, args, error);
  if (status == KJIT_OK && kept.wanted > 0 && kept.filled_for[0] == 0)
    status = card_fail(error, KJIT_ERR_INTERNAL, "no blocks were kept");
  args->kept = NULL;
  card_buffer_destroy(t->card, &memory);
  return status;
}

static kjit_status launch(struct variant_trial *t, const kjit_config *config, kjit_error *error) {
  const struct variant_world *w = &t->world;
  kjit_attention_args args = arguments(t);
  struct declared all = {0};
  kjit_block_lists blocks;
  kjit_attention_variant *variant = NULL;
  const kjit_tensor sinks = view(t->dsinks, KJIT_FP32, 1, (int64_t[]){w->heads});
  kjit_tensor plain[2] = {view(t->dworld[SLOPE], KJIT_FP32, 1, (int64_t[]){w->heads}),
                          view(t->dworld[BIAS], KJIT_FP32, 4, (int64_t[]){1, w->heads, w->seq_q, w->seq_kv})};
  kjit_status status = t->one->block ? make_blocks(t, &blocks, error) : KJIT_OK;
  if (status == KJIT_OK && (t->one->score || t->one->mask)) {
    declare(t, &all);
    const kjit_attention_variant_text text = {.struct_size = sizeof text,
                                              .score = t->one->score,
                                              .mask = t->one->mask,
                                              .scalars = all.scalars,
                                              .scalar_count = all.scalar_count,
                                              .tensors = all.tensors,
                                              .tensor_count = all.tensor_count};
    status = kjit_attention_variant_create(&variant, &text, error);
  }
  if (t->one->set) t->one->set(&args, w, plain);
  if (t->one->sinks) args.sinks = &sinks;
  if (t->one->block) args.blocks = &blocks;
  args.variant = variant;
  args.scalar_values = all.values;
  args.variant_tensors = all.views;
  if (status == KJIT_OK) status = t->one->keeps ? run_kept(t, config, &args, error) : run_call(t, config, &args, error);
  kjit_attention_variant_free(variant);
  if (status == KJIT_OK) status = card_read(t->card, t->o, t->d_o.address, count_q(t) * 2, error);
  return status == KJIT_OK ? card_read(t->card, t->lse, t->dlse.address, row_count(t) * 4, error) : status;
}

static void finish(struct variant_trial *t) {
  struct card_buffer *const buffers[] = {&t->dq, &t->dk, &t->dv, &t->d_o, &t->dlse, &t->dsinks};
  void *const pointers[] = {t->q,           t->k,           t->v,          t->o,
                            t->lse,         t->states,      t->world.doc,  t->world.length,
                            t->world.flag,  t->world.slope, t->world.bias, t->world.table,
                            t->world.sinks, t->world.level, t->q32,        t->k32,
                            t->v32};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    card_buffer_destroy(t->card, buffers[i]);
  for (int i = 0; i < WORLD_TENSORS; i++)
    card_buffer_destroy(t->card, &t->dworld[i]);
  for (int i = 0; i < 4; i++)
    card_buffer_destroy(t->card, &t->dblocks[i]);
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
    free(pointers[i]);
}

kjit_status variant_trial_run(const struct card *card, kjit_runtime *runtime, const struct variant_case *one,
                              const struct variant_shape *shape, const kjit_config *config, uint64_t seed,
                              struct variant_report *report, kjit_error *error) {
  struct variant_trial t = {.card = card,
                            .runtime = runtime,
                            .one = one,
                            .shape = shape,
                            .dtype = shape->bf16 ? KJIT_BF16 : KJIT_FP16,
                            .random = {seed}};
  memset(report, 0, sizeof *report);
  make_world(&t);
  kjit_status status = make_inputs(&t, error);
  if (status == KJIT_OK) status = launch(&t, config, error);
  if (status == KJIT_OK) variant_judge(&t, report);
  finish(&t);
  return status;
}
