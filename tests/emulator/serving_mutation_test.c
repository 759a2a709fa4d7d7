/* attention_serving with one mistake each, made by replacing a piece of its source: the emulator must not find it
 * right. The piece must stand in the source exactly once; otherwise the compile fails, and the test with it. */
#include "serving_mutation.h"

#include <stdlib.h>

#include "support/test.h"

/* Caught by a batch of long and short sequences in pages, with poison around everything. */
static const struct mutation decode_mutations[] = {
    {"nobody waits for keys that are on their way", "attention_serving/attend.cuh",
     "cp_async_wait_group<cfg::kStages - 2>();", "cp_async_wait_group<cfg::kStages>();"},
    {"a stage is loaded while it is read", "attention_serving/attend.cuh",
     "__syncthreads(); // block j is visible to all", "// block j is visible to all"},
    {"keys behind the last count", "attention_serving/warp.cuh", "if (masked) mask(s, key + key_offset);", ";"},
    {"a page is looked up in the row of another sequence", "attention_serving/tiles.cuh",
     "pages = p.page_table + s.cache_row", "pages = p.page_table + 0"},
    {"partial results are merged before all have arrived", "attention_serving/merge.cuh", "== count - 1;",
     "== count - 2;"},
    {"the counter is left as it is", "attention_serving/merge.cuh", "if (last) *counter = 0;", ";"},
    {"a part begins a block late", "attention_serving/walk.cuh", "block == first ? 0 : block_at(from)",
     "block == first ? 0 : block_at(from) + 1"},
    {"warps along the keys are not joined", "attention_serving/result.cuh",
     "for (int w = 0; w < cfg::kKeyWarps; w++)\\n#pragma unroll\\n      for (int i = 0; i < 8; i++)\\n        values",
     "for (int w = 0; w < 1; w++)\\n#pragma unroll\\n      for (int i = 0; i < 8; i++)\\n        values"},
    {"a part's weight is forgotten", "attention_serving/merge.cuh", "values[n] += part * low.x[n];",
     "values[n] += low.x[n];"},
    {"O takes the place of tiles that are read", "attention_serving/attend.cuh",
     "__syncthreads(); // everybody has finished with the tiles", "// everybody has finished with the tiles"},
    {"a partial result is not visible when its block arrives", "attention_serving/merge.cuh",
     "__threadfence(); // the block's writes come before the arrival", ";"},
    {"the last to arrive does not see what the others wrote", "attention_serving/merge.cuh",
     "__threadfence();        // the others' arrivals come before what is read of them", ";"},
};

/* Caught by caches whose unused slots hold NaN. */
static const struct mutation dense_mutations[] = {
    {"rows behind the last key are loaded", "attention_serving/tiles.cuh", "bool inside = row < left &&",
     "bool inside = row <= left &&"},
};

/* Caught by prefill of sequences in pages, with a window, where unused slots hold NaN. Each of them is a compile of
 * some seconds: the first by default, all with KJIT_TEST_ALL_CONFIGS. */
static const struct mutation prefill_mutations[] = {
    {"one row of V too few is cleared", "attention_prefill_sm90/clipper.cuh", "int i = first * kChunks + lane;",
     "int i = (first + 1) * kChunks + lane;"},
    {"nobody waits for V before clearing it", "attention_prefill_sm90/clipper.cuh",
     "mbarrier_wait_parity(at.values_landed(values_slot), values_parity >> values_slot & 1);", ";"},
    {"what was cleared is not fenced off from wgmma", "attention_prefill_sm90/clipper.cuh", "fence_async_proxy();",
     ";"},
    {"one key too many is seen", "attention_prefill_sm90/consumer.cuh", ">= count)", "> count)"},
    {"a block in front of the window has no mask", "attention_prefill_sm90/consumer.cuh",
     "+ cfg::kKeyRows - 1) / cfg::kKeyRows;", ") / cfg::kKeyRows;"},
    {"rows of the next sequence are written", "attention_prefill_sm90/consumer.cuh",
     "if (row.query >= tile.s.rows) continue;", ";"},
    {"a page is looked up in the row of another sequence", "attention_prefill_sm90/producer.cuh",
     "v.page_table[tile.s.cache_row * v.page_table_stride + index]", "v.page_table[index]"},
    {"the counter is left as it is", "attention_prefill_sm90/producer.cuh", "v.arrivals[i] = 0;", ";"},
    {"V does not land where it is cleared", "attention_prefill_sm90/producer.cuh",
     "const bool lands = cfg::kNarrow || pending.is_cut;", "const bool lands = false;"},
    {"a sequence is listed twice", "attention_prefill_sm90/order.cuh", "visit(b, at + __popc(before));",
     "visit(b, at);"},
    {"O is read before all of the warp have written it", "attention_prefill_sm90/consumer.cuh",
     "output_to_shared(out, band, end);\\n      __syncwarp();", "output_to_shared(out, band, end);"},
};

