/* The kernels with one_part for many rows and for caches of 8 bits with one mistake each (serving_mutation.h): the
 * emulator must not find them right. */
#include "serving_mutation.h"

#include <stdlib.h>

#include "support/test.h"

/* Caught by more rows of a sequence than a tile has, which the kernel with one_part for two warpgroups takes. */
static const struct mutation many_rows_mutations[] = {
    {"every tile has the first rows", "attention_serving_sm90/one_part_result.cuh", "part.row_tile * cfg::kRows + row;",
     "row;"},
    {"a stage is filled again while it is multiplied", "attention_serving_sm90/one_part_turns.cuh",
     "mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"the second warpgroup's rows are not kept", "attention_serving_sm90/one_part_result.cuh",
     "if (own_row(r) >= rows) continue;\\n      float *const to",
     "if (own_row(r) >= 64) continue;\\n      float *const to"},
    {"every part is of the first rows", "attention_serving_sm90/part.cuh",
     "out.row_tile = of_sequence - out.head * p.row_tiles;", "out.row_tile = 0;"},
    {"both warpgroups multiply the first rows", "attention_serving_sm90/one_part_turns.cuh",
     "consumer * SERVING_SM90_M * cfg::kRowBytes", "0 * SERVING_SM90_M"},
    {"Q is not fenced off from wgmma", "attention_serving_sm90/one_part_turns.cuh", "fence_async_proxy(); // with",
     "// with"},
    {"the last block of V is left out", "attention_serving_sm90/one_part_turns.cuh", "last_output();", ";"},
    {"a row of V behind the last key is left", "attention_serving_sm90/one_part_turns.cuh",
     "int i = from * 8 + (int)threadIdx.x;", "int i = (from + 1) * 8 + (int)threadIdx.x;"},
    {"V is multiplied before both warpgroups have cleared it", "attention_serving_sm90/one_part_turns.cuh",
     "// before V is multiplied\\n    cfg::sync_workers();", "// before V is multiplied"},
    {"a maximum that is too low stays", "attention_serving_sm90/one_part_turns.cuh", "if (tries > 0) softmax.raise_max",
     "if (tries > 2) softmax.raise_max"},
    {"one key too many is seen", "attention_serving_sm90/one_part_turns.cuh", "if (n * 8 + i >= valid)",
     "if (n * 8 + i > valid)"},
};

/* Caught by sequences of different lengths that make more tiles of 128 rows than multiprocessors can share. */
static const struct mutation runs_mutations[] = {
    {"a run's partial results share their memory", "attention_serving_sm90/one_part_result.cuh",
     "2 * block + (number == 0)", "2 * block"},
    {"a further part has the rows of the part before", "attention_serving_sm90/one_part_turns.cuh",
     "query.load(p, result, warp, lane);\\n      cfg::sync_workers();", "cfg::sync_workers();"},
    {"Q is written while it is multiplied", "attention_serving_sm90/one_part_turns.cuh",
     "cfg::sync_workers(); // Q has been multiplied", "// Q has been multiplied"},
    {"a part's last stage is not given back", "attention_serving_sm90/one_part_turns.cuh",
     "mbarrier_arrive_if(at.values_empty(values.slot), lane == 0);\\n      values.advance();", "values.advance();"},
    {"a further part's keys are expected in the first stage", "attention_serving_sm90/one_part_boxes.cuh",
     "const int distance = slot() - first;", "const int distance = slot();"},
    {"a tile without keys has no place on the line", "attention_serving_sm90/one_part_runs.cuh",
     "return parts::larger(blocks, 1);", "return blocks;"},
    {"a tile's last part ends with the run before", "attention_serving_sm90/one_part_runs.cuh",
     "last = quotient(begins + blocks - 1, length);", "last = quotient(begins + blocks, length);"},
    {"every part is of a tile's first keys", "attention_serving_sm90/one_part_runs.cuh",
     "out.from = kFront > 0 ? parts::larger(at - begins, 0) : at - begins;", "out.from = 0;"},
    {"a part of a tile of few parts is left out", "attention_serving_sm90/one_part_result.cuh",
     "if (i >= part.parts || quad >= quads) continue;", "if (i + 1 >= part.parts || quad >= quads) continue;"},
    {"neighbouring blocks of threads have the same head", "attention_serving_sm90/one_part_runs.cuh",
     "((int)blockIdx.x & ((1 << p.abreast_log2) - 1))", "0"},
    {"a tile's parts are in neighbouring blocks of threads", "attention_serving_sm90/one_part_result.cuh",
     "ahead * (1 << p.abreast_log2)", "ahead"},
};

