/* The masks that people write, each with a condition in C that says the same. */
#ifndef KJIT_TESTS_VARIANT_MASKS_H
#define KJIT_TESTS_VARIANT_MASKS_H

#include "variant_fixture.h"

#include <stdbool.h>
#include <stdlib.h>

static inline int floor_div(int a, int b) {
  return a / b - (a % b < 0);
}

static inline int clamped(int x, int least, int most) {
  return x < least ? least : x > most ? most : x;
}

static inline bool is_close(int q, int k, int width, int reach) {
  return abs(clamped(q / width, reach, 9 - reach) - k / width) <= reach &&
         abs(clamped(q % width, reach, width - 1 - reach) - k % width) <= reach;
}

static inline bool is_selected(int q, int k) {
  for (int t = 0; t < 4; t++)
    if (data.sel[clamped(q / 20, 0, 7)][t] == k / 16) return true;
  return false;
}

/* Interleaves the low four bits of x and y. */
static inline int morton_row(int i) {
  return (i & 1) | (i >> 1 & 2) | (i >> 2 & 4) | (i >> 3 & 8);
}

/* Of a video of 4 by 2 by 2 tiles of eight tokens, with words behind its 128 tokens: is the tile of k one of the three
 * around that of q in time, moved inwards at both ends, and of the same row and column? */
static inline bool is_in_tiles(int q, int k) {
  if (q >= 128 || k >= 128) return true;
  const int time = clamped(q / 32, 1, 2) - k / 32;
  return abs(time) <= 1 && q / 16 % 2 == k / 16 % 2 && q / 8 % 2 == k / 8 % 2;
}

#define DOC(i) ((int)data.doc[clamped(i, 0, SEQ - 1)])

