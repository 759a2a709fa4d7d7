// Attention backward for Hopper (sm_90a): TMA, mbarriers, warp-specialised wgmma; dq, dk and dv.
//
//   P = exp(scale * Q K^T - lse), delta = rowsum(dO * O) - dLSE, dS = P * (dO V^T - delta)
//   dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K, each (batch, head) by itself
//
// Tensors   as flash_backward's, through tensor maps, so any strides that are multiples of 16 bytes.
// Passes    One source for several kernels, by the field `pass`: dq (which also writes delta), dk and dv, dk alone, dv
//           alone. P and dS are computed anew in each, so a pass depends on no other but for delta.
//           Or three kernels with five products a pair of tiles: delta and zeros; dk and dv, while dq is summed in
//           global memory in fp32 (summing.cuh); dq from these sums (sums.cuh). That is fewer products for more
//           memory traffic, and in a fixed order only where blocks take turns.
// Grid      (ceil(own rows / tile), heads, batch): queries and heads_q for dq, keys and heads_kv for dk and dv.
//           With `persistent` a block for each multiprocessor, which works on tile after tile (struct Persistent).
// Warps     the first warpgroup is the producer (producer.cuh); 1 to 3 consumer warpgroups of 64 own rows each multiply
//           and store (consumer.cuh).
// Shared    own tiles, `stages` and `value_stages` tiles of a step, each padded to bands of 64 columns, LSE and delta
//           of a step's queries, and barriers (pipeline.cuh); up to 1023 bytes more, as the start is rounded up.
// Variants  With KJIT_variant the scores went through the caller's score function and mask: P is made of the changed
//           score, dS is multiplied by the function's derivative, and steps that hold no seen pair are neither loaded
//           nor made (variant_work.cuh, variant_consumer.cuh). Of dq, dk and dv in registers, not of the three kernels.
// Registers a consumer thread holds S and dP (tile / 2 each), their rounded forms (tile / 4 each) and what it sums
//           (head_dim / 2, head_dim_v / 2); setmaxnreg lets it have 256 (one consumer), 240 (two) or 160 (three).
// Tolerance max|dx - ref| <= 2 max|ref16 - ref| + a rounding against float64: P and dS are rounded to 16 bits once, the
//           sums once, all else is fp32.
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/setmaxnreg.cuh>

#include "attention_backward_sm90/adding.cuh"
#include "attention_backward_sm90/consumer.cuh"
#include "attention_backward_sm90/producer.cuh"
#include "attention_backward_sm90/sharing.cuh"
#include "attention_backward_sm90/splitting.cuh"
#include "attention_backward_sm90/summing.cuh"
#include "attention_backward_sm90/sums.cuh"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "attention_backward_sm90 requires sm_90a"
#endif

#ifdef KJIT_variant
#include "attention_backward_sm90/variant_consumer.cuh"
using Parameters = attention_backward_sm90_variant_params;
using BlockConsumer = VariantConsumer;
KJIT_DEVICE const attention_backward_sm90_params &base_of(const Parameters &p) {
  return p.base;
}
static_assert(!cfg::kSumsDq && !cfg::kIsBegin && !cfg::kIsEnd, "pass: 1, 2, 4 or 6 with a variant");
static_assert(!cfg::kSplits, "pass: not 6 with a variant and head sizes above 128");
#else
using Parameters = attention_backward_sm90_params;
KJIT_DEVICE const attention_backward_sm90_params &base_of(const Parameters &p) {
  return p;
}
// Pass 7 has consumers of its own, and pass 6 of wide heads.
template <bool kSumsDq, bool kShares, bool kSplits> struct ConsumerOf { using type = Consumer; };
template <> struct ConsumerOf<true, false, false> { using type = SummingConsumer<cfg::kDqColumns>; };
template <> struct ConsumerOf<true, true, false> { using type = SharingConsumer<cfg::kDqColumns>; };
template <> struct ConsumerOf<false, false, true> { using type = SplittingConsumer; };
using BlockConsumer = typename ConsumerOf<cfg::kSumsDq, cfg::kShares, cfg::kSplits>::type;
#endif

// The warps of the first warpgroup.
KJIT_DEVICE void produce(const attention_backward_sm90_params &p, const Layout &layout, const BlockWork &work,
                         int warp) {
  Producer producer{p, layout, work};
  if (warp == 0 && (BlockWork::kByWarp || threadIdx.x == 0)) producer.load_tiles();
  if (cfg::kOwnsKeys && warp == 1) producer.load_statistics(threadIdx.x % kLanesPerWarp);
  if constexpr (cfg::kSumsDq && !cfg::kDirect) {
    if (warp >= 2 && threadIdx.x % kLanesPerWarp == 0) Adder{p, layout, work, warp - 2}.run();
  }
}

