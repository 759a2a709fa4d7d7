/* The variants that are tried, each as a text for the library and as C functions for the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "variant_trial.h"

#define SCORE(name) static double name(const struct variant_world *w, double s, struct variant_place_of at)
#define MASK(name)  static bool name(const struct variant_world *w, struct variant_place_of at)

MASK(window) {
  return at.q - at.k <= w->window && at.q >= at.k;
}
MASK(two_sided) {
  return abs(at.q - at.k) <= w->window;
}
MASK(prefix) {
  return at.k < w->prefix || at.q >= at.k;
}
MASK(streaming) {
  return (at.q - at.k <= w->window && at.q >= at.k) || at.k < 4;
}
MASK(wide_window) {
  return abs(at.q + w->seq_kv - w->seq_q - at.k) <= 4 * w->window;
}
MASK(document) {
  return w->doc[at.b * w->keys + at.q] == w->doc[at.b * w->keys + at.k];
}
MASK(rows_in_turn) {
  return at.q / 64 % 2 == 1 || document(w, at);
}
MASK(first_rows) {
  return at.q < 64 || document(w, at);
}
MASK(causal_document) {
  return document(w, at) && at.q >= at.k;
}
MASK(dilated) {
  return abs(at.q - at.k) <= w->window && abs(at.q - at.k) % 3 == 0;
}
MASK(global_window) {
  return abs(at.q - at.k) <= w->window || w->flag[at.q] || w->flag[at.k];
}
MASK(length) {
  return at.k < w->length[at.b];
}
MASK(chunked) {
  (void)w;
  return at.k / 64 == at.q / 64 && at.k <= at.q;
}
/* Sliding tile attention of a video of 4 by 2 by 2 tiles of eight tokens: three tiles in time, words behind it. */
MASK(sliding_tile) {
  (void)w;
  const int center = at.q / 32 < 1 ? 1 : at.q / 32 > 2 ? 2 : at.q / 32;
  return at.q >= 128 || at.k >= 128 ||
         (abs(center - at.k / 32) <= 1 && at.q / 16 % 2 == at.k / 16 % 2 && at.q / 8 % 2 == at.k / 8 % 2);
}
MASK(nothing) {
  (void)w, (void)at;
  return false;
}
MASK(every_other_row) {
  (void)w;
  return at.q % 2 == 0 && at.k <= at.q;
}
MASK(by_head) {
  (void)w;
  return at.k <= at.q && at.q - at.k < 16 * (at.h + 1);
}
SCORE(softcap) {
  (void)at;
  return (double)w->cap * tanh(s / (double)w->cap);
}
/* A score in ten is beyond the cap, and few are beyond twice that. */
SCORE(softcap_low) {
  const double cap = (double)w->cap / 3;
  (void)at;
  return cap * tanh(s / cap);
}
SCORE(alibi) {
  return s + (double)w->slope[at.h] * (at.k - at.q);
}
SCORE(distance) {
  return s - (double)w->slope[at.h] * abs(at.q + w->seq_kv - w->seq_q - at.k);
}
SCORE(key_bias) {
  return s + (double)w->table[at.k];
}
SCORE(bias) {
  return s + (double)w->bias[((size_t)at.h * (size_t)w->seq_q + (size_t)at.q) * (size_t)w->seq_kv + (size_t)at.k];
}
SCORE(bias_of_two) {
  const size_t row = (size_t)(at.h / 2 * 2) * (size_t)w->seq_q + (size_t)at.q;
  return s + (double)w->bias[row * (size_t)w->seq_kv + (size_t)at.k];
}
SCORE(relative) {
  (void)w;
  return s + 0.125 * (at.q - at.k);
}
SCORE(square) {
  (void)w, (void)at;
  return s * s;
}
SCORE(pattern) {
  (void)w;
  return abs(at.q - at.k) <= 8 ? 2 * s : s;
}

