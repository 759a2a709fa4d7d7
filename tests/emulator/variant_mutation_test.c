/* Attention variants with one mistake each in the kernels' hooks, made by replacing a piece of the source: the emulator
 * must not find them right. The piece must stand in the source exactly once. */
#include "emulator_fixture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "variant_trial.h"

struct mutation {
  const char *what, *variant, *file, *before, *after;
};

static const struct variant_shape shape = {1, 3, 3, 200, 333, 64, true};
static const struct variant_shape shared = {1, 8, 8, 333, 333, 64, true};
static const struct variant_shape longer = {1, 1, 1, 400, 400, 128, true};

static const struct mutation mutations[] = {
    {"keep words are a bit off", "window", "attention_variant/hooks.cuh", "smaller(column % 8, 2)",
     "smaller(column % 8 + 1, 2)"},
    {"a tile's last keys are left out", "window", "attention_variant/block_walk.cuh",
     "(high + key_rows - 1) / key_rows", "high / key_rows"},
    {"a block counts as full when not all of its keys are seen", "alibi", "attention_variant/block_walk.cuh",
     "full_end < 0 ? 0 : full_end / key_rows;", "full_end < 0 ? 0 : (full_end + key_rows - 1) / key_rows;"},
    {"a range that another one covers is visited twice", "streaming", "attention_variant/block_walk.cuh",
     "ranges[i].end = smaller(ranges[i].end, floor);", ";"},
    {"the score is not scaled", "square", "attention_variant/hooks.cuh", "s * v.score_scale, row", "s, row"},
    {"the score's powers are those of e", "square", "attention_variant/hooks.cuh", "(kLog2 ? kLog2E : 1.0f);", "1.0f;"},
    {"the score function gets the next key", "pattern", "attention_variant/hooks.cuh",
     "first_key + lane % 4 * 2 + n * 8 + i);", "first_key + lane % 4 * 2 + n * 8 + i + 1);"},
    {"a folded score is not scaled", "alibi", "attention_variant/row_score.cuh", "slope *= v.score_scale;", ""},
    {"what a function is given is not scaled", "softcap", "attention_variant/row_score.cuh",
     "row.head, row.query) * v.score_scale;", "row.head, row.query);"},
    {"a polynomial counts beyond its range", "softcap_low", "attention_sm90/variant_consumer.cuh",
     "is_far |= __int_as_float(farthest) > scores_of[r].near;", ""},
    {"what a polynomial found does not count", "softcap_low", "attention_sm90/variant_consumer.cuh", "|| is_far ||",
     "||"},
    {"a term begins a key late", "alibi", "attention_variant/row_score.cuh", "(float)(first - (row.limit - 1))",
     "(float)(first - row.limit)"},
    {"a term's steps are those of e", "alibi", "attention_variant/row_score.cuh",
     "kjit_variant_term_step(v.arguments, row.batch, row.head, row.query) * kLog2E",
     "kjit_variant_term_step(v.arguments, row.batch, row.head, row.query)"},
    {"the maximum rises without the function", "relative", "attention_sm90/variant_consumer.cuh",
     "apply_rest<false>(tile, all, pairs);", ""},
    {"a row has its neighbour's bounds", "window", "attention_sm90/variant_tile.cuh", "at.bounds(slot, i), low, high",
     "at.bounds(slot, i ^ 1), low, high"},
    {"all bounds are left in the first slot", "window", "attention_sm90/variant_producer.cuh",
     "      bounds.advance();", ""},
    {"the bounds of a tile lie where those of its neighbour do", "window", "attention_sm90/pipeline.cuh",
     "slot * shared::kBoundBytes", "0 * shared::kBoundBytes"},
    {"a row is judged for its neighbour", "document", "attention_variant/hooks.cuh", "keep[r].word[w] = bits[r];",
     "keep[r].word[w] = bits[0];"},
    {"the plan is read before it is there", "window", "attention_sm90/variant_producer.cuh",
     "mbarrier_wait_parity(at.plan_full(), plan_parity);", ""},
    {"the next plan is never asked for", "window", "attention_sm90/variant_producer.cuh",
     "if (at_block == ask_at) mbarrier_arrive(at.plan_empty());", ""},
    {"every lane adds the sink", "sinks", "attention_variant/hooks.cuh", "if (lane % 4 == 0) softmax.sum",
     "softmax.sum"},
    {"a partial block of a list is taken as full", "document", "attention_variant/block_list_tile.cuh",
     "(seen & partial) * VARIANT_PARTIAL", "(seen & partial) * VARIANT_FULL"},
    {"a block that the diagonal cuts is taken as full", "rows_in_turn_causal", "attention_variant/block_list_tile.cuh",
     "partial |= cut_by_diagonal(area);", ";"},
    {"a block with keys beyond the end is taken as full", "rows_in_turn", "attention_variant/block_list_tile.cuh",
     "partial = kSeen * kEveryPart;", ";"},
    {"a consumer skips what its neighbour does not see", "document", "attention_sm90/variant_consumer.cuh",
     "entry >> (1 + 2 * consumer) & 3", "entry >> (3 - 2 * consumer) & 3"},
    {"a consumer counts as seen what its neighbour sees", "rows_in_turn", "attention_sm90/variant_consumer.cuh",
     "own_state() == VARIANT_FULL;", "(kParted ? entry >> (3 - 2 * consumer) & 3 : own_state()) == VARIANT_FULL;"},
    {"all of a tile's queries count as its first 64", "document", "attention_variant/block_list.cu",
     "tile.p.parts > 0 ? 2 * which : 0", "0"},
    {"a range's later elements are left out", "blocks_document", "kjit/attention/variant_real_ranges.h",
     "n < line.count;", "n < 1;"},
    {"keys beyond a row's end are judged as seen", "document", "attention_variant/hooks.cuh",
     "keep[r].drop_from(rows[r].limit - first);", ";"},
    {"pieces are looked at for a tile's first 64 queries", "rows_in_turn", "attention_variant/block_list.cu",
     "side = kjit_variant_join_queries(side, shared.queries[variant::smaller(first * sides + i, end * sides - 1)]);",
     ";"},
    {"a list's blocks are one short", "document", "attention_variant/block_list.cu", "int last = lists.capacity - 1;",
     "int last = lists.capacity - 2;"},
    {"a full block of the caller's beside a partial one is left out", "blocks_48", "attention_variant/hooks.cuh",
     "if (state == VARIANT_FULL || (state == VARIANT_PARTIAL && !kMasked)) seen", "if (!kMasked) seen"},
    {"a partial block of the caller's counts as full", "blocks_48", "attention_variant/hooks.cuh",
     "word[w] |= others.word[w] & of.word[w];", "word[w] |= of.word[w];"},
    {"the consumers do not learn of the last block", "window", "attention_sm90/variant_producer.cuh",
     "2u * entry + is_last)", "2u * entry + (is_last && walk.count < 2))"},
    {"a walk visits blocks again", "distance", "attention_variant/walk_order.cuh", "start - (turn + 1) / 2",
     "start - turn / 2"},
    {"the terms are read before they are there", "pairs_clamped", "attention_sm90/variant_terms.cuh",
     "cp_async_wait_group<0>();", ""},
    {"a box of terms is read before it is there", "pairs", "attention_sm90/variant_term_ring.cuh",
     "mbarrier_wait_parity(at.box_full(consumer, box.slot), box.parity);", ""},
    {"a box is written while it is read", "pairs", "attention_sm90/variant_term_producer.cuh",
     "mbarrier_wait_parity(at.box_empty(consumer, boxes.slot), boxes.parity ^ 1);", ""},
    {"a box is given back before all lanes have read it", "pairs", "attention_sm90/variant_term_ring.cuh",
     "__syncwarp(); // every lane has read its rows", ""},
    {"a box's last keys are taken for its first", "pairs", "attention_sm90/variant_term_ring.cuh", "tile % 8 / 4 * 64",
     "0"},
    {"boxes have the terms of the tile's first queries", "pairs", "attention_sm90/variant_term_producer.cuh",
     "tile.first_query(consumer), axes", "tile.first_query(0), axes"},
    {"boxes have the terms of the first head", "pairs", "attention_sm90/variant_term_producer.cuh",
     "tensor.size[axis] - 1), 0);", "0), 0);"},
    {"the terms are copied while they are read", "pairs_clamped", "attention_sm90/variant_terms.cuh",
     "__syncwarp(); // all lanes have read the terms before", ""},
    {"the entry is written before its buffer is free", "window", "attention_sm90/variant_producer.cuh",
     "mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);\\n    st_shared_4", "st_shared_4"},
};

