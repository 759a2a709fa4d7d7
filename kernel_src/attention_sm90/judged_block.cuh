// Judging a block key by key, by a consumer's thread: for masks whose blocks come from lists, where those have no keep
// words.
//
// This is a function that is not inlined, because it is as much code as a step, and three kinds of steps call it. The
// compiler would take half as long again for three copies. No product may be in flight at a call, because ptxas
// serialises those that are across one. It reads the kernel's parameters by their address in the parameter space.
#pragma once
#include <kjit/ptx/parameters.cuh>

#include "attention_sm90/variant_tile.cuh"

// What a thread judged of a block's scores.
struct Judged {
  variant::KeepWords<cfg::kKeyRows / 8> keep[2];
};

// Judge this thread's scores of a tile and the block that begins with `first_key`, key by key. `parameters`: the
// address of the kernel's (cvta_to_param()).
static __device__ __noinline__ Judged judge_block(uint64_t parameters, int query_tile, int head, int batch,
                                                  int first_key) {
  const auto both = ld_param_entry<attention_sm90_variant_params>(parameters);
  const attention_sm90_params &p = both.base;
  const attention_variant_params &v = both.variant;
  const int thread = threadIdx.x % kThreadsPerWarpgroup, lane = thread % kLanesPerWarp;
  const int consumer = consumer_of_tile(threadIdx.x / kThreadsPerWarpgroup - 1);
  const int first = thread / kLanesPerWarp * 16 + lane / 4;
  const Tile tile = {query_tile, head, batch};
  const variant::Row rows[2] = {variant_row(v, p, tile, output_row(p, tile, consumer, first)),
                                variant_row(v, p, tile, output_row(p, tile, consumer, first + 8))};
  Judged judged;
  variant::judge_rows(judged.keep, v, rows, first_key, lane);
  return judged;
}
