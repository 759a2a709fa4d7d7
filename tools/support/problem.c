/* An attention problem as tests and commands describe it: reading and printing it, its limits, its cost and error
 * bounds, and where the tensors of each layout lie in memory.
 *
 * A layout is expressed by strides alone: problem_place() gives for each tensor the allocation that it lies in, its
 * first element, its shape and its strides. Everything is a pure function of the problem; any thread may call. */
#include "support/problem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/card.h"

#define LARGEST_AXIS (INT64_C(1) << 24)

static const char *const layout_words[] = {
#define PROBLEM_LAYOUT_WORD(name, word, text) word,
    PROBLEM_LAYOUTS(PROBLEM_LAYOUT_WORD)
#undef PROBLEM_LAYOUT_WORD
};

const char *problem_layout_word(enum problem_layout layout) {
  return layout_words[layout];
}

bool problem_is_causal(const struct trial_problem *p) {
  return (p->asked.flags & KJIT_ATTENTION_CAUSAL) != 0;
}

void problem_set_causal(struct trial_problem *p, bool causal) {
  p->asked.flags = (p->asked.flags & ~(uint32_t)KJIT_ATTENTION_CAUSAL) | (causal ? KJIT_ATTENTION_CAUSAL : 0);
}

int64_t problem_heads_kv(const struct trial_problem *p) {
  return p->asked.heads_kv ? p->asked.heads_kv : p->asked.heads_q;
}

int64_t problem_head_dim_v(const struct trial_problem *p) {
  return p->asked.head_dim_v ? p->asked.head_dim_v : p->asked.head_dim;
}

void problem_print(const struct trial_problem *p, char text[PROBLEM_TEXT_MAX]) {
  char scale[32] = "default";
  if (p->scale > 0) snprintf(scale, sizeof scale, "%.9g", p->scale);
  snprintf(text, PROBLEM_TEXT_MAX,
           "%s B%" PRId64 " H%" PRId64 "/%" PRId64 " Sq%" PRId64 " Skv%" PRId64 " D%" PRId64 "/%" PRId64
           "%s %s scale=%s%s seed=0x%" PRIx64,
           p->asked.dtype == KJIT_BF16 ? "bf16" : "fp16", p->asked.batch, p->asked.heads_q, problem_heads_kv(p),
           p->asked.seq_q, p->asked.seq_kv, p->asked.head_dim, problem_head_dim_v(p),
           problem_is_causal(p) ? " causal" : "", problem_layout_word(p->layout), scale, p->lse ? " lse" : "", p->seed);
}

/* Read one number of a list, and move *text behind it and its comma. */
static bool read_axis(const char **text, int64_t *out) {
  if (**text < '0' || **text > '9') return false; /* strtoll would take blanks and signs */
  char *end;
  errno = 0;
  *out = strtoll(*text, &end, 10);
  if (errno || *out < 1 || *out > LARGEST_AXIS || (*end && *end != ',')) return false;
  *text = *end == ',' ? end + 1 : end;
  return *end != ',' || **text; /* a comma has a number behind it */
}

kjit_status problem_parse_shape(const char *text, struct trial_problem *p, kjit_error *error) {
  int64_t *const axes[] = {&p->asked.batch, &p->asked.seq_q, &p->asked.heads_q, &p->asked.head_dim, &p->asked.seq_kv};
  static const char *const names[] = {"batch", "sequence length", "number of heads", "head size",
                                      "key sequence length"};
  const char *rest = text;
  for (size_t i = 0; i < 5; i++) {
    if (i == 4 && !*rest) {
      p->asked.seq_kv = p->asked.seq_q;
      return KJIT_OK;
    }
    if (!read_axis(&rest, axes[i]))
      return card_fail(error, KJIT_ERR_PARSE,
                       "shape '%s': the %s (number %zu of B,S,H,D[,SKV]) is not a whole number "
                       "from 1 to %" PRId64,
                       text, names[i], i + 1, LARGEST_AXIS);
  }
  if (*rest) return card_fail(error, KJIT_ERR_PARSE, "shape '%s': more than B,S,H,D,SKV", text);
  return KJIT_OK;
}

kjit_status problem_parse_dtype(const char *text, struct trial_problem *p, kjit_error *error) {
  if (strcmp(text, "fp16") == 0)
    p->asked.dtype = KJIT_FP16;
  else if (strcmp(text, "bf16") == 0)
    p->asked.dtype = KJIT_BF16;
  else
    return card_fail(error, KJIT_ERR_PARSE, "dtype '%s': fp16 or bf16", text);
  return KJIT_OK;
}

kjit_status problem_parse_layout(const char *text, struct trial_problem *p, kjit_error *error) {
  for (int i = 0; i < LAYOUT_COUNT; i++)
    if (strcmp(text, layout_words[i]) == 0) {
      p->layout = (enum problem_layout)i;
      return KJIT_OK;
    }
  return card_fail(error, KJIT_ERR_PARSE, "layout '%s': bshd, bhsd, padded, packed or shared_kv", text);
}

