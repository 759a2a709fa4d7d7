/* attention_serving_sm90's kernel for calls with few tiles with one mistake each: the emulator must not find it right.
 */
#include <stdlib.h>

#include "serving_mutation.h"
#include "support/test.h"

/* Caught by decoding of two sequences in pages on Hopper, for which the kernel with one_part is. As above, the first by
 * default. */
static const struct mutation one_part_mutations[] = {
    {"a row of V behind the last key is left", "attention_serving_sm90/one_part.cuh", "int i = from * 8 + thread;",
     "int i = (from + 1) * 8 + thread;"},
    {"what was cleared is not fenced off from wgmma", "attention_serving_sm90/one_part.cuh",
     "fence_async_proxy(); // before V", "// before V"},
    {"one key too many is seen", "attention_serving_sm90/one_part.cuh", "if (n * 8 + i >= valid)",
     "if (n * 8 + i > valid)"},
    {"nobody waits for V", "attention_serving_sm90/one_part.cuh", "mbarrier_wait_parity(at.values_full(slot), parity);",
     ";"},
    {"rows that do not exist are written", "attention_serving_sm90/one_part_result.cuh",
     "if (own_row(r) >= rows) continue;\\n      float *const to", "float *const to"},
    {"a page is looked up in the row of another sequence", "attention_serving_sm90/one_part_boxes.cuh",
     "p.page_table[part.sequence * p.page_table_stride + page]", "p.page_table[page]"},
    {"the next pages are those before them", "attention_serving_sm90/one_part_boxes.cuh",
     "next += cfg::kStages;\\n    look_up(part);", "next += cfg::kStages;"},
    {"K is loaded while it is multiplied", "attention_serving_sm90/one_part_boxes.cuh",
     "mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"V is loaded while it is multiplied", "attention_serving_sm90/one_part_boxes.cuh",
     "mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);", ";"},
    {"partial results are merged before all have arrived", "attention_serving_sm90/one_part_result.cuh",
     "if (!arrives_last) wait_for_all();", ";"},
    {"arriving orders nothing", "attention_serving_sm90/one_part_result.cuh", "atom_acq_rel_add(met(),",
     "(uint32_t)atomicAdd(met(),"},
    {"who waited does not see what the others wrote", "attention_serving_sm90/one_part_result.cuh",
     "ld_acquire_u32(met())", "*(volatile int *)met()"},
    {"a part of a tile ends a key block early", "attention_serving_sm90/part.cuh", "of_tile : out.from + most;",
     "of_tile - 1 : out.from + most;"},
    {"every part is of the first head", "attention_serving_sm90/part.cuh", "out.head = tile / p.row_tiles;",
     "out.head = 0;"},
};

/* Caught by the same in pages of four positions. As above. */
static const struct mutation gathered_mutations[] = {
    {"what was loaded is not fenced off from wgmma", "attention_serving_sm90/one_part.cuh",
     "fence_async_proxy(); // keys", "; // keys"},
    {"lanes arrive before their copies are done", "attention_serving_sm90/one_part_rows.cuh",
     "cp_async_mbarrier_arrive(at.values_full", "mbarrier_arrive(at.values_full"},
    {"a page is looked up in the row of another sequence", "attention_serving_sm90/one_part_rows.cuh",
     "p.page_table[part.sequence * p.page_table_stride + index]", "p.page_table[index]"},
    {"a row behind the last key is loaded", "attention_serving_sm90/one_part_rows.cuh", "if (key < part.keys) page",
     "if (key <= part.keys) page"},
    {"every row is swizzled as the first ones", "attention_serving_sm90/one_part_rows.cuh", "^ i % 8 ^", "^"},
    {"a page's positions are the first one", "attention_serving_sm90/one_part_rows.cuh", "(uint32_t)row * rows.seq",
     "0u * rows.seq"},
    {"the next pages are those before them", "attention_serving_sm90/one_part_rows.cuh",
     "next += kSlots;\\n    look_up(part);", "next += kSlots;"},
};

static void test_few_tiles__mistakes_are_caught(void **state) {
  struct serving_case c = serving_plain_case();
  c.batch = c.heads_kv = 2;
  c.group = 37; /* slices of the result for all blocks of threads */
  c.cache = SERVING_PAGED;
  c.workspace = true;
  c.rows[0] = c.rows[1] = 1;
  c.keys[0] = 2600; /* parted among blocks of threads, each part in more blocks than there are stages */
  c.keys[1] = 70;
  /* Four tiles for sixteen blocks of threads. */
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "8", 1));
  assert_caught(state, &c, one_part_mutations, first_or_all(sizeof one_part_mutations / sizeof *one_part_mutations));
  c.page_size = 4;
  assert_caught(state, &c, gathered_mutations, first_or_all(sizeof gathered_mutations / sizeof *gathered_mutations));
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "4", 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_tiles__mistakes_are_caught),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("mutations of calls with few tiles", tests, serving_mutation_setup, gpu_teardown);
}