/* name, text, intervals (0: the mask is judged), the condition of (b, q, k), 1 where every block is to be found */
#define VARIANT_MASKS(X)                                                                                               \
  X(causal, "q >= k", 1, q >= k, 1)                                                                                    \
  X(causal_offset, "q + OFF >= k", 1, q + 13 >= k, 1)                                                                  \
  X(bottom_right, "k <= q + seq_kv - seq_q", 1, k <= q, 1)                                                             \
  X(window, "q - k <= W and q >= k", 1, q - k <= 20 && q >= k, 1)                                                      \
  X(window_transformers, "k > q - W and k <= q", 1, k > q - 20 && k <= q, 1)                                           \
  X(window_two_sided, "abs(q - k) <= W", 1, abs(q - k) <= 20, 1)                                                       \
  X(window_left_right, "q + OFF - 5 <= k and k <= q + OFF + 9", 1, q + 8 <= k && k <= q + 22, 1)                       \
  X(dilated, "abs(q - k) <= W and abs(q - k) % 4 == 0", 0, abs(q - k) <= 20 && abs(q - k) % 4 == 0, 1)                 \
  X(mini_causal, "q % 16 >= k % 16", 0, q % 16 >= k % 16, 1)                                                           \
  X(longformer, "abs(q - k) <= W or g[q] or g[k]", 0, abs(q - k) <= 20 || data.g[q] || data.g[k], 1)                   \
  X(streaming, "(q - k <= W and q >= k) or k < 4", 2, (q - k <= 20 && q >= k) || k < 4, 1)                             \
  X(prefix, "k < P or q >= k", 2, k < 30 || q >= k, 1)                                                                 \
  X(prefix_both, "(q < P and k < P) or q >= k", 2, (q < 30 && k < 30) || q >= k, 0)                                    \
  X(prefix_by_batch, "k < len[b] or q >= k", 2, k < data.len[b] || q >= k, 1)                                          \
  X(document, "doc[q] == doc[k]", 0, DOC(q) == DOC(k), 1)                                                              \
  X(document_causal, "doc[q] == doc[k] and q - off[doc[q]] >= k - off[doc[k]]", 0,                                     \
    DOC(q) == DOC(k) && q - data.off[DOC(q)] >= k - data.off[DOC(k)], 0)                                               \
  X(packed_causal, "k >= off[doc[q]] and q >= k", 1, k >= data.off[DOC(q)] && q >= k, 1)                               \
  X(shared_prefix,                                                                                                     \
    "let d = doc[q]; let p = pre[d]; (k >= off[d] and q >= k) or (d != p and off[p] <= k and k < off[p + 1])", 2,      \
    (k >= data.off[DOC(q)] && q >= k) ||                                                                               \
        (DOC(q) != data.pre[DOC(q)] && data.off[data.pre[DOC(q)]] <= k && k < data.off[data.pre[DOC(q)] + 1]),         \
    0)                                                                                                                 \
  X(block_causal, "q // 16 >= k // 16", 1, q / 16 >= k / 16, 1)                                                        \
  X(block_diagonal, "q // 24 == k // 24", 1, q / 24 == k / 24, 1)                                                      \
  X(batchified, "q // 32 == k // 32 and q % 32 >= k % 32", 0, q / 32 == k / 32 && q % 32 >= k % 32, 0)                 \
  X(chunked, "(k - OFF) // 32 == (q - OFF) // 32 and k <= q", 1,                                                       \
    floor_div(k - 13, 32) == floor_div(q - 13, 32) && k <= q, 1)                                                       \
  X(block_diffusion,                                                                                                   \
    "let n = seq_q // 2; let bq = q % n // 16; let bk = k % n // 16; (bq == bk and (q < n) == (k < n)) or "            \
    "(bq > bk and k >= n and q < n) or (bq >= bk and k >= n and q >= n)",                                              \
    0,                                                                                                                 \
    (q % 80 / 16 == k % 80 / 16 && (q < 80) == (k < 80)) || (q % 80 / 16 > k % 80 / 16 && k >= 80 && q < 80) ||        \
        (q % 80 / 16 >= k % 80 / 16 && k >= 80 && q >= 80),                                                            \
    0)                                                                                                                 \
  X(padding, "pad[b, k]", 0, data.pad[b][k], 1)                                                                        \
  X(lengths, "k < len[b] and q >= k", 1, k < data.len[b] && q >= k, 1)                                                 \
  X(images, "q >= k or (img[q] == img[k] and img[q] >= 0)", 0, q >= k || data.img[q] == data.img[k], 0)                \
  X(remapped, "pos[q] >= pos[k]", 0, data.pos[q] >= data.pos[k], 1)                                                    \
  X(flamingo, "iv[img[k]][0] <= q and q < iv[img[k]][1]", 0,                                                           \
    data.iv[data.img[k]][0] <= q && q < data.iv[data.img[k]][1], 0)                                                    \
  X(natten, "abs(clamp(q // 16, 2, 7) - k // 16) <= 2 and abs(clamp(q % 16, 2, 13) - k % 16) <= 2", 0,                 \
    is_close(q, k, 16, 2), 0)                                                                                          \
  X(sliding_tile,                                                                                                      \
    "let x = q // 8; let y = k // 8; q >= 128 or k >= 128 or (abs(clamp(x // 4, 1, 2) - y // 4) <= 1 and "             \
    "x % 4 // 2 == y % 4 // 2 and x % 2 == y % 2)",                                                                    \
    0, is_in_tiles(q, k), 1)                                                                                           \
  X(morton,                                                                                                            \
    "let x = (q & 1) | (q >> 1 & 2) | (q >> 2 & 4) | (q >> 3 & 8); "                                                   \
    "let y = (k & 1) | (k >> 1 & 2) | (k >> 2 & 4) | (k >> 3 & 8); abs(x - y) <= 2",                                   \
    0, abs(morton_row(q) - morton_row(k)) <= 2, 0)                                                                     \
  X(svg_temporal, "k < 8 or q < 8 or abs((q - 8) % 19 - (k - 8) % 19) < 3", 0,                                         \
    k < 8 || q < 8 || abs((q - 8) % 19 - (k - 8) % 19) < 3, 0)                                                         \
  X(tree, "k < P or (P <= k and k < P + 16 and anc[q, clamp(k - P, 0, 15)])", 0,                                       \
    k < 30 || (k < 46 && data.anc[clamped(q, 0, 15)][clamped(k - 30, 0, 15)]), 0)                                      \
  X(draft, "k < P or (q // 8 == k // 8 and k % 8 <= q % 8)", 0, k < 30 || (q / 8 == k / 8 && k % 8 <= q % 8), 0)       \
  X(top_k, "any(n, 4, sel[q // 20, n] == k // 16)", 4, is_selected(q, k), 0)                                           \
  X(everything_but, "not (q - k <= W and q >= k)", 2, !(q - k <= 20 && q >= k), 1)                                     \
  X(chosen, "h == 1 ? q >= k : abs(q - k) <= W", 2, abs(q - k) <= 20, 1)                                               \
  X(nobody, "k < 0", 1, false, 1)                                                                                      \
  X(extremes, "min(q, k) >= 10 and max(k - 50, 3) < q", 1, q >= 10 && k >= 10 && (k - 50 > 3 ? k - 50 : 3) < q, 1)     \
  X(shifted, "k >> 4 <= q >> 4 and -k <= 0 - OFF", 1, k / 16 <= q / 16 && k >= 13, 1)                                  \
  X(real_numbers, "t[q] * 2 + 0.5 >= t[k]", 0, data.t[q] * 2 + 0.5f >= data.t[k], 0)                                   \
  X(half_precision, "half[k] < half[q]", 0, data.half[k] < data.half[q], 1)

#endif
