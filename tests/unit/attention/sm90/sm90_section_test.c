#include "support/test.h"

#include "attention/sm90/sm90_tiles.h"
#include "attention_sm90/layout.h"

#define MIB (1024 * 1024)

/* An H200 and an H100, as far as sections care. */
enum { SMS = 132, L2_BYTES = 60 * MIB, L2_BYTES_OF_H100 = 50 * MIB };

static kjit_attention_problem causal(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq, int64_t head_dim) {
  return (kjit_attention_problem){.dtype = KJIT_BF16,
                                  .flags = KJIT_ATTENTION_CAUSAL,
                                  .batch = batch,
                                  .heads_q = heads_q,
                                  .heads_kv = heads_kv,
                                  .seq_q = seq,
                                  .seq_kv = seq,
                                  .head_dim = head_dim,
                                  .head_dim_v = head_dim};
}

static int64_t section_of(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq, int64_t head_dim) {
  const kjit_attention_problem problem = causal(batch, heads_q, heads_kv, seq, head_dim);
  const kjit_attention_sm90_config config = {.consumers = 2, .tile_n = 128, .packed = 1};
  const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
  return sm90_tiles_section(&tiles, &problem, SMS, L2_BYTES);
}

/* Give a tile to the multiprocessor that is done first. */
static void take(int64_t busy_until[SMS], int64_t time) {
  size_t first = 0;
  for (size_t i = 1; i < SMS; i++) {
    if (busy_until[i] < busy_until[first]) first = i;
  }
  busy_until[first] += time;
}

/* How long the card works on all tiles, taken section after section and the longest first, in per cent of what they
 * would take if no multiprocessor were ever idle. A tile takes its key blocks and one more. */
static int64_t percent_of_ideal(const kjit_attention_problem *problem, int32_t consumers, int32_t tile_n,
                                uint64_t l2_bytes) {
  const kjit_attention_sm90_config config = {.consumers = consumers, .tile_n = tile_n, .packed = 1};
  const struct sm90_tiles tiles = sm90_tiles_of(problem, &config);
  const int64_t pairs = tiles.heads * problem->batch, rows = (int64_t)SM90_GROUP_ROWS * consumers;
  const int64_t section = sm90_tiles_section(&tiles, problem, SMS, l2_bytes);
  int64_t busy_until[SMS] = {0}, all = 0, last = 0;
  for (int64_t first = 0; first < pairs; first += section) {
    const int64_t width = pairs - first < section ? pairs - first : section;
    for (int64_t tile = tiles.query_tiles * width - 1; tile >= 0; tile--) {
      const int64_t end = (tile / width + 1) * rows, keys = end < problem->seq_kv ? end : problem->seq_kv;
      const int64_t time = (keys + tile_n - 1) / tile_n + 1;
      take(busy_until, time);
      all += time;
    }
  }
  for (size_t i = 0; i < SMS; i++)
    last = busy_until[i] > last ? busy_until[i] : last;
  return last * SMS * 100 / all;
}

/* 2 MiB of K and V a head: 16 of them are just over half of L2. */
static void test_sm90_section__section_fits_l2(void **state) {
  (void)state;
  assert_int_equal(16, section_of(4, 16, 16, 4096, 128));
}

/* 4 MiB a head, so 8 fit, and 10 fit two thirds; 25 pairs are 5 sections of 5, not 8, 8, 8 and 1. */
static void test_sm90_section__sections_are_alike(void **state) {
  (void)state;
  assert_int_equal(8, section_of(3, 10, 10, 8192, 128)); /* 8, 8, 8, 6 */
  assert_int_equal(5, section_of(5, 5, 5, 8192, 128));
}

/* The nine sixteenths of an H100's 50 MiB hold 3 of 16 heads of 8 MiB, and a sixth section of one head would leave most
 * of the card idle at the end. */
static void test_sm90_section__launch_ends_evenly(void **state) {
  (void)state;
  static const struct {
    int64_t seq, head_dim;
    int32_t consumers, tile_n;
  } cells[] = {{4096, 64, 3, 128}, {16384, 64, 3, 128}, {4096, 128, 2, 128}, {8192, 128, 3, 80}, {16384, 128, 3, 80},
               {2048, 256, 2, 64}, {4096, 256, 2, 64},  {8192, 256, 2, 64},  {16384, 256, 2, 64}};
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
    const int64_t batch = 16384 / cells[i].seq, heads = 2048 / cells[i].head_dim;
    const kjit_attention_problem problem = causal(batch, heads, heads, cells[i].seq, cells[i].head_dim);
    assert_in_range(percent_of_ideal(&problem, cells[i].consumers, cells[i].tile_n, L2_BYTES), 100, 104);
    assert_in_range(percent_of_ideal(&problem, cells[i].consumers, cells[i].tile_n, L2_BYTES_OF_H100), 100, 104);
  }
}

/* 16 MiB a key head of two query heads. 18 pairs are 9 sections of 2, not 6 of 3, in which key heads are read twice. */
static void test_sm90_section__even_sections_are_of_whole_key_heads(void **state) {
  (void)state;
  assert_int_equal(2, section_of(1, 18, 9, 16384, 256));
}

static void test_sm90_section__section_fills_the_card(void **state) {
  (void)state;
  assert_true(section_of(16, 16, 16, 16384, 256) * (16384 / 128) >= 132);
}

static void test_sm90_section__heads_that_share_keys_count_once(void **state) {
  (void)state;
  assert_int_equal(64, section_of(4, 64, 16, 4096, 128));
}

/* Sections of whole rounds of few tiles begin with as many long tiles as there are multiprocessors, time and again. */
static void test_sm90_section__of_few_tiles_is_no_whole_round(void **state) {
  (void)state;
  assert_int_equal(44, section_of(32, 32, 32, 512, 64));
  assert_int_equal(44, section_of(32, 16, 16, 512, 128));
  assert_int_equal(22, section_of(135, 8, 8, 383, 192));
  assert_int_equal(33, section_of(28, 64, 64, 197, 256));
  assert_int_equal(34, section_of(28, 64, 32, 197, 256)); /* whole key heads */
  assert_int_equal(64, section_of(1, 64, 64, 512, 64));   /* few rounds: the longest tiles first */
}

/* Few queries over many keys: the tiles of a head are about equally long. */
static void test_sm90_section__of_a_chunks_few_tiles_is_no_whole_round(void **state) {
  (void)state;
  const kjit_attention_sm90_config config = {.consumers = 2, .tile_n = 128, .packed = 1};
  static const struct { int64_t pairs, seq_q, section; } rows[] = {{186, 247, 33}, {196, 170, 33}, {131, 247, 66}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = causal(1, rows[i].pairs, rows[i].pairs, 3959, 128);
    problem.seq_q = rows[i].seq_q;
    const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
    assert_int_equal(rows[i].section, sm90_tiles_section(&tiles, &problem, SMS, L2_BYTES_OF_H100));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_section__section_fits_l2),
      cmocka_unit_test(test_sm90_section__sections_are_alike),
      cmocka_unit_test(test_sm90_section__launch_ends_evenly),
      cmocka_unit_test(test_sm90_section__even_sections_are_of_whole_key_heads),
      cmocka_unit_test(test_sm90_section__section_fills_the_card),
      cmocka_unit_test(test_sm90_section__heads_that_share_keys_count_once),
      cmocka_unit_test(test_sm90_section__of_few_tiles_is_no_whole_round),
      cmocka_unit_test(test_sm90_section__of_a_chunks_few_tiles_is_no_whole_round),
  };
  return cmocka_run_group_tests_name("sm90_section", tests, NULL, NULL);
}