/* Caught by sequences of few rows and many keys beside one of many rows, in pages that are loaded row by row. As above,
 * the first by default. */
static const struct mutation mixed_mutations[] = {
    {"the last part is not added", "attention_prefill_sm90/parts.cuh",
     "for (int i = 0; i < tile.parts() && exists; i++) {", "for (int i = 0; i < tile.parts() - 1 && exists; i++) {"},
    {"a part's weight is forgotten", "attention_prefill_sm90/parts.cuh", "+= pair.x[0] * factor;", "+= pair.x[0];"},
    {"a part is not visible when its warp arrives", "attention_prefill_sm90/parts.cuh",
     "__threadfence(); // the part comes before the arrival", ";"},
    {"the last to arrive does not see what the others wrote", "attention_prefill_sm90/parts.cuh",
     "__threadfence();             // the others' arrivals come before what is read of them", ";"},
    {"the counter of a tile's parts is left as it is", "attention_prefill_sm90/parts.cuh",
     "if (lane == 0) *counter = 0;", ";"},
    {"a part begins a block late", "attention_prefill_sm90/order.cuh", "(int)(count * part / of_parts),",
     "(int)(count * part / of_parts) + (part > 0),"},
    {"the turn of a tile without rows is taken twice", "attention_prefill_sm90/consumer.cuh",
     "if (!has_turned) take_turn();", "take_turn();"},
    {"what was loaded is not fenced off from wgmma: keys", "attention_prefill_sm90/consumer.cuh",
     "fence_async_proxy(); // keys", "; // keys"},
    {"what was loaded is not fenced off from wgmma: values", "attention_prefill_sm90/consumer.cuh",
     "fence_async_proxy(); // values", "; // values"},
    {"lanes arrive before their copies are done", "attention_prefill_sm90/gatherer.cuh",
     "cp_async_mbarrier_arrive(kIsKeys", "mbarrier_arrive(kIsKeys"},
    {"a buffer is loaded while it is read", "attention_prefill_sm90/gatherer.cuh",
     "mbarrier_wait_parity(kIsKeys ? at.keys_empty(ring.slot) : at.values_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"a page is looked up in the row of another sequence", "attention_prefill_sm90/gatherer.cuh",
     "v.page_table + tile.s.cache_row * v.page_table_stride", "v.page_table"},
    {"a row behind the last key is loaded", "attention_prefill_sm90/gatherer.cuh", "row < count &&", "row <= count &&"},
    {"every four rows are swizzled as the first four", "attention_prefill_sm90/gatherer.cuh",
     "step % 2 * kTogether + of_step;", "of_step;"},
    {"the last V is forgotten", "attention_prefill_sm90/gatherer.cuh",
     "if (pending.head >= 0) load<false>(pending);\\n  }", "}"},
    {"warps begin with the same rows", "attention_prefill_sm90/gatherer.cuh",
     "buffer + warp * kWarpRows * cfg::kRowBytes;", "buffer;"},
};

/* Caught by the same in pages that TMA loads. */
static const struct mutation passing_mutations[] = {
    {"a buffer is given back before all have waited for it", "attention_prefill_sm90/consumer.cuh",
     "meet();\\n      release(at", "release(at"},
};

/* Caught by decoding of sequences in pages on Hopper, with a window, where unused slots hold NaN. As above, the first
 * by default. */