kjit_status problem_check(const struct trial_problem *p, kjit_error *error) {
  const int64_t heads_kv = problem_heads_kv(p), head_dim_v = problem_head_dim_v(p);
  const int64_t axes[] = {p->asked.batch,    p->asked.heads_q, p->asked.seq_q, p->asked.seq_kv,
                          p->asked.head_dim, heads_kv,         head_dim_v};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
    if (axes[i] < 1 || axes[i] > LARGEST_AXIS)
      return card_fail(error, KJIT_ERR_INVALID_ARG, "shape: each axis is from 1 to %" PRId64, LARGEST_AXIS);
  if (p->asked.heads_q % heads_kv != 0)
    return card_fail(error, KJIT_ERR_INVALID_ARG, "key heads: their number must divide that of the query heads");
  if (p->asked.head_dim > 256 || head_dim_v > 256)
    return card_fail(error, KJIT_ERR_INVALID_ARG, "head size: at most 256 can be checked");
  const double rows_q = (double)p->asked.heads_q * (double)p->asked.seq_q,
               rows_kv = (double)heads_kv * (double)p->asked.seq_kv;
  const double columns = (double)(p->asked.head_dim + head_dim_v);
  if ((double)p->asked.batch * (rows_q > rows_kv ? rows_q : rows_kv) * columns >= 0x1p32)
    return card_fail(error, KJIT_ERR_INVALID_ARG, "shape: a tensor of 2^32 elements or more cannot be checked");
  if (p->layout == LAYOUT_PACKED && p->asked.seq_q != p->asked.seq_kv)
    return card_fail(error, KJIT_ERR_INVALID_ARG, "layout packed: the sequence lengths must be equal");
  if (!(p->scale >= 0) || isinf(p->scale))
    return card_fail(error, KJIT_ERR_INVALID_ARG, "scale: a finite number above 0, or 0 for the default");
  return KJIT_OK;
}

double problem_flops(const struct trial_problem *p) {
  const double seen_by_first = p->asked.seq_kv > p->asked.seq_q ? (double)(p->asked.seq_kv - p->asked.seq_q) : 0;
  const double keys = problem_is_causal(p) ? (seen_by_first + (double)p->asked.seq_kv) / 2 : (double)p->asked.seq_kv;
  const double columns = (double)(p->asked.head_dim + problem_head_dim_v(p));
  return 2.0 * (double)p->asked.batch * (double)p->asked.heads_q * (double)p->asked.seq_q * keys * columns;
}

double problem_scale(const struct trial_problem *p) {
  return p->scale > 0 ? p->scale : 1.0 / sqrt((double)p->asked.head_dim);
}

/*
 * lse = scale * largest + ln(sum). With u = 2^-24, fp32's rounding error:
 *  - a score is a sum of head_dim exact products, accumulated with an error of at most 2u of the running magnitude an
 *    addition (tensor cores cut off); for inputs of variance 1 the magnitudes sum to less than head_dim, so
 *    2u * head_dim * head_dim * scale bounds it;
 *  - the sum has seq_kv positive terms: relative error at most seq_kv * u from adding, and 4u each from exp2 and from
 *    the rescaling, once a block of 16 keys or more: 2u * seq_kv together bounds both;
 *  - the logarithm and the last operations: 2^-21 relative to the result, which stays below 32.
 */
double problem_lse_bound(const struct trial_problem *p) {
  const double u = 0x1p-24, d = (double)p->asked.head_dim;
  return 2 * u * d * d * problem_scale(p) + 2 * u * (double)p->asked.seq_kv + 32 * 0x1p-21;
}

static struct tensor_place contiguous(int64_t batch, int64_t seq, int64_t heads, int64_t head_dim) {
  return (struct tensor_place){.span = batch * seq * heads * head_dim,
                               .shape = {batch, seq, heads, head_dim},
                               .stride = {seq * heads * head_dim, heads * head_dim, head_dim, 1}};
}

/* Gaps of 8 elements behind each position and 24 more behind each batch entry: the least that keeps 16-byte rows. */
static void place_padded(struct tensor_place *place) {
  const int64_t row = place->shape[2] * place->shape[3] + 8;
  place->stride[0] = place->shape[1] * row + 24;
  place->stride[1] = row;
  place->span = place->shape[0] * place->stride[0];
}

static void place_heads_first(struct tensor_place *place) {
  place->stride[1] = place->shape[3];
  place->stride[2] = place->shape[1] * place->shape[3];
}

static void place_packed(struct tensor_place *place, const struct trial_problem *p, enum problem_tensor tensor) {
  const int64_t heads_kv = problem_heads_kv(p);
  const int64_t q = p->asked.heads_q * p->asked.head_dim, k = heads_kv * p->asked.head_dim,
                v = heads_kv * problem_head_dim_v(p);
  place->owner = TENSOR_Q;
  place->first = tensor == TENSOR_Q ? 0 : tensor == TENSOR_K ? q : q + k;
  place->stride[1] = q + k + v;
  place->stride[0] = p->asked.seq_q * place->stride[1];
  place->span = p->asked.batch * place->stride[0];
}

static void place_shared(struct tensor_place *place) {
  place->stride[0] = place->stride[2] = 0;
  place->stride[1] = place->shape[3];
  place->span = place->shape[1] * place->shape[3];
}

struct tensor_place problem_place(const struct trial_problem *p, enum problem_tensor tensor) {
  const bool is_kv = tensor == TENSOR_K || tensor == TENSOR_V;
  const bool is_qk = tensor == TENSOR_Q || tensor == TENSOR_K;
  struct tensor_place place =
      contiguous(p->asked.batch, is_kv ? p->asked.seq_kv : p->asked.seq_q,
                 is_kv ? problem_heads_kv(p) : p->asked.heads_q, is_qk ? p->asked.head_dim : problem_head_dim_v(p));
  place.owner = tensor;
  if (p->layout == LAYOUT_PADDED) place_padded(&place);
  if (p->layout == LAYOUT_BHSD) place_heads_first(&place);
  if (p->layout == LAYOUT_PACKED && tensor != TENSOR_O) place_packed(&place, p, tensor);
  if (p->layout == LAYOUT_SHARED_KV && is_kv) place_shared(&place);
  return place;
}