/* The same with few rows. */
static const struct mutation few_rows_runs_mutations[] = {
    {"a run's partial results share their memory", "attention_serving_sm90/one_part_result.cuh",
     "2 * block + (number == 0)", "2 * block"},
    {"the blocks of a part are counted from the run's begin", "attention_serving_sm90/run_loads.cuh",
     "block = part.from;", "block = 0;"},
    {"a lane has but its first sequence", "attention_serving_sm90/one_part_runs.cuh",
     "if constexpr (!kKeepsCosts) out.keys = of_next;\\n        index++;", ";"},
};

/* The same in pages a box of which has all bands of a head. */
static const struct mutation grouped_mutations[] = {
    {"K is not given back", "attention_serving_sm90/one_part.cuh",
     "mbarrier_arrive_if(at.keys_empty(slot), lane == 0);", ";"},
    {"every box is of the first head", "attention_serving_sm90/one_part_boxes.cuh", "part.head * head_bands",
     "0 * head_bands"},
    {"every box is of a page's first positions", "attention_serving_sm90/one_part_boxes.cuh", "row / kPatternRows",
     "0"},
    {"bands are as far apart as with boxes of a band", "kjit/banded_tile.cuh",
     "kToNextBand = kGrouped ? kPatternBytes :", "kToNextBand ="},
    {"rows are as far apart as with boxes of a band", "kjit/banded_tile.cuh",
     "kToNextPattern = kGrouped ? kBands * kPatternBytes :", "kToNextPattern ="},
    {"a row of V behind the last key is left", "kjit/banded_tile.cuh", "pattern * (kToNextPattern - kPatternBytes)",
     "0 * pattern"},
};

/* And in pages whose rows are loaded one by one. */
static const struct mutation gathered_runs_mutations[] = {
    {"the next pages are those before them", "attention_serving_sm90/one_part_rows.cuh",
     "if (slot() == slot_now) go_on(part);", ";"},
    {"every block is where the first lanes say", "attention_serving_sm90/one_part_rows.cuh",
     "slot_now = slot_now + 1 < kSlots ? slot_now + 1 : 0;", "slot_now = 0;"},
    {"a further part's keys are looked up by the first lanes", "attention_serving_sm90/one_part_rows.cuh",
     "next += slot() < slot_now ? kSlots - slot_now : -slot_now;", ";"},
    {"what was loaded is not fenced off from wgmma", "attention_serving_sm90/one_part.cuh",
     "fence_async_proxy(); // values", "; // values"},
    {"every row is of the first warp", "attention_serving_sm90/one_part_rows.cuh", "warp * kRows + lane % kRows",
     "lane % kRows"},
};

/* Caught by a cache of e4m3 and so few tiles that the kernel with one_part takes them. */
static const struct mutation narrow_one_part_mutations[] = {
    {"a row of V behind the last key is left", "attention_serving_sm90/one_part_e4m3.cuh",
     "int i = from * kRowChunks + thread;", "int i = (from + 1) * kRowChunks + thread;"},
    {"a part forgets what the values are multiplied by", "attention_serving_sm90/one_part_e4m3.cuh", "products.end();",
     ";"},
    {"a row sees the keys behind it", "attention_serving_sm90/one_part_e4m3.cuh",
     "seen[r].high = smallest(query + part.keys - p.rows_q + p.window_right + 1);", ";"},
    {"partial results are written before all warps have left theirs", "attention_serving_sm90/one_part_e4m3.cuh",
     "cfg::sync_workers(); // every warp has left its O", "// every warp has left its O"},
    {"a part's result is left where that of the part before is read", "attention_serving_sm90/one_part_e4m3.cuh",
     "cfg::sync_workers(); // what the part", "; // what the part"},
};

/* Caught by more tiles of heads of 256 columns than multiprocessors. */
static const struct mutation narrow_runs_mutations[] = {
    {"Q is read before it is there", "attention_serving_sm90/one_part_e4m3.cuh",
     "cfg::sync_workers(); // Q of all rows is there", "// Q of all rows is there"},
    {"K is loaded while it is multiplied", "attention_serving_sm90/one_part_e4m3.cuh",
     "mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"V is loaded while it is multiplied", "attention_serving_sm90/one_part_e4m3.cuh",
     "mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"K is given back before all lanes have read it", "attention_serving_sm90/one_part_e4m3.cuh",
     "__syncwarp(); // all lanes have read K", "// all lanes have read K"},
    {"a further part is expected in the first stage", "attention_serving_sm90/one_part_e4m3.cuh",
     "loads.begin(now, ring.slot);", "loads.begin(now, 0);"},
    {"a part is handed on in the place of one that is not read yet", "attention_serving_sm90/one_part_e4m3.cuh",
     "mbarrier_wait_parity(at.job_empty(jobs.slot), jobs.parity ^ 1);", ";"},
    {"a part is given back before it is read", "attention_serving_sm90/one_part_e4m3.cuh",
     "const RunPart now = run_part_of(jobs.slot);\\n      mbarrier_arrive(at.job_empty(jobs.slot));",
     "mbarrier_arrive(at.job_empty(jobs.slot));\\n      const RunPart now = run_part_of(jobs.slot);"},
};