// A persistent block: its roles work on tile after tile. The producer takes their numbers from a counter in device
// memory and tells the other roles. The first tile has the block's own number, because the counter may be read only
// when the kernel before has ended. Where tiles take turns the first one's number comes from the counter too: a tile
// waits for such as have lower numbers, so that all of these must belong to blocks that run. Otherwise blocks that
// wait, of this launch or of one on another stream, could hold every multiprocessor while the tile that they wait for
// belongs to a block that has not begun.
template <typename AnyWork> struct Persistent {
  const attention_backward_sm90_params &p;
  const Layout &at;
  AnyWork &work;
  Tiles tiles{};

  KJIT_DEVICE void produce(int warp) {
    if (warp == 0 && threadIdx.x == 0) {
      Producer producer{p, at, work};
      producer.prefetch_maps();
      for (bool more = !p.turns || go_on(producer.take_tile()); more; more = go_on(producer.take_tile()))
        producer.load_next_tiles();
    }
    if (warp == 1) {
      Producer producer{p, at, work};
      for (bool more = begin(); more; more = go_on(tiles.next(at)))
        producer.load_statistics(threadIdx.x % kLanesPerWarp);
    }
    if (warp >= 2 && threadIdx.x % kLanesPerWarp == 0) {
      Adder adder{p, at, work, warp - 2};
      for (bool more = begin(); more; more = go_on(tiles.next(at)))
        adder.run();
    }
  }

  template <typename Consumer> KJIT_DEVICE void consume(Consumer &consumer) {
    for (bool more = begin(); more;) {
      Chunk next;
      consumer.run_tile([&] {
        next = tiles.next(at);
        return next.word[3] && AnyWork(p, place_of(next)).has_steps();
      });
      more = go_on(next);
    }
    consumer.finish();
  }

private:
  // Is there a first tile, as a role behind the producer finds it?
  KJIT_DEVICE bool begin() { return !p.turns || go_on(tiles.next(at)); }

  KJIT_DEVICE bool go_on(const Chunk &place) {
    work = AnyWork(p, place_of(place));
    return place.word[3];
  }
  KJIT_DEVICE static Work::Place place_of(const Chunk &place) {
    return {(int)place.word[0], (int)place.word[1], (int)place.word[2]};
  }
};

extern "C" __global__ __launch_bounds__(cfg::kThreads,
                                        1) void attention_backward_sm90(const __grid_constant__ Parameters params) {
  extern __shared__ char raw[];
  // The next kernel of the call begins when multiprocessors have nothing else to do. Pass 7 says so behind pass 8, in
  // Producer::load_statistics().
  if constexpr (!cfg::kSumsDq) griddepcontrol_launch_dependents();
  const Layout layout{(cvta_to_shared(raw) + 1023) & ~1023u};
  const attention_backward_sm90_params &p = base_of(params);
  BlockWork work(params, cfg::kCausal && (!cfg::kOwnsKeys || p.turns));
  if constexpr (cfg::kIsBegin) {
    BeginSums{p}.run();
  } else if constexpr (cfg::kIsEnd) {
    EndSums(p, layout, work, 0, threadIdx.x).run();
  } else {
    if (threadIdx.x == 0) layout.initialise();
#ifdef KJIT_variant
    work.make_plan(cvta_to_shared(raw), layout.base, threadIdx.x / kLanesPerWarp, threadIdx.x % kLanesPerWarp);
#endif
    __syncthreads(); // the mbarriers are initialised for every thread
    // The shuffle tells the compiler that the number is the same in all threads of a warp.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / kLanesPerWarp, 0);
    if (warp < kThreadsPerWarpgroup / kLanesPerWarp) {
      setmaxnreg_dec<cfg::kProducerRegisters>();
      if constexpr (cfg::kPersistent)
        Persistent<BlockWork>{p, layout, work}.produce(warp);
      else
        produce(p, layout, work, warp);
    } else {
      setmaxnreg_inc<cfg::kConsumerRegisters>();
      BlockConsumer consumer(params, layout, work, warp / 4 - 1, threadIdx.x % kThreadsPerWarpgroup);
      if constexpr (cfg::kPersistent)
        Persistent<BlockWork>{p, layout, work}.consume(consumer);
      else
        consumer.run();
    }
  }
}
