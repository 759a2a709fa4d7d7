/* Gradients of an attention variant on one problem: variant_gradients.h.
 *
 * 1. create() draws inputs from a fixed seed, as 16-bit numbers, and copies them to the card.
 * 2. run() makes the variant, and calls forward and backward; the backward call twice, to compare the bits.
 * 3. variant_gradients_judge() computes the gradients in double precision, by the texts, and compares.
 *
 * Threads: one. */
#include "variant_gradient_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/half.h"
#include "support/random.h"

const struct variant_gradient_case variant_gradient_cases[] = {
    {.name = "window", .mask = "q - k <= window and q >= k"},
    {.name = "document", .mask = "doc[b, q] == doc[b, k]"},
    {.name = "every_other_row", .mask = "q % 2 == 0 and k <= q"},
    {.name = "softcap", .score = "cap * tanh(score / cap)", .causal = true},
    {.name = "alibi", .score = "score + slope[h] * (k - q)", .mask = "q - k <= window", .tensors = true},
    {.name = "square", .score = "0.3 * score * score + where(abs(q - k) <= 8, 2.0 * score, score)"},
    {.name = "log", .score = "log(relu(score) + 0.5)"},
    {.name = "sinks", .mask = "q - k <= window and q >= k", .sinks = true},
    {.name = "plain_window", .mask = "q + seq_kv - seq_q - k <= window", .causal = true, .members = true},
    {.name = "plain_members",
     .score = "cap * tanh(score / cap) + bias[h, q, k] - slope[h] * abs(q + seq_kv - seq_q - k)",
     .members = true,
     .tensors = true},
    {.name = "reads", /* an element for each pair, row, column and head */
     .score = "tanh(score + bias[h, q, k]) + bias[h, q, 0] * score - bias[0, 0, k] + slope[h] * score",
     .mask = "q - k <= window",
     .tensors = true},
};
const size_t variant_gradient_case_count = sizeof variant_gradient_cases / sizeof *variant_gradient_cases;

const struct variant_gradient_case *variant_gradient_case_named(const char *name) {
  for (size_t i = 0; i < variant_gradient_case_count; i++) {
    if (!strcmp(variant_gradient_cases[i].name, name)) return &variant_gradient_cases[i];
  }
  return NULL;
}

static const float cap = 2.5f;

static double normal(struct random *random) {
  double sum = -6;
  for (int i = 0; i < 12; i++)
    sum += (double)(random_next(random) >> 11) * 0x1p-53;
  return sum;
}

static int keys_of(const struct variant_gradient_trial *t) {
  return t->shape->seq_q > t->shape->seq_kv ? t->shape->seq_q : t->shape->seq_kv;
}

static void count(struct variant_gradient_trial *t) {
  const struct variant_gradient_shape *s = t->shape;
  const size_t heads = (size_t)s->heads, queries = (size_t)s->seq_q, keys = (size_t)s->seq_kv;
  const size_t rows = (size_t)s->batch * heads * queries, q = rows * (size_t)s->head_dim;
  const size_t k = (size_t)s->batch * (size_t)s->heads_kv * keys * (size_t)s->head_dim;
  const size_t wide[WIDE] = {q, k, k, q, q, q, k, k};
  const size_t pairs = heads * queries * keys;
  const size_t narrow[NARROW] = {rows, rows, rows, heads, heads, pairs, heads, pairs};
  memcpy(t->wide_count, wide, sizeof wide);
  memcpy(t->narrow_count, narrow, sizeof narrow);
}

static kjit_status upload(struct variant_gradient_trial *t, struct card_buffer *memory, const void *data, size_t bytes,
                          kjit_error *error) {
  const kjit_status status = card_buffer_create(t->card, memory, bytes, error);
  return status == KJIT_OK ? card_write(t->card, memory->address, data, bytes, error) : status;
}