static const struct mutation sm90_mutations[] = {
    {"a row of V behind the last key is left", "attention_serving_sm90/worker.cuh", "row < from || row >= to",
     "row < from || row > to"},
    {"what was cleared is not fenced off from wgmma", "attention_serving_sm90/worker.cuh",
     "fence_async_proxy(); // before V", "// before V"},
    {"one key too many is seen", "attention_serving_sm90/worker.cuh", ">= count) s[n]", "> count) s[n]"},
    {"nobody waits for V", "attention_serving_sm90/worker.cuh", "mbarrier_wait_parity(at.values_full(slot), parity);",
     ";"},
    {"rows of the next sequence are written", "attention_serving_sm90/worker.cuh",
     "if (!output.rows.find(own_row(r), query, head)) continue;", "output.rows.find(own_row(r), query, head);"},
    {"a page is looked up in the row of another sequence", "attention_serving_sm90/producer.cuh",
     "s.page_table[tile.s.cache_row * s.page_table_stride + index]", "s.page_table[index]"},
    {"the next 32 pages are those before them", "attention_serving_sm90/producer.cuh", "box = following;", ";"},
    {"a buffer is loaded while it is multiplied", "attention_serving_sm90/producer.cuh",
     "mbarrier_wait_parity(empty, ring.parity ^ 1);", ";"},
    {"partial results are merged before all have arrived", "attention_serving_sm90/slice_merge.cuh",
     "== (uint32_t)count() - 1", "== (uint32_t)count() - 2"},
    {"arriving orders nothing", "attention_serving_sm90/slice_merge.cuh", "atom_acq_rel_add(met(),",
     "(uint32_t)atomicAdd(met(),"},
    {"who waited does not see what the others wrote", "attention_serving_sm90/slice_merge.cuh", "ld_acquire_u32(met())",
     "*(volatile int *)met()"},
    {"the counters are left as they are", "attention_serving_sm90/slice_merge.cuh", "*met() = 0;", ";"},
    {"a job takes the place of one that is worked on", "attention_serving_sm90/producer.cuh",
     "mbarrier_wait_parity(at.job_empty(jobs.slot), jobs.parity ^ 1);", ";"},
    {"a job is given back before it is worked on", "attention_serving_sm90/worker.cuh",
     "work_on(job.tile, job.share, job.is_last);\\n      if (!is_rehearsal) {\\n        "
     "mbarrier_arrive(at.job_empty(jobs.slot));",
     "if (!is_rehearsal) mbarrier_arrive(at.job_empty(jobs.slot));\\n      work_on(job.tile, job.share, "
     "job.is_last);\\n"
     "      if (!is_rehearsal) {"},
    {"a part of a tile ends a key block early", "attention_serving_sm90/few.cuh",
     "at_least_0(from), smaller(to, tile_blocks)", "at_least_0(from), smaller(to, tile_blocks - 1)"},
    {"every head begins where the sequence does", "attention_serving_sm90/few.cuh", "begins += head * of_tile;", ";"},
};

/* Caught by decoding from a cache of e4m3 on Hopper, with a window, and rows of q that do not fit fp16 as they are. */
static const struct mutation e4m3_mutations[] = {
    {"bytes of one key's neighbouring columns are taken for two keys'", "attention_serving/products_e4m3.cuh",
     "__byte_perm(second, 0, 0x3120)", "second"},
    {"a row of V behind the last key is left", "attention_serving_sm90/worker_e4m3.cuh", "row < from || row >= to",
     "row < from || row > to"},
    {"values are not multiplied by their descale", "attention_serving/warp.cuh", "*= descales.v;", "*= 1.0f;"},
    {"scores are not multiplied by the keys' descale", "attention_serving/warp.cuh",
     "p.scale_log2 * descales.k :", "p.scale_log2 :"},
    {"a row that was scaled is not scaled back", "attention_serving/products_e4m3.cuh", "*= factors[i / 2];",
     "*= 1.0f;"},
    {"keys stand where values do not", "attention_serving/products_e4m3.cuh", "return n * 8 + key_row(lane",
     "return n * 8 + (lane"},
    {"nobody waits for V", "attention_serving_sm90/worker_e4m3.cuh",
     "mbarrier_wait_parity(at.values_full(slot), parity);", ";"},
    {"K is given back before all lanes have read it", "attention_serving_sm90/worker_e4m3.cuh",
     "__syncwarp(); // all lanes have read K", "// all lanes have read K"},
    {"V is given back before all lanes have read it", "attention_serving_sm90/worker_e4m3.cuh",
     "__syncwarp(); // all lanes have read V", "// all lanes have read V"},
    {"a job is given back before it is worked on", "attention_serving_sm90/worker_e4m3.cuh",
     "work_on(job.tile, job.share, job.is_last);\\n      mbarrier_arrive(at.job_empty(jobs.slot));",
     "mbarrier_arrive(at.job_empty(jobs.slot));\\n      work_on(job.tile, job.share, job.is_last);"},
    {"warps are joined before all have left their O", "attention_serving_sm90/worker_e4m3.cuh",
     "cfg::sync_workers(); // every warp", "// every warp"},
};

