// Which queries and keys meet, and which steps a block of threads therefore makes. For every family that computes
// gradients: its config.cuh, which comes first, says cfg::kCausal, and by cfg::kOwnRows and cfg::kStepRows how many
// rows a block owns and how many a step takes; `Params` is its argument struct.
//
// In full attention every query sees every key. Causal attention is aligned at the bottom right: query i sees the keys
// up to i + seq_kv - seq_q. Steps in which no pair meets are not made. A step is masked when it may hold a pair that
// does not meet, or a key behind the last.
#pragma once
#include <kjit/types.cuh>

// Steps over tiles of the other side: tiles `first` to `end - 1`. Those below `whole_first` and those from `whole_end`
// on are masked.
struct Steps {
  int first, end;
  int whole_first, whole_end;

  KJIT_DEVICE bool is_masked(int tile) const { return tile < whole_first || tile >= whole_end; }
};

// How many keys a query sees, counted from key 0; 0 or less when it sees none.
template <typename Params> KJIT_DEVICE int keys_seen(const Params &p, int query) {
  if constexpr (!cfg::kCausal) return p.seq_kv;
  const int keys = query + 1 + (p.seq_kv - p.seq_q);
  return keys < p.seq_kv ? keys : p.seq_kv;
}

// The first query that sees a key; negative when queries before the first would see it too.
template <typename Params> KJIT_DEVICE int first_query(const Params &p, int key) {
  return cfg::kCausal ? key - (p.seq_kv - p.seq_q) : 0;
}

// The tiles of keys that a tile of queries sees.
template <typename Params> KJIT_DEVICE Steps key_steps(const Params &p, int tile) {
  const int most = keys_seen(p, (tile + 1) * cfg::kOwnRows - 1), least = keys_seen(p, tile * cfg::kOwnRows);
  return {0, most < 1 ? 0 : (most - 1) / cfg::kStepRows + 1, 0, least < 1 ? 0 : least / cfg::kStepRows};
}

// The tiles of queries that see a tile of keys. Keys behind the last need no mask here, because each key's gradients
// depend on no other key, and theirs are not stored; queries behind the last have probabilities of 0.
template <typename Params> KJIT_DEVICE Steps query_steps(const Params &p, int tile) {
  const int end = (p.seq_q - 1) / cfg::kStepRows + 1;
  const int from = first_query(p, tile * cfg::kOwnRows);
  const int all_from = first_query(p, (tile + 1) * cfg::kOwnRows - 1);
  const int first = from < 1 ? 0 : from / cfg::kStepRows;
  return {first < end ? first : end, end, all_from < 1 ? 0 : (all_from - 1) / cfg::kStepRows + 1, end};
}