static void set_window(kjit_attention_args *args, const struct variant_world *w, kjit_tensor tensors[2]) {
  (void)tensors;
  args->flags |= KJIT_ATTENTION_WINDOW;
  args->window_left = w->window;
  args->window_right = 3;
}
MASK(plain_window) {
  const int i = at.q + w->seq_kv - w->seq_q;
  return at.k >= i - w->window && at.k <= i + 3;
}
static void set_softcap_alibi(kjit_attention_args *args, const struct variant_world *w, kjit_tensor tensors[2]) {
  args->softcap = w->cap;
  args->alibi_slopes = &tensors[0];
}
SCORE(plain_softcap_alibi) {
  return distance(w, softcap(w, s, at), at);
}
static void set_chunk(kjit_attention_args *args, const struct variant_world *w, kjit_tensor tensors[2]) {
  (void)w, (void)tensors;
  args->attention_chunk = 64;
}
MASK(plain_chunk) {
  return at.k / 64 == (at.q + w->seq_kv - w->seq_q) / 64;
}
static void set_bias(kjit_attention_args *args, const struct variant_world *w, kjit_tensor tensors[2]) {
  (void)w;
  args->bias = &tensors[1];
}

const struct variant_case variant_cases[] = {
    {.name = "window", .mask = "q - k <= window && q >= k", .mask_at = window},
    {.name = "two_sided", .mask = "abs(q - k) <= window", .mask_at = two_sided},
    {.name = "prefix", .mask = "k < prefix || q >= k", .mask_at = prefix},
    {.name = "streaming", .mask = "(q - k <= window && q >= k) || k < 4", .mask_at = streaming},
    {.name = "document", .mask = "doc[b, q] == doc[b, k]", .mask_at = document},
    {.name = "rows_in_turn", .mask = "q // 64 % 2 == 1 || doc[b, q] == doc[b, k]", .mask_at = rows_in_turn},
    {.name = "kept_first_rows", .mask = "q < 64 || doc[b, q] == doc[b, k]", .mask_at = first_rows, .keeps = true},
    {.name = "kept_document", .mask = "doc[b, q] == doc[b, k]", .mask_at = document, .keeps = true},
    {.name = "kept_dilated", .mask = "abs(q - k) <= window && abs(q - k) % 3 == 0", .mask_at = dilated, .keeps = true},
    {.name = "causal_document", .mask = "doc[b, q] == doc[b, k] && q >= k", .mask_at = causal_document},
    {.name = "rows_in_turn_causal",
     .mask = "q // 64 % 2 == 1 || doc[b, q] == doc[b, k]",
     .mask_at = rows_in_turn,
     .causal = true},
    {.name = "dilated", .mask = "abs(q - k) <= window && abs(q - k) % 3 == 0", .mask_at = dilated},
    {.name = "global_window", .mask = "abs(q - k) <= window || flag[q] || flag[k]", .mask_at = global_window},
    {.name = "length", .mask = "k < length[b]", .mask_at = length},
    {.name = "chunked", .mask = "k // 64 == q // 64 && k <= q", .mask_at = chunked},
    {.name = "sliding_tile",
     .mask = "let x = q // 8; let y = k // 8; q >= 128 || k >= 128 || (abs(clamp(x // 4, 1, 2) - y // 4) <= 1 && "
             "x % 4 // 2 == y % 4 // 2 && x % 2 == y % 2)",
     .mask_at = sliding_tile},
    {.name = "nothing", .mask = "k < 0 - q - 1", .mask_at = nothing},
    {.name = "every_other_row", .mask = "q % 2 == 0 && k <= q", .mask_at = every_other_row},
    {.name = "by_head", .mask = "k <= q && q - k < 16 * (h + 1)", .mask_at = by_head},
    {.name = "softcap", .score = "cap * tanh(score / cap)", .score_at = softcap, .tolerance = 3, .lse_tolerance = 0.02},
    {.name = "softcap_causal",
     .score = "cap * tanh(score / cap)",
     .score_at = softcap,
     .causal = true,
     .tolerance = 3,
     .lse_tolerance = 0.02},
    {.name = "softcap_low",
     .score = "let low = cap / 3; low * tanh(score / low)",
     .score_at = softcap_low,
     .tolerance = 3,
     .lse_tolerance = 0.02},
    {.name = "alibi", .score = "score + slope[h] * float(k - q)", .score_at = alibi, .causal = true},
    {.name = "distance", .score = "score - slope[h] * float(abs(q + seq_kv - seq_q - k))", .score_at = distance},
    {.name = "distance_window",
     .score = "score - slope[h] * float(abs(q + seq_kv - seq_q - k))",
     .mask = "abs(q + seq_kv - seq_q - k) <= 4 * window",
     .score_at = distance,
     .mask_at = wide_window},
    {.name = "key_bias", .score = "score + table[k]", .score_at = key_bias},
    {.name = "bias", .score = "score + bias[0, h, q, k]", .score_at = bias},
    {.name = "pairs", .score = "score + level[0, h, q, k]", .score_at = bias},
    {.name = "pairs_causal", .score = "score + level[0, h, q, k]", .score_at = bias, .causal = true},
    {.name = "pairs_streaming", /* the walk leaves key blocks out */
     .score = "score + level[0, h, q, k]",
     .mask = "(q - k <= window && q >= k) || k < 4",
     .score_at = bias,
     .mask_at = streaming},
    /* Queries that a tensor map cannot tell to follow each other. */
    {.name = "pairs_clamped", .score = "score + level[0, h, min(q, seq_q - 1), k]", .score_at = bias},
    {.name = "clamped_streaming",
     .score = "score + level[0, h, min(q, seq_q - 1), k]",
     .mask = "(q - k <= window && q >= k) || k < 4",
     .score_at = bias,
     .mask_at = streaming},
    {.name = "pairs_document", /* blocks come from lists */
     .score = "score + level[0, h, q, k]",
     .mask = "doc[b, q] == doc[b, k]",
     .score_at = bias,
     .mask_at = document},
    {.name = "pairs_of_two_heads", .score = "score + level[0, h // 2 * 2, q, k]", .score_at = bias_of_two},
    {.name = "relative", .score = "score + 0.125 * float(q - k)", .score_at = relative},
    {.name = "square", .score = "score * score", .score_at = square},
    {.name = "pattern", .score = "where(abs(q - k) <= 8, 2.0 * score, score)", .score_at = pattern},
    {.name = "alibi_document",
     .score = "score + slope[h] * float(k - q)",
     .mask = "doc[b, q] == doc[b, k] && q >= k",
     .score_at = alibi,
     .mask_at = causal_document},
    {.name = "sinks", .causal = true, .sinks = true},
    {.name = "window_sinks", .mask = "q - k <= window && q >= k", .mask_at = window, .sinks = true},
    {.name = "softcap_sinks",
     .score = "cap * tanh(score / cap)",
     .score_at = softcap,
     .sinks = true,
     .tolerance = 3,
     .lse_tolerance = 0.02},
    {.name = "plain_window", .set = set_window, .mask_at = plain_window},
    {.name = "plain_window_causal", .set = set_window, .mask_at = plain_window, .causal = true},
    {.name = "plain_softcap_alibi",
     .set = set_softcap_alibi,
     .score_at = plain_softcap_alibi,
     .tolerance = 3,
     .lse_tolerance = 0.02},
    {.name = "plain_softcap_alibi_causal",
     .set = set_softcap_alibi,
     .score_at = plain_softcap_alibi,
     .causal = true,
     .tolerance = 3,
     .lse_tolerance = 0.02},
    {.name = "plain_chunk", .set = set_chunk, .mask_at = plain_chunk},
    {.name = "plain_bias", .set = set_bias, .score_at = bias},
    {.name = "blocks", .block = 64},
    {.name = "kept_blocks", .block = 64, .keeps = true},
    {.name = "blocks_48", .block = 48, .mask = "q >= k || k < prefix", .mask_at = prefix},
    {.name = "blocks_document", .block = 128, .mask = "doc[b, q] == doc[b, k]", .mask_at = document},
};
const size_t variant_case_count = sizeof variant_cases / sizeof *variant_cases;

const struct variant_case *variant_case_named(const char *name) {
  for (size_t i = 0; i < variant_case_count; i++) {
    if (!strcmp(variant_cases[i].name, name)) return &variant_cases[i];
  }
  return NULL;
}
