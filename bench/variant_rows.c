/* The rows of variant_times, and what their masks see. Pure. */
#include "variant_rows.h"

#include <kjit/kjit.h>
#include <math.h>
#include <stdlib.h>

#include "support/half.h"

enum { BLOCK = 128 };

const struct variant_row variant_rows[VARIANT_ROWS] = {
    {.name = "causal", .kind = VARIANT_CAUSAL, .causal = true},
    {.name = "full", .kind = VARIANT_FULL},
    {.name = "causal as mask", .mask = "q >= k", .kind = VARIANT_CAUSAL},
    {.name = "window", .mask = "q - k < 1024 and q >= k", .kind = VARIANT_WINDOWED},
    {.name = "prefix", .mask = "k < seq_kv // 4 or q >= k", .kind = VARIANT_PREFIX},
    {.name = "documents", .mask = "k >= start[doc[q]] and q >= k", .kind = VARIANT_DOCUMENT, .by_start = true},
    {.name = "documents by lists", .mask = "doc[q] == doc[k]", .kind = VARIANT_DOCUMENT},
    {.name = "chunk", .kind = VARIANT_CHUNK, .causal = true, .chunked = true},
    {.name = "alibi", .kind = VARIANT_CAUSAL, .causal = true, .slopes = true},
    {.name = "softcap", .kind = VARIANT_CAUSAL, .causal = true, .softcap = 30},
    {.name = "softcap of 1", .kind = VARIANT_CAUSAL, .causal = true, .softcap = 1},
    {.name = "bias", .kind = VARIANT_CAUSAL, .causal = true, .bias = true},
};

/* The keys first to end - 1 that query q sees. */
static void seen(const struct variant_row *row, int64_t length, int64_t q, int64_t *first, int64_t *end) {
  const int64_t doc = q * VARIANT_DOCUMENTS / length;
  *first = 0;
  *end = q + 1;
  if (row->kind == VARIANT_FULL) *end = length;
  if (row->kind == VARIANT_WINDOWED) *first = q < VARIANT_WINDOW ? 0 : q - VARIANT_WINDOW + 1;
  if (row->kind == VARIANT_PREFIX && *end < length / 4) *end = length / 4;
  if (row->kind == VARIANT_CHUNK) *first = q / VARIANT_WINDOW * VARIANT_WINDOW;
  if (row->kind != VARIANT_DOCUMENT) return;
  *first = (doc * length + VARIANT_DOCUMENTS - 1) / VARIANT_DOCUMENTS;
  if (!row->by_start) *end = ((doc + 1) * length + VARIANT_DOCUMENTS - 1) / VARIANT_DOCUMENTS;
}

kjit_attention_variant_text variant_row_text(const struct variant_row *row) {
  static const kjit_variant_tensor named[] = {{"doc", KJIT_INT32, 1}, {"start", KJIT_INT32, 1}};
  const uint32_t count = row->kind != VARIANT_DOCUMENT ? 0 : row->by_start ? 2 : 1;
  const kjit_attention_variant_text text = {
      .struct_size = sizeof text, .mask = row->mask, .tensors = named, .tensor_count = count};
  return text;
}

void variant_row_pairs(const struct variant_row *row, int64_t length, double *attended, double *visited) {
  *attended = *visited = 0;
  for (int64_t block = 0; block < length; block += BLOCK) {
    int64_t least = length, most = 0;
    for (int64_t q = block; q < block + BLOCK; q++) {
      int64_t first, end;
      seen(row, length, q, &first, &end);
      *attended += (double)(end - first);
      least = first < least ? first : least;
      most = end > most ? end : most;
    }
    const int64_t blocks = (most + BLOCK - 1) / BLOCK - least / BLOCK;
    *visited += (double)(blocks * BLOCK * BLOCK);
  }
}

float variant_difference(const uint16_t *a, const uint16_t *b, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; i++) {
    const float difference = fabsf(half_to_float(KJIT_BF16, a[i]) - half_to_float(KJIT_BF16, b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

bool variant_read_numbers(const char *text, int count, int *out) {
  for (int i = 0; i < count; i++) {
    char *behind;
    out[i] = (int)strtol(text, &behind, 10);
    if (behind == text || *behind != (i < count - 1 ? '/' : '\0')) return false;
    text = behind + 1;
  }
  return true;
}
