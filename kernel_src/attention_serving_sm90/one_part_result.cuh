// What becomes of the part of a tile that a block of threads of one_part.cuh has computed: the tile's result if the
// block has the whole tile, otherwise a partial result, which the tile's blocks of threads add up together.
//
// The blocks merge it as slice_merge.cuh says: each arrives at counters in global memory; those that find all of the
// tile's blocks running claim a slice of the result, wait for the others and merge it; the last to arrive merges what
// nobody has claimed. Parts are added in an order that depends on their number alone, so that repeated launches are
// equal to the bit.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/warp.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/part.cuh"

struct OnePartResult {
  static constexpr float kNoKey = -1e30f; // the maximum of a row that has seen no key
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  static constexpr int kQuads = cfg::kHeadDimV / 4;                   // groups of four columns of a row
  static constexpr int kLoaded = cfg::kRows > SERVING_SM90_M ? 8 : 4; // partial results that a thread loads together
  static constexpr int kMostHelpers = 8; // threads that share the partial results of one quad
  static constexpr int kFewParts = 4;    // with runs, which are merged by merge_few()
  static constexpr int kQuadsTogether = 4;

  const attention_serving_one_part_params &p;
  const Part &part;
  int rows;           // of the tile, those that exist
  char *const shared; // kMergeBytes of the block's shared memory
  // With runs (one_part_runs.cuh):
  int waiting = 0;     // of the parts, those whose blocks of threads have no further part, or 1
  bool is_last = true; // of this block's parts

  // With runs: the same for the next part.
  KJIT_DEVICE void go_on(int of_tile, int of_parts, bool is_end) {
    rows = of_tile;
    waiting = of_parts;
    is_last = is_end;
  }

  // Row warp * 16 + lane / 4 + 8 * r of the tile is held by this thread.
  static KJIT_DEVICE int own_row(int r) {
    const int thread = (int)threadIdx.x;
    return thread / kLanesPerWarp * 16 + thread % kLanesPerWarp / 4 + 8 * r;
  }
  // True when some of the warp's r-th rows exist, which is the same for all lanes of a warp.
  KJIT_DEVICE bool has_rows(int warp, int r) const { return warp * 16 + 8 * r < rows; }

  // The query and the query head of a row of the tile.
  KJIT_DEVICE void find_row(int row, int &query, int &head) const {
    const int of_head = part.row_tile * cfg::kRows + row;
    query = parts::divide(of_head, p.group);
    head = part.head * p.group + of_head - query * p.group;
  }