static kjit_status create(struct variant_gradient_trial *t, kjit_error *error) {
  const size_t documents = (size_t)t->shape->batch * (size_t)keys_of(t);
  kjit_status status = KJIT_OK;
  count(t);
  for (int i = 0; i < WIDE && status == KJIT_OK; i++) {
    t->wide[i] = calloc(t->wide_count[i], 2);
    for (size_t at = 0; at < t->wide_count[i] && (i < O || i == DOUT); at++)
      t->wide[i][at] = half_from_float(KJIT_FP16, (float)normal(&t->random));
    status = upload(t, &t->wide_memory[i], t->wide[i], t->wide_count[i] * 2, error);
  }
  for (int i = 0; i < NARROW && status == KJIT_OK; i++) {
    t->narrow[i] = calloc(t->narrow_count[i], 4);
    for (size_t at = 0; at < t->narrow_count[i] && (i == DLSE || (i >= SINKS && i <= BIAS)); at++)
      t->narrow[i][at] = (float)(0.5 * normal(&t->random));
    status = upload(t, &t->narrow_memory[i], t->narrow[i], t->narrow_count[i] * 4, error);
  }
  t->doc = calloc(documents, sizeof *t->doc);
  for (size_t i = 1; i < documents; i++)
    t->doc[i] = t->doc[i - 1] + (random_below(&t->random, 30) == 0);
  return status == KJIT_OK ? upload(t, &t->doc_memory, t->doc, documents * 4, error) : status;
}

static void destroy(struct variant_gradient_trial *t) {
  for (int i = 0; i < WIDE; i++) {
    free(t->wide[i]);
    card_buffer_destroy(t->card, &t->wide_memory[i]);
  }
  for (int i = 0; i < NARROW; i++) {
    free(t->narrow[i]);
    card_buffer_destroy(t->card, &t->narrow_memory[i]);
  }
  free(t->doc);
  card_buffer_destroy(t->card, &t->doc_memory);
  kjit_attention_variant_free(t->variant);
}

/* ---- The calls ---- */

static kjit_tensor view(void *data, int32_t device, int32_t dtype, uint32_t rank, const int64_t *shape) {
  kjit_tensor tensor = {.data = data, .dtype = dtype, .device = device, .rank = rank};
  int64_t stride = 1;
  for (uint32_t axis = rank; axis-- > 0;) {
    tensor.shape[axis] = shape[axis];
    tensor.stride[axis] = stride;
    stride *= shape[axis];
  }
  return tensor;
}

static void *address(struct card_buffer memory) {
  return (void *)(uintptr_t)memory.address;
}

/* The texts as a variant, which the reference reads even where the call says the same by plain members. */
static kjit_status make_variant(struct variant_gradient_trial *t, kjit_error *error) {
  static const kjit_variant_scalar scalars[] = {{"window", KJIT_VARIANT_INT32}, {"cap", KJIT_VARIANT_FP32}};
  static const kjit_variant_tensor tensors[TENSORS] = {
      {"slope", KJIT_FP32, 1}, {"doc", KJIT_INT32, 2}, {"bias", KJIT_FP32, 3}};
  const struct variant_gradient_shape *s = t->shape;
  const int64_t heads[] = {s->heads}, documents[] = {s->batch, keys_of(t)}, bias[] = {s->heads, s->seq_q, s->seq_kv};
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  text.score = t->one->score;
  text.mask = t->one->mask;
  text.scalars = scalars;
  text.scalar_count = 2;
  text.tensors = tensors;
  text.tensor_count = TENSORS;
  t->scalars[0] = WINDOW;
  memcpy(&t->scalars[1], &cap, sizeof cap);
  t->host[0] = view(t->narrow[SLOPE], KJIT_DEVICE_HOST, KJIT_FP32, 1, heads);
  t->host[1] = view(t->doc, KJIT_DEVICE_HOST, KJIT_INT32, 2, documents);
  t->host[2] = view(t->narrow[BIAS], KJIT_DEVICE_HOST, KJIT_FP32, 3, bias);
  t->device[0] = view(address(t->narrow_memory[SLOPE]), 0, KJIT_FP32, 1, heads);
  t->device[1] = view(address(t->doc_memory), 0, KJIT_INT32, 2, documents);
  t->device[2] = view(address(t->narrow_memory[BIAS]), 0, KJIT_FP32, 3, bias);
  return kjit_attention_variant_create(&t->variant, &text, error);
}

