// Where a sequence's rows and keys lie, and which keys a row sees. Everything is read on the device.
//
//   rows    used_q[b], else cu_q[b + 1] - cu_q[b], else rows_q
//   keys    used_k[b], else cu_k[b + 1] - cu_k[b], else the cache's positions; plus the appended, less leftpad[b]
//
// A negative length counts as 0, as do a negative leftpad and the length of a sequence whose offset is negative.
// Lengths beyond what the tensors hold are cut, so that no address lies outside of them. Row i stands at position
// i + keys - rows among the keys (aligned bottom right) and sees those from `low` on and below `high` (struct Seen), as
// window_left, window_right and chunk have it; causal is window_right = 0.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/params.h"

using namespace kjit;

struct Sequence {
  int rows, keys;
  int first_row;  // of q and o: rows before the sequence's, where the rows of all follow one another
  int cache_row;  // row of the cache, or of the page table
  int first_slot; // position in the cache (or among all keys) of key 0
};

KJIT_DEVICE int at_least_0(int value) {
  return value < 0 ? 0 : value;
}

KJIT_DEVICE int smaller(int a, int b) {
  return a < b ? a : b;
}

// Positions of one row of the cache, or of one sequence's part of the keys of all.
KJIT_DEVICE int cache_capacity(const attention_serving_params &p, int first_of_all) {
  return p.page_size ? p.max_pages * p.page_size : p.rows_k - first_of_all;
}

// Keys of sequence b that the cache holds before anything is appended. A negative length is returned as it is.
KJIT_DEVICE int cached_keys(const attention_serving_params &p, int b) {
  if (p.used_k) return p.used_k[b];
  if (p.cu_k) return p.cu_k[b + 1] - p.cu_k[b];
  return cache_capacity(p, 0);
}

KJIT_DEVICE int new_keys(const attention_serving_params &p, int b) {
  if (!p.k_new) return 0;
  return p.cu_new ? at_least_0(p.cu_new[b + 1] - p.cu_new[b]) : p.rows_new;
}

// Has each sequence the same number of query rows, its own row of the cache or of the page table, and a length of its
// own? Then usual_sequence() gives what sequence_of() does, in a few instructions.
KJIT_DEVICE bool is_usual(const attention_serving_params &p) {
  return p.used_k && !p.cu_q && !p.used_q && !p.cu_k && !p.cu_new && !p.leftpad && !p.cache_index && !p.least_rows &&
         !p.most_rows && (p.page_size || p.batch <= p.cache_rows);
}

KJIT_DEVICE Sequence usual_sequence(const attention_serving_params &p, int b) {
  const int added = p.k_new ? p.rows_new : 0;
  const int keys = smaller(p.used_k[b], cache_capacity(p, 0) - added) + added;
  return {p.rows_q, at_least_0(keys), 0, b, 0};
}

KJIT_DEVICE Sequence sequence_of(const attention_serving_params &p, int b) {
  Sequence s;
  s.first_row = p.cu_q ? p.cu_q[b] : 0;
  const int wanted = p.used_q ? p.used_q[b] : p.cu_q ? p.cu_q[b + 1] - s.first_row : p.rows_q;
  s.rows = s.first_row < 0 ? 0 : at_least_0(smaller(wanted, p.rows_q - s.first_row));
  if (s.rows < p.least_rows || (p.most_rows && s.rows > p.most_rows)) s.rows = 0; // another launch computes them
  s.cache_row = p.cache_index ? p.cache_index[b] : b;
  const int pad = p.leftpad ? at_least_0(p.leftpad[b]) : 0;
  const int first_of_all = p.cu_k && !p.page_size ? p.cu_k[b] : 0;
  s.first_slot = first_of_all + pad;
  // The caller may have given any number, so it is cut before anything is added to it.
  const int cached = cached_keys(p, b), added = new_keys(p, b), capacity = cache_capacity(p, first_of_all);
  const int keys = cached > capacity - added ? capacity : cached + added;
  s.keys = at_least_0(at_least_0(keys) - pad);
  // A row that the cache does not have holds no keys: nothing outside of it is read.
  if (first_of_all < 0) s.keys = 0;
  if (!p.page_size && !p.cu_k && (unsigned)s.cache_row >= (unsigned)p.cache_rows) s.keys = 0;
  return s;
}

// The keys [low, high) that a row sees; none when low >= high.
struct Seen {
  int low, high;
};

KJIT_DEVICE Seen seen_by(const attention_serving_params &p, const Sequence &s, int row) {
  const int at = row + s.keys - s.rows;
  Seen seen = {0, s.keys};
  if (p.window_right >= 0) seen.high = smaller(seen.high, at + p.window_right + 1);
  if (p.window_left >= 0) seen.low = at_least_0(at - p.window_left);
  if (p.chunk) {
    const int begin = at < 0 ? -p.chunk : at - at % p.chunk; // a row in front of all keys is in no chunk that has keys
    seen.low = seen.low > begin ? seen.low : begin;
    seen.high = smaller(seen.high, begin + p.chunk);
  }
  return seen;
}
