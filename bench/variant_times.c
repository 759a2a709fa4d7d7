/* The speed of attention variants on this card, each beside causal attention of the same run.
 *
 * usage: variant_times [HEAD_DIM LENGTH]...   default: 64 and 128 at 4096 and 16384
 *
 * A row is TFLOP/s of attended pairs (4 * head_dim a pair), the median of several launches with L2 flushed in between,
 * and the share of the keys in visited blocks that are attended.
 *
 * Threads: one. */
#include <kjit/kjit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/card.h"
#include "support/half.h"
#include "support/random.h"

enum { RUNS = 15, FLUSH_BYTES = 128 << 20 };

struct bench {
  struct card card;
  kjit_runtime *runtime;
  struct card_buffer q, k, v, o, doc, slopes, flush;
  int64_t length, heads, batch, head_dim, documents;
};

struct row {
  const char *name, *score, *mask;
  int32_t window; /* 0: none */
  bool causal, uses_doc, uses_slope, uses_cap;
};

static const struct row rows[] = {
    {"causal (dense)", NULL, NULL, 0, true, 0, 0, 0},
    {"full (dense)", NULL, NULL, 0, false, 0, 0, 0},
    {"causal as mask", NULL, "q >= k", 0, false, 0, 0, 0},
    {"window 1024", NULL, "q - k < window && q >= k", 1024, false, 0, 0, 0},
    {"causal alibi", "score + slope[h] * float(k - q)", NULL, 0, true, 0, 1, 0},
    {"causal softcap", "cap * tanh(score / cap)", NULL, 0, true, 0, 0, 1},
    {"document", NULL, "doc[q] == doc[k]", 0, false, 1, 0, 0},
    {"causal document", NULL, "doc[q] == doc[k] && q >= k", 0, false, 1, 0, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static kjit_status fill(struct bench *b, struct card_buffer *out, size_t count, uint64_t seed, kjit_error *error) {
  struct random random = {seed};
  uint16_t *values = malloc(count * 2);
  if (!values) return KJIT_ERR_NO_MEMORY;
  for (size_t i = 0; i < count; i++) {
    double sum = -6;
    const uint64_t one = random_next(&random), two = random_next(&random);
    for (int part = 0; part < 6; part++)
      sum += (double)(one >> 10 * part & 1023) / 1024 + (double)(two >> 10 * part & 1023) / 1024;
    values[i] = half_from_float(KJIT_BF16, (float)sum);
  }
  kjit_status status = card_buffer_create(&b->card, out, count * 2, error);
  if (status == KJIT_OK) status = card_write(&b->card, out->address, values, count * 2, error);
  free(values);
  return status;
}

static kjit_status make(struct bench *b, kjit_error *error) {
  const size_t count = (size_t)(b->batch * b->length * b->heads * b->head_dim);
  float slopes[64];
  int32_t *doc = malloc((size_t)b->length * 4);
  b->documents = 12;
  for (int64_t i = 0; doc && i < b->length; i++)
    doc[i] = (int32_t)(i * b->documents / b->length);
  for (int64_t h = 0; h < b->heads; h++)
    slopes[h] = (float)exp2(-(double)(h + 1) * 8 / (double)b->heads);
  kjit_status status = doc ? fill(b, &b->q, count, 1, error) : KJIT_ERR_NO_MEMORY;
  if (status == KJIT_OK) status = fill(b, &b->k, count, 2, error);
  if (status == KJIT_OK) status = fill(b, &b->v, count, 3, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->o, count * 2, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->flush, FLUSH_BYTES, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->doc, (size_t)b->length * 4, error);
  if (status == KJIT_OK) status = card_write(&b->card, b->doc.address, doc, (size_t)b->length * 4, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->slopes, (size_t)b->heads * 4, error);
  if (status == KJIT_OK) status = card_write(&b->card, b->slopes.address, slopes, (size_t)b->heads * 4, error);
  free(doc);
  return status;
}

static void end(struct bench *b) {
  struct card_buffer *const all[] = {&b->q, &b->k, &b->v, &b->o, &b->doc, &b->slopes, &b->flush};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    card_buffer_destroy(&b->card, all[i]);
}

static bool sees(const struct bench *b, const struct row *row, int64_t q, int64_t k) {
  if ((row->causal || (row->mask && strstr(row->mask, "q >= k"))) && k > q) return false;
  if (row->window && q - k >= row->window) return false;
  return !row->uses_doc || q * b->documents / b->length == k * b->documents / b->length;
}

static double attended(const struct bench *b, const struct row *row) {
  double pairs = 0;
  for (int64_t q = 0; q < b->length; q += 16)
    for (int64_t k = 0; k < b->length; k += 4)
      pairs += sees(b, row, q, k);
  return pairs * 64;
}

static int compare(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static kjit_status time_plan(struct bench *b, kjit_attention_plan *plan, float *median, kjit_error *error) {
  float times[RUNS];
  kjit_status status = KJIT_OK;
  for (int i = -3; i < RUNS && status == KJIT_OK; i++) {
    float ms = 0;
    status = card_poison(&b->card, b->flush, b->card.stream, error);
    if (status == KJIT_OK) status = kjit_attention_plan_time(plan, b->card.stream, &ms, error);
    if (i >= 0) times[i] = ms;
  }
  if (status != KJIT_OK) return status;
  qsort(times, RUNS, sizeof *times, compare);
  *median = times[RUNS / 2];
  return KJIT_OK;
}

static kjit_tensor vector(struct card_buffer buffer, int32_t dtype, int64_t length) {
  return (kjit_tensor){
      .data = (void *)(uintptr_t)buffer.address, .dtype = dtype, .rank = 1, .shape = {length}, .stride = {1}};
}

static kjit_status run_row(struct bench *b, const struct row *row, float *ms, kjit_error *error) {
  static const float cap = 30;
  kjit_attention_args args = kjit_attention_args_default();
  kjit_attention_variant *variant = NULL;
  kjit_attention_plan *plan = NULL;
  const int64_t s = b->length, h = b->heads, d = b->head_dim;
  args.q = kjit_tensor_bshd((void *)(uintptr_t)b->q.address, KJIT_BF16, 0, b->batch, s, h, d);
  args.k = kjit_tensor_bshd((void *)(uintptr_t)b->k.address, KJIT_BF16, 0, b->batch, s, h, d);
  args.v = kjit_tensor_bshd((void *)(uintptr_t)b->v.address, KJIT_BF16, 0, b->batch, s, h, d);
  args.o = kjit_tensor_bshd((void *)(uintptr_t)b->o.address, KJIT_BF16, 0, b->batch, s, h, d);
  args.flags = row->causal ? KJIT_ATTENTION_CAUSAL : 0;
  kjit_variant_scalar scalar = {"cap", KJIT_VARIANT_FP32};
  kjit_variant_tensor tensor = {"slope", KJIT_FP32, 1};
  kjit_tensor view = vector(b->slopes, KJIT_FP32, h);
  int32_t value;
  memcpy(&value, &cap, 4);
  if (row->window) {
    scalar = (kjit_variant_scalar){"window", KJIT_VARIANT_INT32};
    value = row->window;
  }
  if (row->uses_doc) {
    tensor = (kjit_variant_tensor){"doc", KJIT_INT32, 1};
    view = vector(b->doc, KJIT_INT32, s);
  }
  const kjit_attention_variant_text text = {.struct_size = sizeof text,
                                            .score = row->score,
                                            .mask = row->mask,
                                            .scalars = &scalar,
                                            .scalar_count = row->window || row->uses_cap,
                                            .tensors = &tensor,
                                            .tensor_count = row->uses_doc || row->uses_slope};
  kjit_status status = KJIT_OK;
  if (row->score || row->mask) status = kjit_attention_variant_create(&variant, &text, error);
  args.variant = variant;
  args.scalar_values = &value;
  args.variant_tensors = &view;
  if (status == KJIT_OK) status = kjit_attention_plan_create(&plan, b->runtime, NULL, &args, error);
  if (status == KJIT_OK) status = time_plan(b, plan, ms, error);
  kjit_attention_plan_destroy(plan);
  kjit_attention_variant_free(variant);
  return status;
}

static void run_size(struct bench *b, int64_t head_dim, int64_t length) {
  kjit_error error = {0};
  b->head_dim = head_dim;
  b->length = length;
  b->heads = 2048 / head_dim;
  b->batch = length >= 16384 ? 1 : 16384 / length;
  if (make(b, &error) != KJIT_OK) printf("%s\n", error.message);
  for (int i = 0; i < ROWS; i++) {
    float ms = 0;
    error = (kjit_error){0};
    const kjit_status status = run_row(b, &rows[i], &ms, &error);
    const double flops = 4.0 * (double)head_dim * attended(b, &rows[i]) * (double)(b->heads * b->batch);
    if (status == KJIT_OK)
      printf("hd%-4lld %6lld  %-18s %8.3f ms %7.0f TFLOP/s\n", (long long)head_dim, (long long)length, rows[i].name,
             (double)ms, flops / (double)ms / 1e9);
    else
      printf("hd%-4lld %6lld  %-18s %.200s\n", (long long)head_dim, (long long)length, rows[i].name, error.message);
    fflush(stdout);
  }
  end(b);
}

int main(int argc, char **argv) {
  struct bench b = {.length = 0};
  kjit_error error = {0};
  if (card_open(&b.card, 0, &error) != KJIT_OK) {
    printf("skipped: %s\n", error.message);
    return 3;
  }
  if (kjit_runtime_create(&b.runtime, NULL, &error) != KJIT_OK) {
    printf("%s\n", error.message);
    return 1;
  }
  for (int i = 1; i + 1 < argc; i += 2)
    run_size(&b, strtoll(argv[i], NULL, 10), strtoll(argv[i + 1], NULL, 10));
  if (argc < 3) {
    run_size(&b, 64, 4096);
    run_size(&b, 128, 4096);
    run_size(&b, 64, 16384);
    run_size(&b, 128, 16384);
  }
  kjit_runtime_destroy(b.runtime);
  card_close(&b.card);
  return 0;
}