/* What both calls have: the members of a variant, which are named alike in both structs. */
#define SET_VARIANT(args, t, extra)                                                                                    \
  do {                                                                                                                 \
    (args).flags = (t)->one->causal ? KJIT_ATTENTION_CAUSAL : 0;                                                       \
    if ((t)->one->sinks) (args).sinks = &(extra)->sinks;                                                               \
    if (!(t)->one->members) {                                                                                          \
      (args).variant = (t)->variant;                                                                                   \
      (args).scalar_values = (t)->scalars;                                                                             \
      (args).variant_tensors = (t)->device;                                                                            \
    } else if (!(t)->one->score) {                                                                                     \
      (args).flags |= KJIT_ATTENTION_WINDOW;                                                                           \
      (args).window_left = WINDOW;                                                                                     \
      (args).window_right = -1;                                                                                        \
    } else {                                                                                                           \
      (args).softcap = cap;                                                                                            \
      (args).alibi_slopes = &(extra)->slopes;                                                                          \
      (args).bias = &(extra)->bias;                                                                                    \
    }                                                                                                                  \
  } while (0)

struct extra {
  kjit_tensor sinks, slopes, bias;
  kjit_tensor dslopes, dbias, gradients[TENSORS]; /* of the members, and of what the texts read */
};

static struct extra extras(const struct variant_gradient_trial *t) {
  const struct variant_gradient_shape *s = t->shape;
  const int64_t heads[] = {s->heads}, bias[] = {1, s->heads, s->seq_q, s->seq_kv};
  return (struct extra){view(address(t->narrow_memory[SINKS]), 0, KJIT_FP32, 1, heads),
                        view(address(t->narrow_memory[SLOPE]), 0, KJIT_FP32, 1, heads),
                        view(address(t->narrow_memory[BIAS]), 0, KJIT_FP32, 4, bias),
                        view(address(t->narrow_memory[DSLOPE]), 0, KJIT_FP32, 1, heads),
                        view(address(t->narrow_memory[DBIAS]), 0, KJIT_FP32, 4, bias),
                        {view(address(t->narrow_memory[DSLOPE]), 0, KJIT_FP32, 1, heads),
                         {0},
                         view(address(t->narrow_memory[DBIAS]), 0, KJIT_FP32, 3, bias + 1)}};
}

static kjit_tensor wide(const struct variant_gradient_trial *t, int which) {
  const struct variant_gradient_shape *s = t->shape;
  const bool keys = which == K || which == V || which == DK || which == DV;
  return kjit_tensor_bshd(address(t->wide_memory[which]), KJIT_FP16, 0, s->batch, keys ? s->seq_kv : s->seq_q,
                          keys ? s->heads_kv : s->heads, s->head_dim);
}

static kjit_tensor rows(const struct variant_gradient_trial *t, int which) {
  const struct variant_gradient_shape *s = t->shape;
  return view(address(t->narrow_memory[which]), 0, KJIT_FP32, 3, (int64_t[]){s->batch, s->heads, s->seq_q});
}

static kjit_status forward(const struct variant_gradient_trial *t, kjit_error *error) {
  const struct extra extra = extras(t);
  kjit_attention_args args = kjit_attention_args_default();
  args.q = wide(t, Q);
  args.k = wide(t, K);
  args.v = wide(t, V);
  args.o = wide(t, O);
  args.lse = rows(t, LSE);
  SET_VARIANT(args, t, &extra);
  return kjit_attention_forward(t->runtime, NULL, &args, t->card->stream, error);
}

