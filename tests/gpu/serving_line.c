/* A schedule beside a plain walk along the line of all work, of sequences of one row and one head each, so that a
 * sequence is one tile as long as its keys and what starting it costs.
 *
 * Steps: lengths, by chance or beyond what a cache holds; the schedule; the walk. One thread. */
#include "serving_line.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "attention_serving/params.h"
#include "support/test.h"

enum { MOST = 5000, OVERHEAD = 128, LEAST = 256, PAGES = 4, PAGE = 16, COLUMNS = 64, CUT = 6 };

struct line {
  struct card_buffer lengths, table, cache, schedule;
  int batch;
  int32_t keys[MOST], given[MOST]; /* what the sequences have, and the lengths that say so */
};

static void create(const struct gpu_fixture *fixture, struct line *line, kjit_attention_serving_args *args) {
  const struct card *card = &fixture->card;
  const size_t bytes = (size_t)line->batch * sizeof *line->given;
  kjit_error error = {0};
  assert_status(KJIT_OK, card_buffer_create(card, &line->lengths, bytes, &error), &error);
  assert_status(KJIT_OK, card_buffer_create(card, &line->table, 4, &error), &error);
  assert_status(KJIT_OK, card_buffer_create(card, &line->cache, (size_t)line->batch * COLUMNS * 2, &error), &error);
  assert_status(KJIT_OK, card_write(card, line->lengths.address, line->given, bytes, &error), &error);
  void *const rows = (void *)(uintptr_t)line->cache.address;
  args->batch = line->batch;
  args->q = args->o = kjit_tensor_bshd(rows, KJIT_FP16, card->ordinal, line->batch, 1, 1, COLUMNS);
  args->k = args->v = kjit_tensor_bshd(rows, KJIT_FP16, card->ordinal, PAGES, PAGE, 1, COLUMNS);
  args->page_table = (const int32_t *)(uintptr_t)line->table.address;
  args->max_pages = PAGES;
  args->seqused_k = (const int32_t *)(uintptr_t)line->lengths.address;
}

/* The schedule, of `bytes`; to be freed. */
static struct attention_serving_plan_head *make_schedule(const struct gpu_fixture *fixture, struct line *line,
                                                         kjit_attention_serving_args *args, size_t bytes) {
  const struct card *card = &fixture->card;
  kjit_error error = {0};
  assert_status(KJIT_OK, card_buffer_create(card, &line->schedule, bytes, &error), &error);
  args->schedule = (const void *)(uintptr_t)line->schedule.address;
  args->schedule_bytes = bytes;
  assert_status(KJIT_OK, kjit_attention_schedule(fixture->runtime, args, card->stream, &error), &error);
  assert_status(KJIT_OK, card_synchronize(card, card->stream, &error), &error);
  struct attention_serving_plan_head *const found = malloc(bytes);
  assert_non_null(found);
  assert_status(KJIT_OK, card_read(card, found, line->schedule.address, bytes, &error), &error);
  return found;
}

static void expect_walk(const struct line *line, const struct attention_serving_plan_head *found) {
  const struct attention_serving_run *const runs = (const void *)(found + 1);
  assert_int_equal(found->parts, 0);
  int b = 0;
  int64_t begins = 0, all = 0;
  for (int i = 0; i < line->batch; i++)
    all += line->keys[i] + OVERHEAD;
  const int64_t length = (all + found->runs - 1) / found->runs;
  assert_int_equal(found->length, length < LEAST ? LEAST : length);
  for (int r = 0; r < found->runs; r++) {
    const int64_t at = r * found->length;
    while (b < line->batch && begins + line->keys[b] + OVERHEAD <= at)
      begins += line->keys[b++] + OVERHEAD;
    assert_int_equal(runs[r].sequence, b);
    if (b < line->batch) assert_int_equal(runs[r].begins, begins);
  }
}

static void expect_line(struct gpu_fixture *fixture, struct line *line, kjit_attention_serving_args *args) {
  const struct card *card = &fixture->card;
  kjit_attention_serving_sizes sizes = {.struct_size = sizeof sizes};
  kjit_error error = {0};
  assert_status(KJIT_OK, kjit_attention_serving_get_sizes(fixture->runtime, args, &sizes, &error), &error);
  struct attention_serving_plan_head *const found = make_schedule(fixture, line, args, sizes.schedule_bytes);
  expect_walk(line, found);
  free(found);
  card_buffer_destroy(card, &line->lengths);
  card_buffer_destroy(card, &line->table);
  card_buffer_destroy(card, &line->cache);
  card_buffer_destroy(card, &line->schedule);
  fixture->cases_run++;
}

void serving_expect_line(struct gpu_fixture *fixture, int batch) {
  kjit_attention_serving_args args = kjit_attention_serving_args_default();
  static struct line line;
  assert_in_range(batch, 1, MOST);
  line.batch = batch;
  for (int b = 0; b < batch; b++)
    line.keys[b] = line.given[b] =
        random_below(&fixture->random, 7) ? (int32_t)random_below(&fixture->random, PAGES * PAGE) : 0;
  create(fixture, &line, &args);
  expect_line(fixture, &line, &args);
}

/* In the cache's place there are the paddings in front; new keys are counted, not read. */
void serving_expect_cut_lengths(struct gpu_fixture *fixture) {
  static const int32_t given[CUT] = {INT_MIN, INT_MAX, -1, 10, PAGES * PAGE, INT_MIN};
  static const int32_t pads[CUT] = {5, 0, 0, 3, 1, 0}, keys[CUT] = {0, PAGES * PAGE, 0, 8, PAGES * PAGE - 1, 0};
  kjit_attention_serving_args args = kjit_attention_serving_args_default();
  kjit_error error = {0};
  static struct line line;
  line.batch = CUT;
  memcpy(line.given, given, sizeof given);
  memcpy(line.keys, keys, sizeof keys);
  create(fixture, &line, &args);
  assert_status(KJIT_OK, card_write(&fixture->card, line.cache.address, pads, sizeof pads, &error), &error);
  void *const rows = (void *)(uintptr_t)line.cache.address;
  args.leftpad_k = rows;
  args.k_new = args.v_new = kjit_tensor_bshd(rows, KJIT_FP16, fixture->card.ordinal, CUT, 1, 1, COLUMNS);
  expect_line(fixture, &line, &args);
}
