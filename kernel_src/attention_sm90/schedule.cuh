// Which tiles a block works on, in which order. A tile is kQueryRows query rows of one (batch, head).
#pragma once
#include "attention_sm90/config.cuh"
#include "attention_sm90/params.h"

struct Tile {
  int query_tile, head, batch;

  // First query row of a consumer's part.
  KJIT_DEVICE int first_row(int consumer) const { return query_tile * cfg::kQueryRows + consumer * cfg::kGroupRows; }
};

// Causal attention is aligned at the bottom right: row i sees keys up to i + seq_kv - seq_q.
KJIT_DEVICE int keys_seen_by_row(const attention_sm90_params &p, int row) {
  const int last = cfg::kCausal ? row + p.seq_kv - p.seq_q + 1 : p.seq_kv;
  return last < p.seq_kv ? last : p.seq_kv;
}

// Key blocks of a tile: at least one, as a tile without keys must still write zeros.
KJIT_DEVICE int key_blocks(const attention_sm90_params &p, const Tile &tile) {
  const int keys = keys_seen_by_row(p, (tile.query_tile + 1) * cfg::kQueryRows - 1);
  return keys <= 0 ? 1 : (keys + cfg::kKeyRows - 1) / cfg::kKeyRows;
}

// Key blocks from this one on may hold keys that some row of the tile does not see.
KJIT_DEVICE int first_masked_block(const attention_sm90_params &p, const Tile &tile) {
  const int seen_by_all = keys_seen_by_row(p, tile.query_tile * cfg::kQueryRows);
  return seen_by_all <= 0 ? 0 : seen_by_all / cfg::kKeyRows;
}

constexpr int kNoTile = -1;

KJIT_DEVICE int tile_count(const attention_sm90_params &p) {
  return p.query_tiles * p.heads_q * p.batch;
}

// Tiles by number. Full attention: the query tiles of a head one after the other, so that neighbours share K and V.
// Causal: longest first within a section of heads, so that what is left at the end is short; sections one after the
// other, so that the K and V of what is under way fit L2.
KJIT_DEVICE Tile tile_by_number(const attention_sm90_params &p, int number) {
  Tile tile;
  int pair; // (batch, head)
  if constexpr (cfg::kCausal) {
    const int pairs = p.heads_q * p.batch;
    const int first = number / (p.section * p.query_tiles) * p.section;
    const int in_section = number % (p.section * p.query_tiles);
    const int width = pairs - first < p.section ? pairs - first : p.section;
    tile.query_tile = p.query_tiles - 1 - in_section / width;
    pair = first + in_section % width;
  } else {
    tile.query_tile = number % p.query_tiles;
    pair = number / p.query_tiles;
  }
  tile.head = pair % p.heads_q;
  tile.batch = pair / p.heads_q;
  return tile;
}

// The producer's source of tiles.
struct TileQueue {
  const attention_sm90_params &p;
  int round = 0;

  // Number of the next tile of this block, or kNoTile. By ticket: whoever is free takes the next. Otherwise dealt out,
  // forth and back, so that the sums of falling lengths come out alike.
  KJIT_DEVICE int next() {
    int number;
    if (p.tickets != nullptr) {
      number = atomicAdd(p.tickets, 1);
    } else {
      const bool back = cfg::kCausal && round % 2;
      number = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
      round++;
    }
    return number < tile_count(p) ? number : kNoTile;
  }

  // The last block to finish leaves both tickets at zero for the next launch.
  KJIT_DEVICE void finish() const {
    if (p.tickets == nullptr) return;
    __threadfence();
    if (atomicAdd(p.tickets + 1, 1) == gridDim.x - 1) {
      p.tickets[0] = 0;
      p.tickets[1] = 0;
    }
  }
};