  // Store the result of a tile that this block of threads has alone. `maximum` is of scores.
  KJIT_DEVICE void store(int warp, const float (&o)[kOutput8][4], const float (&maximum)[2],
                         const float (&sum)[2]) const {
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(warp, r)) continue;
      const float total = quad_sum(sum[r]), inverse = total == 0.0f ? 0.0f : 1.0f / total;
      if (own_row(r) >= rows) continue;
      int query, head;
      find_row(own_row(r), query, head);
      char *const to = output_row(query, head) + 2 * column;
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(uint32_t *)(to + 16 * n) = cvt_rn_x2(cfg::Element{}, o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
      if (column == 0) write_log_sum_exp(query, head, maximum[r] * p.scale_log2, total);
    }
  }

  // Count this block of threads among those of its tile that run. Thread 0.
  KJIT_DEVICE void begin() const {
    atomicAdd(started(), 1);
  }

  // Whether all blocks of the tile run, so that it is safe to wait for them, and this one has no further part, so that
  // no blocks wait for each other one after the other. Thread 0.
  KJIT_DEVICE bool may_wait() const {
    return (!cfg::kHasRuns || is_last) && *(volatile int *)started() == part.parts;
  }

  // Write this thread's accumulators to the block's partial result.
  KJIT_DEVICE void keep(int warp, const float (&o)[kOutput8][4], const float (&maximum)[2],
                        const float (&sum)[2]) const {
    float *const own = partial(part.part);
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (!has_rows(warp, r)) continue;
      const float total = quad_sum(sum[r]);
      if (own_row(r) >= rows) continue;
      float *const to = own + own_row(r) * cfg::kHeadDimV + column;
#pragma unroll
      for (int n = 0; n < kOutput8; n++)
        *(Pair *)(to + 8 * n) = {o[n][2 * r], o[n][2 * r + 1]};
      if (column == 0) statistics(own)[own_row(r)] = {maximum[r] * p.scale_log2, total};
    }
  }

  // Write 8 columns of a row to the block's partial result, with the first ones the row's maximum (of scores times
  // log2 e) and sum.
  KJIT_DEVICE void keep_chunk(int row, int chunk, const float (&values)[8], float maximum, float sum) const {
    float *const own = partial(part.part);
    Quad *const to = (Quad *)(own + row * cfg::kHeadDimV + chunk * 8);
    to[0] = {{values[0], values[1], values[2], values[3]}};
    to[1] = {{values[4], values[5], values[6], values[7]}};
    if (chunk == 0) statistics(own)[row] = {maximum, sum};
  }

  // Arrive, and merge slices. All threads, when each has written its part of the partial result.
  KJIT_DEVICE void arrive(bool may_wait) const {
    // Helpers for a quad make more slices, but more slices than parts would be merged one after the other.
    const int quads = rows * kQuads;
    int helpers_log2 = 0;
    while ((1 << helpers_log2) < kMostHelpers && (kLoaded << helpers_log2) < part.parts &&
           quads << (helpers_log2 + 1) <= part.parts * cfg::kWorkers)
      helpers_log2++;
    const int at_once = cfg::kWorkers >> helpers_log2;
    // No more slices than blocks of threads that wait, because the last to arrive would merge the rest one after the
    // other.
    const int most = cfg::kHasRuns ? waiting : part.parts;
    const int wanted = ceil_div(quads, at_once), slices = wanted < most ? wanted : most;
    uint32_t *const word = (uint32_t *)(shared + cfg::kWordAt);
    cfg::sync_workers(); // all have written their part
    if (threadIdx.x == 0) *word = meet(may_wait);
    cfg::sync_workers();
    const int claim = (int)(*word >> 16);
    const bool arrives_last = *word & 1, is_waiting = *word & 2;
    if ((!is_waiting && !arrives_last) || claim >= slices) return;
    if (!arrives_last) wait_for_all();
    const int end = arrives_last ? slices : claim + 1;
#pragma unroll 1
    for (int slice = claim; slice < end; slice++) {
      if (cfg::kHasRuns && part.parts <= kFewParts) {
        merge_few(slice, slices, quads);
        continue;
      }
#pragma unroll 1
      for (int first = slice * at_once; first < quads; first += slices * at_once)
        merge(first, quads, at_once, 1 << helpers_log2);
    }
    cfg::sync_workers(); // all stores are done
    if (threadIdx.x == 0 && atomicAdd(done(), end - claim) + end - claim == slices) *started() = *met() = *done() = 0;
  }