/* In lists that so many heads share that they have keep words, and of so many tiles that they have an order. */
static const struct mutation shared_mutations[] = {
    {"keep words are read for the neighbour", "document", "attention_sm90/variant_consumer.cuh",
     "+ thread * 2 * Keep::kWords", "+ (thread ^ 1) * 2 * Keep::kWords"},
    {"each block has the first one's keep words", "document", "attention_sm90/variant_producer.cuh", "written++;",
     "written;"},
    {"the bytes of keep words are not waited for", "document", "attention_sm90/variant_producer.cuh",
     "is_written ? shared::kKeepBytes : 0);", "0);"},
    {"rows are taken for the tile's first one", "document", "attention_variant/block_list_words.cuh",
     "shared.rows[own - tile.q0]", "shared.rows[0]"},
    {"a block's keys are taken for its first 16", "document", "attention_variant/block_list.cu",
     "keys = kjit_variant_join_keys(keys, other);", ";"},
    {"pieces that are partial are not judged", "document", "attention_variant/block_list_words.cuh",
     "if (step_seen != 0 && step_unseen != 0)", "if (step_seen == 0 && step_unseen != 0)"},
    {"a part's pieces are taken for those of the first", "dilated", "attention_variant/block_list_words.cuh",
     "piece = part * pieces", "piece = 0 * pieces"},
    {"32 rows are taken for one of them", "document", "attention_variant/block_list.cu",
     "side = kjit_variant_join_queries(side, side_of_lane(side, lane ^ apart));", ";"},
    {"keys beyond the end have keep words", "document", "attention_variant/block_list_words.cuh",
     "keep.drop_from(rows[r].limit - first_key - lane % 4 * 2);", ";"},
    {"lists are not ordered before and behind their arrivals", "kept_document",
     "attention_variant/block_list_order.cuh", "atom_acq_rel_add(", "atomicAdd("},
    {"tiles of as many entries have one place", "kept_dilated", "attention_variant/block_list_order.cuh",
     "* tile.p.query_tiles + which", "* tile.p.query_tiles"},
    {"a tile has the entries of the one in whose turn it comes", "kept_document", "attention_sm90/variant_tile.cuh",
     "tile.query_tile = listed.query_tile;", ";"},
};

