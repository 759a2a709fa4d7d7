// A tile's rows as an attention variant sees them, and the walk over the key blocks that they see.
#pragma once
#include "attention_sm90/schedule.cuh"
#include "attention_variant/block_walk.cuh"

KJIT_DEVICE variant::Row variant_row(const attention_variant_params &v, const attention_sm90_params &p,
                                     const Tile &tile, const OutputRow &row) {
  return variant::Row(v, tile.batch, row.head, row.query, keys_seen_by(p, row.query));
}

// Begin the walk over a tile's key blocks. All lanes of a warp.
KJIT_DEVICE void begin_walk(variant::BlockWalk &walk, const attention_variant_params &v, const attention_sm90_params &p,
                            const Tile &tile, int lane) {
  const int list = tile.batch * v.lists.batch_stride + tile.head * v.lists.head_stride + tile.query_tile;
  walk.begin<cfg::kKeyRows>(
      v, list, cfg::kQueryRows, lane, [&](int i) { return variant_row(v, p, tile, output_row(p, tile, 0, i)); },
      [&](int i) {
        const OutputRow row = output_row(p, tile, 0, i);
        return row.query < p.seq_q && row.in_gqa_group;
      });
}