static void test_one_part__mistakes_with_many_rows_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = c.heads_kv = 1;
  c.rows[0] = 15;
  c.group = 20; /* tiles of 128, 128 and 44 rows */
  c.cache = SERVING_DENSE;
  c.workspace = c.causal = true;
  c.keys[0] = 1500; /* two parts of a tile, each in more blocks than there are stages */
  assert_caught(state, &c, many_rows_mutations, first_or_all(sizeof many_rows_mutations / sizeof *many_rows_mutations));
}

static void test_one_part__mistakes_with_runs_of_several_tiles_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = 4;
  c.heads_kv = 2; /* as many tiles as multiprocessors; four of each head, on a line of four runs */
  c.group = 7;
  c.cache = SERVING_PAGED;
  c.workspace = c.causal = true;
  for (int b = 0; b < 4; b++) {
    static const int keys[] = {3150, 0, 3550, 2000};
    c.rows[b] = 11;
    c.keys[b] = keys[b]; /* the second run ends one tile and begins another, which ends where the third run does */
  }
  assert_caught(state, &c, runs_mutations, first_or_all(sizeof runs_mutations / sizeof *runs_mutations));
}

static void test_one_part__mistakes_with_runs_of_few_rows_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = 9; /* a lane has eight sequences */
  c.heads_kv = 2;
  c.group = 6;
  c.cache = SERVING_PAGED;
  c.workspace = c.causal = true;
  for (int b = 0; b < 9; b++) {
    c.rows[b] = 3;
    c.keys[b] = b % 3 == 1 ? 0 : 150 + 170 * (b % 4);
  }
  assert_caught(state, &c, few_rows_runs_mutations,
                first_or_all(sizeof few_rows_runs_mutations / sizeof *few_rows_runs_mutations));
  c.head_dim = c.head_dim_v = 128;
  c.page_size = 128;
  assert_caught(state, &c, grouped_mutations, first_or_all(sizeof grouped_mutations / sizeof *grouped_mutations));
  c.page_size = 1;
  assert_caught(state, &c, gathered_runs_mutations,
                first_or_all(sizeof gathered_runs_mutations / sizeof *gathered_runs_mutations));
}

static void test_one_part__mistakes_with_caches_of_8_bits_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.narrow = c.workspace = c.causal = true;
  c.batch = 5;
  c.heads_kv = 4; /* more tiles than blocks of threads, so that some have several parts */
  c.group = 5;
  c.cache = SERVING_PAGED;
  for (int b = 0; b < 5; b++) {
    c.rows[b] = 2;
    c.keys[b] = b == 1 ? 13 : 700;
  }
  assert_caught(state, &c, narrow_one_part_mutations,
                first_or_all(sizeof narrow_one_part_mutations / sizeof *narrow_one_part_mutations));
}

static void test_one_part__mistakes_with_runs_of_caches_of_8_bits_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.narrow = c.workspace = true;
  c.batch = 7; /* a lane has four sequences */
  c.heads_kv = 3;
  c.group = 6;
  c.head_dim = c.head_dim_v = 256;
  c.cache = SERVING_PAGED;
  for (int b = 0; b < 7; b++) {
    c.rows[b] = 1;
    c.keys[b] = b % 3 == 1 ? 0 : 50 + 170 * (b % 4);
  }
  assert_caught(state, &c, narrow_runs_mutations,
                first_or_all(sizeof narrow_runs_mutations / sizeof *narrow_runs_mutations));
}

static int setup(void **state) {
  const int result = serving_mutation_setup(state);
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "8", 1)); /* so that each tile has parts */
  return result;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_part__mistakes_with_many_rows_are_caught),
      cmocka_unit_test(test_one_part__mistakes_with_runs_of_several_tiles_are_caught),
      cmocka_unit_test(test_one_part__mistakes_with_runs_of_few_rows_are_caught),
      cmocka_unit_test(test_one_part__mistakes_with_caches_of_8_bits_are_caught),
      cmocka_unit_test(test_one_part__mistakes_with_runs_of_caches_of_8_bits_are_caught),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("mutations of one_part", tests, setup, gpu_teardown);
}