/* Caught by sequences of many rows and of few on a cache of e4m3 without pages. As above, the first by default. */
static const struct mutation widened_mutations[] = {
    {"what was written is not fenced off from wgmma", "attention_prefill_sm90/widener.cuh", "fence_async_proxy();",
     ";"},
    {"nobody waits for K before widening it", "attention_prefill_sm90/widener.cuh",
     "mbarrier_wait_parity(at.keys_landed(keys.slot), keys.parity);", ";"},
    {"nobody waits for V before widening it", "attention_prefill_sm90/widener.cuh",
     "mbarrier_wait_parity(at.values_landed(values.slot), values.parity);", ";"},
    {"a row is written before all of it has been read", "attention_prefill_sm90/widener.cuh",
     "__syncwarp(); // a row's other", "// a row's other"},
    {"a row behind the last key is left", "attention_prefill_sm90/widener.cuh", "+ own_row() >= count)",
     "+ own_row() > count)"},
    {"rows are not swizzled", "attention_prefill_sm90/widener.cuh", "((lane % 4 * 2 ^ own_row()) << 4);",
     "((lane % 4 * 2) << 4);"},
    {"a group is written where another one was", "attention_prefill_sm90/widener.cuh", "write(to, i * kToNextGroup +",
     "write(to, "},
    {"the last V is forgotten", "attention_prefill_sm90/widener.cuh", "if (is_pending) widen_values(pending);\\n  }",
     "}"},
    {"a buffer is loaded while it is read", "attention_prefill_sm90/producer.cuh",
     "mbarrier_wait_parity(empty, parity);", ";"},
    {"every sequence lies where the first does", "attention_prefill_sm90/producer.cuh",
     "v.cu_k ? 0 : tile.s.cache_row}", "0}"},
    {"scores are not multiplied by the keys' descale", "attention_prefill_sm90/scaled_consumer.cuh",
     "p.scale_log2 * tile.descales.k :", "p.scale_log2 :"},
    {"values are not multiplied by their descale", "attention_prefill_sm90/consumer.cuh", "*= tile.descales.v;",
     "*= 1.0f;"},
    {"descales are those of the first head", "attention_prefill_sm90/producer.cuh", "tile.query_head() / v.group);",
     "0);"},
    {"rows that were scaled are not scaled back", "attention_prefill_sm90/consumer.cuh",
     "if (tile.has_factors) multiply_factors(buffer);", ";"},
    {"a buffer is given back before its factors are read", "attention_prefill_sm90/consumer.cuh",
     "multiply_factors(buffer);\\n    }\\n    release(at.keys_empty(keys.slot));\\n    keys.advance();\\n    if "
     "(cfg::kOutputBands > 0 && block == tile.blocks.first) release_query(buffer);",
     ";\\n    }\\n    release(at.keys_empty(keys.slot));\\n    keys.advance();\\n    if "
     "(cfg::kOutputBands > 0 && block == tile.blocks.first) release_query(buffer);\\n    if (tile.has_factors) "
     "multiply_factors(buffer);"},
    {"one lane's rows are enough to begin", "attention_prefill_sm90/tile.cuh", "cfg::kConverts ? kLanesPerWarp : 1",
     "1"},
    {"a warp that widens lets a block go before its lanes have written", "attention_prefill_sm90/widener.cuh",
     "if constexpr (!cfg::kGathers) __syncwarp();", ";"},
    {"nobody waits for Q before converting it", "attention_prefill_sm90/converter.cuh",
     "mbarrier_wait_parity(at.query_landed(queries.slot), queries.parity);", ";"},
    {"one warp that has converted is enough to begin", "attention_prefill_sm90/tile.cuh",
     "cfg::kHelpers * kConverterArrivals : 1", "kConverterArrivals : 1"},
    {"one warp's rows are enough to begin", "attention_prefill_sm90/tile.cuh",
     "cfg::kHelpers * kWidenerArrivals : kGatherers;", "kWidenerArrivals : kGatherers;"},
};