/* In lists of which one tile's is much longer than the others. */
static const struct mutation uneven_mutations[] = {
    {"tiles that came ahead come again", "kept_first_rows", "attention_sm90/schedule.cuh", "(is_ahead ? 0 : ahead)",
     "0"},
    {"what warps have seen of tiles ahead is left out", "kept_first_rows", "attention_variant/block_list_order.cuh",
     "__syncthreads(); // what all warps", "// what all warps"},
};

/* Where a tile's blocks are not neighbours. */
static const struct mutation longer_mutations[] = {
    {"terms that were copied ahead are taken for every block's", "clamped_streaming",
     "attention_sm90/variant_terms.cuh", "if (first_key == key) return;", "if (first_key != kNoKey) return;"},
    {"terms are written over those that are being copied", "clamped_streaming", "attention_sm90/variant_terms.cuh",
     "wait(); // for another block's, which would be written to the same place", ";"},
    {"a walk that begins near its end goes on beyond it", "distance", "attention_variant/walk_order.cuh",
     "count - 1 - turn : turn", "turn : turn"},
    {"terms of a walk's blocks are taken for those of neighbours", "pairs_streaming",
     "attention_sm90/variant_term_producer.cuh", "load_block(place, block_of(walk, i));",
     "load_block(place, walk.count - 1 - i);"},
    {"terms are divided by the slope of e", "clamped_streaming", "attention_variant/row_score.cuh", "kLog2E / slope",
     "1 / slope"},
};

/* Stopped by the emulator, or wrong. */
static bool is_caught(const struct gpu_fixture *fixture, const struct variant_shape *of,
                      const struct mutation *mutation) {
  struct variant_report report = {0};
  kjit_error error = {0};
  emulator_mutate(mutation->file, mutation->before, mutation->after);
  kjit_runtime *const runtime = emulator_runtime_anew(&error);
  const kjit_status status =
      variant_trial_run(&fixture->card, runtime, variant_case_named(mutation->variant), of, NULL, 7, &report, &error);
  kjit_runtime_destroy(runtime);
  return emulator_stopped_mutation(&fixture->card, mutation->what, status, &error) || !report.passed;
}

static void find_missed(void **state, const struct variant_shape *of, const struct mutation *all, size_t count) {
  const struct gpu_fixture *fixture = gpu_require(state);
  size_t missed = 0;
  for (size_t i = 0; i < count; i += emulator_mutation_step()) {
    if (is_caught(fixture, of, &all[i])) continue;
    print_error("%s, and the result is right\n", all[i].what);
    missed++;
  }
  assert_int_equal(0, missed);
}

static void test_variant__mistakes_are_caught(void **state) {
  find_missed(state, &shape, mutations, sizeof mutations / sizeof *mutations);
}

static void test_variant__mistakes_with_shared_lists_are_caught(void **state) {
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "2", 1));
  find_missed(state, &shared, shared_mutations, sizeof shared_mutations / sizeof *shared_mutations);
}

static void test_variant__mistakes_with_distant_blocks_are_caught(void **state) {
  find_missed(state, &longer, longer_mutations, sizeof longer_mutations / sizeof *longer_mutations);
}

static void test_variant__mistakes_with_uneven_tiles_are_caught(void **state) {
  static const struct variant_shape uneven = {1, 1, 1, 1540, 700, 64, true};
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "2", 1));
  find_missed(state, &uneven, uneven_mutations, sizeof uneven_mutations / sizeof *uneven_mutations);
}

static int setup(void **state) {
  (void)setenv("KJIT_EMULATOR_QUIET", "1", 1); /* complaints are what is wanted here */
  return emulator_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_variant__mistakes_are_caught),
                                     cmocka_unit_test(test_variant__mistakes_with_shared_lists_are_caught),
                                     cmocka_unit_test(test_variant__mistakes_with_distant_blocks_are_caught),
                                     cmocka_unit_test(test_variant__mistakes_with_uneven_tiles_are_caught)};
  return cmocka_run_group_tests_name("mutations of variants", tests, setup, gpu_teardown);
}