private:
  struct alignas(8) Pair {
    float x, y;
  };
  struct alignas(16) Quad {
    float x[4];
  };

  KJIT_DEVICE char *output_row(int query, int head) const {
    return (char *)p.o + 2 * (part.sequence * p.o_stride.batch + query * p.o_stride.seq + head * p.o_stride.head);
  }

  // `maximum` is of scores times log2(e).
  KJIT_DEVICE void write_log_sum_exp(int query, int head, float maximum, float sum) const {
    if (p.lse)
      p.lse[part.sequence * p.lse_batch_stride + head * p.lse_head_stride + query] =
          sum == 0.0f ? __int_as_float(0xff800000) : (maximum + lg2_approx(sum)) * kLn2;
  }

  // Rows of the call's largest tile.
  KJIT_DEVICE int most_rows() const {
    return p.row_tiles > 1 ? cfg::kRows : rows;
  }

  // The block of threads that computes a part of the tile.
  KJIT_DEVICE int block_of(int number) const {
    const int ahead = number - part.part;
    return (int)blockIdx.x + (cfg::kHasRuns ? ahead * (1 << p.abreast_log2) : ahead);
  }

  // A partial result is the rows of O that exist, unnormalised, then each row's maximum (of scores times log2 e) and
  // sum. It has room for the rows of the largest tile, made even, so that the next begins at a multiple of 16 bytes.
  // With runs a block of threads has two: of a tile that others have begun, and of one that it begins.
  KJIT_DEVICE float *partial(int number) const {
    const int floats = most_rows() * cfg::kHeadDimV + (most_rows() + 1) / 2 * 4;
    const int block = block_of(number);
    return p.partials + (cfg::kHasRuns ? 2 * block + (number == 0) : block) * (int64_t)floats;
  }
  KJIT_DEVICE Pair *statistics(float *partial) const {
    return (Pair *)(partial + most_rows() * cfg::kHeadDimV);
  }

  // ---- Arrivals ----

  // The tile's counters are those of its first block of threads.
  KJIT_DEVICE int *started() const {
    return p.arrivals + block_of(0) * SERVING_SM90_MERGE_COUNTERS;
  }
  KJIT_DEVICE int *met() const {
    return started() + 1; // arrived, and claims << 16
  }
  KJIT_DEVICE int *done() const {
    return started() + 2; // slices that are merged
  }

  // Arrive, and claim a slice if it is safe to wait for the others. Thread 0.
  // @return bit 0: this is the last to arrive; bit 1: a slice is claimed; from bit 16 on, the claims that came before
  KJIT_DEVICE uint32_t meet(bool may_wait) const {
    // The block's partial result comes before its arrival, the others' arrivals before what is read of them.
    const uint32_t before = atom_acq_rel_add(met(), may_wait ? 0x10001 : 1);
    const bool arrives_last = (before & 0xffff) == (uint32_t)part.parts - 1;
    return (before >> 16) << 16 | (may_wait ? 2 : 0) | (arrives_last ? 1 : 0);
  }

  KJIT_DEVICE void wait_for_all() const {
    if (threadIdx.x == 0) {
      while ((int)(ld_acquire_u32(met()) & 0xffff) != part.parts)
        __nanosleep(20);
    }
    cfg::sync_workers();
  }

  // ---- Adding up ----

  // Four columns of a row, relative to the row's maximum.
  struct Piece {
    float x[4];
    float maximum, sum;
  };
  static_assert(sizeof(Piece) == SERVING_SM90_SCRATCH_BYTES, "a piece has its place in the scratch");

  // Relative to the larger maximum of both.
  KJIT_DEVICE static void add(Piece &to, const Piece &other) {
    const float now = fmaxf(to.maximum, other.maximum);
    const float mine = ex2_approx(to.maximum - now), its = ex2_approx(other.maximum - now);
#pragma unroll
    for (int i = 0; i < 4; i++)
      to.x[i] = to.x[i] * mine + other.x[i] * its;
    to.sum = to.sum * mine + other.sum * its;
    to.maximum = now;
  }

  // Merge `at_once` quads, with `helpers` threads for each.
  KJIT_DEVICE void merge(int first, int quads, int at_once, int helpers) const {
    Piece *const scratch = (Piece *)shared;
    const int thread = (int)threadIdx.x, quad = first + (thread & (at_once - 1)), helper = thread / at_once;
    Piece sum = {{0.0f, 0.0f, 0.0f, 0.0f}, kNoKey, 0.0f};
    if (quad < quads) add_up(sum, quad, helper, helpers);
    if (helpers > 1) {
      cfg::sync_workers(); // the scratch of the quads before has been read
      if (helper > 0) scratch[thread] = sum;
      cfg::sync_workers();
#pragma unroll 1
      for (int i = thread + at_once; i < cfg::kWorkers && helper == 0; i += at_once)
        add(sum, scratch[i]);
    }
    if (quad < quads && helper == 0) write(quad, sum);
  }

  // The sum of a quad over the parts from, from + step, ...
  KJIT_DEVICE void add_up(Piece &sum, int quad, int from, int step) const {
#pragma unroll 1
    for (int i = from; i < part.parts; i += kLoaded * step) {
      Quad x[kLoaded];
      Pair of_row[kLoaded];
#pragma unroll
      for (int n = 0; n < kLoaded; n++) {
        float *const of_part = partial(i + n * step < part.parts ? i + n * step : i);
        x[n] = *(const Quad *)(of_part + 4 * quad);
        of_row[n] = statistics(of_part)[quad / kQuads];
      }
      float now = sum.maximum;
#pragma unroll
      for (int n = 0; n < kLoaded; n++)
        now = fmaxf(now, of_row[n].x); // where there is no such part, part i was loaded again
      const float mine = ex2_approx(sum.maximum - now);
#pragma unroll
      for (int c = 0; c < 4; c++)
        sum.x[c] *= mine;
      sum.sum *= mine;
      sum.maximum = now;
#pragma unroll
      for (int n = 0; n < kLoaded; n++) {
        const float its = i + n * step < part.parts ? ex2_approx(of_row[n].x - now) : 0.0f;
#pragma unroll
        for (int c = 0; c < 4; c++)
          sum.x[c] += x[n].x[c] * its;
        sum.sum += of_row[n].y * its;
      }
    }
  }

  // Merge a slice of a tile of few parts: what a thread loads together is of several quads, because a block of threads
  // may merge all of the tile alone.
  KJIT_DEVICE void merge_few(int slice, int slices, int quads) const {
    const int step = slices * cfg::kWorkers;
#pragma unroll 1
    for (int first = slice * cfg::kWorkers + (int)threadIdx.x; first < quads; first += kQuadsTogether * step) {
      Quad x[kQuadsTogether][kFewParts];
      Pair of_row[kQuadsTogether][kFewParts];
#pragma unroll
      for (int i = 0; i < kFewParts; i++) {
        float *const of_part = partial(i);
#pragma unroll
        for (int n = 0; n < kQuadsTogether; n++) {
          const int quad = first + n * step;
          x[n][i] = {{0.0f, 0.0f, 0.0f, 0.0f}};
          of_row[n][i] = {kNoKey, 0.0f};
          if (i >= part.parts || quad >= quads) continue;
          x[n][i] = *(const Quad *)(of_part + 4 * quad);
          of_row[n][i] = statistics(of_part)[quad / kQuads];
        }
      }
#pragma unroll
      for (int n = 0; n < kQuadsTogether; n++)
        if (first + n * step < quads) write(first + n * step, sum_of(x[n], of_row[n]));
    }
  }

  static KJIT_DEVICE Piece sum_of(const Quad (&x)[kFewParts], const Pair (&of_row)[kFewParts]) {
    Piece sum = {{0.0f, 0.0f, 0.0f, 0.0f}, kNoKey, 0.0f};
#pragma unroll
    for (int i = 0; i < kFewParts; i++)
      sum.maximum = fmaxf(sum.maximum, of_row[i].x);
#pragma unroll
    for (int i = 0; i < kFewParts; i++) {
      const float its = ex2_approx(of_row[i].x - sum.maximum);
#pragma unroll
      for (int c = 0; c < 4; c++)
        sum.x[c] += x[i].x[c] * its;
      sum.sum += of_row[i].y * its;
    }
    return sum;
  }

  struct alignas(8) Halves {
    uint32_t word[2];
  };

  KJIT_DEVICE void write(int quad, const Piece &piece) const {
    const int column = quad % kQuads * 4;
    int query, head;
    find_row(quad / kQuads, query, head);
    const float inverse = piece.sum == 0.0f ? 0.0f : 1.0f / piece.sum;
    *(Halves *)(output_row(query, head) +
                2 * column) = {{cvt_rn_x2(cfg::Element{}, piece.x[0] * inverse, piece.x[1] * inverse),
                                cvt_rn_x2(cfg::Element{}, piece.x[2] * inverse, piece.x[3] * inverse)}};
    if (column == 0) write_log_sum_exp(query, head, piece.maximum, piece.sum);
  }
};