/* Caught by the same in pages of one position, and heads of more than a band. */
static const struct mutation gathered_mutations[] = {
    {"the second half of a row is the first", "attention_prefill_sm90/widener.cuh",
     "(from ^ band % 2 * (cfg::kRowBytes / 2))", "(from)"},
    {"a block is let go before it is widened", "attention_prefill_sm90/widener.cuh",
     "widen<cfg::kHeadDim>(at.keys(keys.slot), cfg::kKeyRows);\\n    pass(at.keys_full(keys.slot));",
     "pass(at.keys_full(keys.slot));\\n    widen<cfg::kHeadDim>(at.keys(keys.slot), cfg::kKeyRows);"},
    {"the lanes of a widener are taken for as many wideners", "attention_prefill_sm90/tile.cuh",
     "cfg::kGathers ? kLanesPerWarp : 1", "1"},
    {"wideners do not wait for all who gather", "attention_prefill_sm90/tile.cuh", "is_gathered(i) ? kGatherers : 1",
     "1"},
    {"bytes are gathered where elements will be", "attention_prefill_sm90/gatherer.cuh",
     "cfg::kNarrow ? cfg::Narrow<kColumns>::kAt : 0;", "0;"},
    {"consumers do not wait for wideners", "attention_prefill_sm90/gatherer.cuh",
     "cfg::kNarrow ? at.keys_landed(slot) : at.keys_full(slot);", "at.keys_full(slot);"},
    {"a row is as long as one of 16 bits", "attention_prefill_sm90/gatherer.cuh",
     "cfg::kCacheBytes * (block.rows.page[i]", "2 * (block.rows.page[i]"},
};

/* Caught by a cache of e4m3 of wide heads behind left padding. */
static const struct mutation wide_narrow_mutations[] = {
    {"operands of Q are written before all have taken its rows", "attention_serving/attend.cuh",
     "__syncthreads(); // everybody has taken its rows", "// everybody has taken its rows"},
    {"every warp reads the operands of the first 16 rows", "attention_serving/attend.cuh",
     "tiles + row_warp * warp.products.kQueryBytes +", "tiles +"},
    {"operands of Q stay where they were taken", "attention_serving/attend.cuh",
     "if (index < cfg::kRowWarps) warp.products.share_query();", ";"},
};

static void test_serving__mistakes_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = 3;
  c.group = 4;
  c.cache = SERVING_PAGED;
  c.page_size = 4; /* which Hopper's own kernel does not take */
  c.rows[1] = c.rows[2] = 1;
  c.keys[0] = 1500; /* parted among blocks of threads */
  c.keys[1] = 70;
  c.keys[2] = 333;
  c.workspace = true;
  assert_caught(state, &c, decode_mutations, sizeof decode_mutations / sizeof *decode_mutations);
}

static void test_serving__mistakes_with_unused_slots_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.use_leftpad = true; /* which Hopper's own kernels do not take */
  c.leftpad[0] = 3;
  assert_caught(state, &c, dense_mutations, sizeof dense_mutations / sizeof *dense_mutations);
}

static void test_serving__mistakes_in_prefill_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = 4;
  c.heads_kv = 4; /* several tiles for each of four blocks of threads, so that buffers come again */
  c.group = 2;
  c.cache = SERVING_PAGED;
  c.ragged_q = c.causal = true;
  c.window_left = 50;
  c.workspace = true;
  c.rows[0] = 66;
  c.keys[0] = 300;
  c.rows[1] = 3;
  c.keys[1] = 5;
  c.rows[2] = 2;
  c.keys[2] = 0;
  c.rows[3] = 4;
  c.keys[3] = 9;
  assert_caught(state, &c, prefill_mutations, first_or_all(sizeof prefill_mutations / sizeof *prefill_mutations));
}

