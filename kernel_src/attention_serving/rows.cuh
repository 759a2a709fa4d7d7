// A tile's packed rows: the query heads that share a key head are rows of one tile. Row r of a sequence's packed rows
// is query r / group and query head r % group of the group; a tile is cfg::kRows of them.
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"

// A tile's packed rows: which query and head each is.
struct PackedRows {
  const attention_serving_params &p;
  const Sequence &s;
  int first; // packed row of the tile's row 0
  int head;  // first query head of the group

  KJIT_DEVICE PackedRows(const attention_serving_params &params, const Sequence &sequence, int key_head, int tile)
      : p(params), s(sequence), first(tile * cfg::kRows), head(key_head * params.group) {}

  // Query and head of row `row` of the tile; false for a row behind the last.
  KJIT_DEVICE bool find(int row, int &query, int &query_head) const {
    const int packed = first + row;
    query = p.group == 1 ? packed : packed / p.group;
    query_head = head + packed - query * p.group;
    return query < s.rows;
  }

  // How many rows of the tile exist.
  KJIT_DEVICE int count() const {
    const int64_t left = (int64_t)s.rows * p.group - first;
    return left < cfg::kRows ? (int)left : cfg::kRows;
  }

  // The query of row `row`, or the last one for a row behind it.
  KJIT_DEVICE int query(int row) const {
    const int query = p.group == 1 ? first + row : (first + row) / p.group;
    return query < s.rows ? query : s.rows - 1;
  }
};