/* What the library chooses for another architecture; of this one it is `count` 0. */
static kjit_status choose(const struct variant_gradient_trial *t, kjit_config *configs, size_t *count,
                          kjit_error *error) {
  const struct variant_gradient_shape *s = t->shape;
  kjit_attention_problem problem = kjit_attention_problem_default();
  *count = 0;
  if (!s->arch) return KJIT_OK;
  problem.dtype = KJIT_FP16;
  problem.batch = s->batch;
  problem.heads_q = s->heads;
  problem.heads_kv = s->heads_kv;
  problem.seq_q = s->seq_q;
  problem.seq_kv = s->seq_kv;
  problem.head_dim = s->head_dim;
  problem.flags = t->one->causal ? KJIT_ATTENTION_CAUSAL : 0;
  const uint32_t wanted = KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V;
  return kjit_attention_backward_choose(&problem, t->one->tensors ? wanted | KJIT_GRADIENT_TENSORS : wanted, s->arch,
                                        configs, count, error);
}

static kjit_status backward(const struct variant_gradient_trial *t, kjit_error *error) {
  const struct extra extra = extras(t);
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  size_t config_count;
  kjit_attention_backward_args args = kjit_attention_backward_args_default();
  args.q = wide(t, Q);
  args.k = wide(t, K);
  args.v = wide(t, V);
  args.o = wide(t, O);
  args.lse = rows(t, LSE);
  args.dout = wide(t, DOUT);
  args.dlse = rows(t, DLSE);
  args.dq = wide(t, DQ);
  args.dk = wide(t, DK);
  args.dv = wide(t, DV);
  args.delta = rows(t, DELTA);
  SET_VARIANT(args, t, &extra);
  if (t->one->tensors && t->one->members) {
    args.dalibi_slopes = &extra.dslopes;
    args.dbias = &extra.dbias;
  } else if (t->one->tensors) {
    args.variant_gradients = extra.gradients;
  }
  kjit_status status = choose(t, configs, &config_count, error);
  for (int i = DSLOPE; i <= DBIAS && status == KJIT_OK; i++) { /* they are added to */
    memset(t->narrow[i], 0, t->narrow_count[i] * 4);
    status = card_write(t->card, t->narrow_memory[i].address, t->narrow[i], t->narrow_count[i] * 4, error);
  }
  if (status != KJIT_OK) return status;
  return kjit_attention_backward(t->runtime, config_count ? configs : NULL, config_count, &args, t->card->stream,
                                 error);
}

/* Read the gradients; whether they are, to the bit, those that were read before. */
static kjit_status read_gradients(struct variant_gradient_trial *t, bool *same, kjit_error *error) {
  kjit_status status = card_synchronize(t->card, t->card->stream, error);
  *same = true;
  for (int i = DQ; i <= DV && status == KJIT_OK; i++) {
    const size_t bytes = t->wide_count[i] * 2;
    uint16_t *before = malloc(bytes);
    memcpy(before, t->wide[i], bytes);
    status = card_read(t->card, t->wide[i], t->wide_memory[i].address, bytes, error);
    *same = *same && !memcmp(before, t->wide[i], bytes);
    free(before);
  }
  for (int i = DSLOPE; i <= DBIAS && status == KJIT_OK; i++)
    status = card_read(t->card, t->narrow[i], t->narrow_memory[i].address, t->narrow_count[i] * 4, error);
  return status;
}

kjit_status variant_gradients_run(const struct card *card, kjit_runtime *runtime,
                                  const struct variant_gradient_case *one, const struct variant_gradient_shape *shape,
                                  struct variant_gradient_report *report, kjit_error *error) {
  struct variant_gradient_trial t = {.card = card, .runtime = runtime, .one = one, .shape = shape, .random = {11}};
  *report = (struct variant_gradient_report){0};
  kjit_status status = create(&t, error);
  if (status == KJIT_OK) status = make_variant(&t, error);
  if (status == KJIT_OK) status = forward(&t, error);
  for (int i = 0; i < 2 && status == KJIT_OK; i++) {
    status = backward(&t, error);
    if (status == KJIT_OK) status = read_gradients(&t, &report->same_bits, error);
  }
  if (status == KJIT_OK) variant_gradients_judge(&t, report);
  report->passed = report->passed && report->same_bits;
  destroy(&t);
  return status;
}