static void test_serving__mistakes_in_mixed_batches_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = 4;
  c.heads_kv = 2;
  c.group = 2;
  c.cache = SERVING_PAGED;
  c.page_size = 1;
  c.ragged_q = c.causal = c.workspace = true;
  c.rows[0] = 150;
  c.keys[0] = 180;
  c.rows[1] = 1;
  c.keys[1] = 1500;
  c.rows[2] = 3;
  c.keys[2] = 1100;
  c.rows[3] = 1;
  c.keys[3] = 7;
  assert_caught(state, &c, mixed_mutations, first_or_all(sizeof mixed_mutations / sizeof *mixed_mutations));
  c.page_size = 16;
  if (getenv("KJIT_TEST_ALL_CONFIGS")) assert_caught(state, &c, passing_mutations, 1);
}

static void test_serving__mistakes_in_widening_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.dtype = KJIT_BF16;
  c.narrow = c.ragged_q = c.causal = c.workspace = true;
  c.query_size = 1e9f; /* beyond fp16, of rows that one of the three warps converts */
  c.query_step = 6;
  c.scale = 1e-10f;
  c.batch = 3;
  c.heads_kv = 4; /* several tiles for each of four blocks of threads, so that buffers come again */
  c.group = 2;
  c.rows[0] = 150;
  c.keys[0] = 400;
  c.rows[1] = 1;
  c.keys[1] = 300;
  c.rows[2] = 40;
  c.keys[2] = 47;
  assert_caught(state, &c, widened_mutations, first_or_all(sizeof widened_mutations / sizeof *widened_mutations));
  c.cache = SERVING_PAGED;
  c.page_size = 1;
  c.head_dim = c.head_dim_v = 80;
  assert_caught(state, &c, gathered_mutations, first_or_all(sizeof gathered_mutations / sizeof *gathered_mutations));
}

/* A window leaves a problem to attention_serving_sm90's kernels without one_part. With two key heads of 16 bits and
 * four of 8 a block of threads has more tiles than there are places for jobs. */
static struct serving_case hopper_case(int heads_kv) {
  struct serving_case c = serving_plain_case();
  c.batch = 5;
  c.heads_kv = heads_kv;
  c.group = 3;
  c.cache = SERVING_PAGED;
  c.page_size = 8;
  c.window_left = 2000;
  c.workspace = true;
  for (int b = 0; b < c.batch; b++)
    c.rows[b] = 1;
  c.keys[0] = 1500; /* parted among blocks of threads, each part in more than 32 pages */
  c.keys[1] = 70;
  c.keys[2] = 0;
  c.keys[3] = 9;
  c.keys[4] = 13;
  return c;
}

static void test_serving__mistakes_in_decoding_on_hopper_are_caught(void **state) {
  const struct serving_case c = hopper_case(2);
  assert_caught(state, &c, sm90_mutations, first_or_all(sizeof sm90_mutations / sizeof *sm90_mutations));
}

static void test_serving__mistakes_with_a_cache_of_e4m3_are_caught(void **state) {
  struct serving_case c = hopper_case(4);
  c.dtype = KJIT_BF16;
  c.narrow = true;
  c.query_size = 1e9f;
  c.scale = 1e-10f;
  assert_caught(state, &c, e4m3_mutations, first_or_all(sizeof e4m3_mutations / sizeof *e4m3_mutations));
}

static void test_serving__mistakes_with_wide_heads_of_e4m3_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.narrow = c.use_leftpad = true;
  c.head_dim = c.head_dim_v = 256;
  c.batch = 1;
  c.group = 20; /* two warps along the rows, two along the keys */
  c.rows[0] = 1;
  c.keys[0] = 70;
  c.leftpad[0] = 3;
  assert_caught(state, &c, wide_narrow_mutations, sizeof wide_narrow_mutations / sizeof *wide_narrow_mutations);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving__mistakes_are_caught),
      cmocka_unit_test(test_serving__mistakes_with_unused_slots_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_prefill_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_mixed_batches_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_widening_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_decoding_on_hopper_are_caught),
      cmocka_unit_test(test_serving__mistakes_with_a_cache_of_e4m3_are_caught),
      cmocka_unit_test(test_serving__mistakes_with_wide_heads_of_e4m3_are_caught),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("mutations of attention_serving", tests, serving_mutation_setup, gpu_teardown);
}
