/* Appending and rotating with one mistake each, made by replacing a piece of a kernel's source: the emulator must not
 * find it right. The piece must stand in the source exactly once; otherwise the compile fails, and the test with it. */
#include "serving_mutation.h"

#include <stdlib.h>

#include "support/test.h"

/* Caught by new keys that are appended and rotated by the kernel of few tiles. Each is a compile of a second: the first
 * ones by default. */
enum { BY_DEFAULT = 4 };
static const struct mutation append_mutations[] = {
    {"Q is not rotated", "attention_serving_sm90/one_part.cuh",
     "is_turned ? append::turned_row(at.work(), row) : query_row(query, head)", "query_row(query, head)"},
    {"all rows are rotated by the first position", "attention_serving/rotary.cuh",
     "p.rotary_by_row ? first + query : first", "first"},
    {"a key is appended one position late", "attention_serving_sm90/new_keys.cuh",
     "if (!locate(p, sequence, first + i, in_k, in_v)) {", "if (!locate(p, sequence, first + i + 1, in_k, in_v)) {"},
    {"the columns that are not rotated are forgotten", "attention_serving/rotary.cuh", "if (item >= of_row) {",
     "if (item > of_row) {"},
    {"a new key is placed a row late", "attention_serving_sm90/new_keys.cuh", "first + i - from, is_key",
     "first + i - from + 1, is_key"},
    {"a block is multiplied before new keys are placed", "attention_serving_sm90/one_part.cuh",
     "cfg::sync_workers(); // all have been placed", "// all have been placed"},
    {"what was placed is not fenced off from wgmma", "attention_serving_sm90/new_keys.cuh",
     "fence_async_proxy(); // before the stage", "; // before the stage"},
};

/* Caught by the same over long sequences in pages of one position. */
static const struct mutation gathered_append_mutations[] = {
    {"V is loaded where Q is still read", "attention_serving_sm90/one_part_rows.cuh",
     "waits && ring.slot == cfg::kStages - cfg::kTurnedStages", "waits && block + 1 == part.to"},
};

/* Caught by the same with a window, which the kernel of many tiles serves. */
static const struct mutation windowed_append_mutations[] = {
    {"Q is not rotated", "attention_serving_sm90/worker.cuh", "if (p.cos) return", "if (p.batch < 0) return"},
};

/* Caught by the same behind left padding, which the kernel without TMA serves. */
static const struct mutation padded_append_mutations[] = {
    {"Q is not rotated", "attention_serving/attend.cuh", "rotate_query(p, rows, tile.sequence, tiles);", ";"},
    {"a key is appended one position late", "attention_serving/append.cuh", "p.used_k[found.sequence] + found.index;",
     "p.used_k[found.sequence] + found.index + 1;"},
    {"all rows are rotated by the first position", "attention_serving/tiles.cuh",
     "p.rotary_by_row ? begin + rows.query(row) : begin", "begin"},
};

static struct serving_case appending_case(void) {
  struct serving_case c = serving_plain_case();
  c.batch = 2;
  c.cache = SERVING_PAGED;
  c.append = true;
  c.causal = true;
  c.rows[0] = c.rows[1] = 2;
  c.added[0] = c.added[1] = 2;
  c.keys[0] = 50;
  c.keys[1] = 3;
  c.rotary_columns = 32;
  return c;
}

static void test_serving__mistakes_in_appending_are_caught(void **state) {
  const struct serving_case c = appending_case();
  const size_t all = sizeof append_mutations / sizeof *append_mutations;
  assert_caught(state, &c, append_mutations, getenv("KJIT_TEST_ALL_CONFIGS") ? all : BY_DEFAULT);
}

static void test_serving__mistakes_in_rotating_beside_loads_are_caught(void **state) {
  struct serving_case c = appending_case();
  c.page_size = 1;
  c.group = 30;     /* rows of Q in all of the memory for them */
  c.keys[0] = 1700; /* in parts of more blocks of keys than stages */
  assert_caught(state, &c, gathered_append_mutations,
                sizeof gathered_append_mutations / sizeof *gathered_append_mutations);
}

static void test_serving__mistakes_in_appending_with_a_window_are_caught(void **state) {
  struct serving_case c = appending_case();
  c.window_left = 40;
  assert_caught(state, &c, windowed_append_mutations,
                sizeof windowed_append_mutations / sizeof *windowed_append_mutations);
}

static void test_serving__mistakes_in_appending_behind_padding_are_caught(void **state) {
  struct serving_case c = appending_case();
  c.use_leftpad = true;
  c.leftpad[0] = 3;
  assert_caught(state, &c, padded_append_mutations, sizeof padded_append_mutations / sizeof *padded_append_mutations);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving__mistakes_in_appending_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_rotating_beside_loads_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_appending_with_a_window_are_caught),
      cmocka_unit_test(test_serving__mistakes_in_appending_behind_padding_are_caught),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("mutations of appending", tests, serving_mutation_setup, gpu_teardown);
}
