/* Serving attention on small problems, caches of e4m3 among them, judged beside float64: small enough to run under
 * compute-sanitizer. Exit code 0: all right; 1: something is not; 3: no GPU. sample.h tells of its arguments.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 gpu_serving_sanitizer_sample
 *   compute-sanitizer --tool initcheck --error-exitcode 9 gpu_serving_sanitizer_sample
 *   compute-sanitizer --tool synccheck --error-exitcode 9 gpu_serving_sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 gpu_serving_sanitizer_sample */
#include <kjit/kjit.h>
#include <stdio.h>

#include "sample.h"
#include "serving_trial.h"

enum { CASES = 39, RUNS = 2 };

/* Multiprocessors to which some problems keep: a block of threads then has many tiles, and problems of many rows are
 * attention_prefill_sm90's, whose tiles are too few for a whole card. */
enum { FEW_MULTIPROCESSORS = 4, FIRST_OF_FEW = 26 };

/* Decoding: dense, pages of 1, 16 and 64, keys that many blocks share, several rows, a window, empty sequences. */
static void list_decoding(struct serving_case *cases) {
  static const int pages[] = {1, 16, 64};
  for (int i = 0; i < 7; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 4, (const int[]){1, 1, 1, 1}, (const int[]){300, 0, 1, 70});
    c->heads_kv = 2;
    c->group = 4;
    c->head_dim = c->head_dim_v = i % 2 ? 64 : 128;
    c->cache = i ? SERVING_PAGED : SERVING_DENSE;
    c->page_size = pages[i % 3];
  }
  cases[1].keys[0] = 2000;
  cases[2].schedule = true;
  cases[3].window_left = 40;
  for (int b = 0; b < 4; b++)
    cases[4].rows[b] = 5;
  cases[4].causal = true;
  for (int i = 5; i < 7; i++) { /* with new keys, whose pass the attention overlaps with */
    cases[i].append = true;
    cases[i].keys[1] = -1;
    cases[i].rotary_columns = 32;
    cases[i].causal = true;
    for (int b = 0; b < 4; b++)
      cases[i].added[b] = 1;
  }
}

/* Prefill: one to three consumers, pages, windows, short sequences, decoded rows, and rows that no sequence has. */
static void list_prefill(struct serving_case *cases) {
  for (int i = 0; i < 7; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 5, (const int[]){200, 0, 1, 33, 130}, (const int[]){200, 9, 140, 33, 300});
    c->heads_kv = 2;
    c->group = 4;
    c->head_dim = c->head_dim_v = i == 6 ? 256 : i % 2 ? 64 : 128;
    c->ragged_q = true;
    c->causal = i != 5;
    c->cache = i < 2 ? SERVING_RAGGED : SERVING_PAGED;
    c->page_size = i % 2 ? 16 : 64;
    c->lse = true;
  }
  for (int i = 0; i < 2; i++)
    serving_set_lengths(&cases[i], 5, (const int[]){128, 0, 1, 33, 250}, (const int[]){128, 9, 60, 33, 255});
  cases[3].window_left = 50;
  cases[4].use_cache_index = true;
  cases[4].page_size = 1;  /* row by row */
  cases[2].keys[2] = 1500; /* one row, whose keys are divided */
  cases[3].keys[2] = 1100;
  cases[5].softcap = 20;
}

/* Equal and different lengths of so few sequences that their kernel is the one with one_part; of 64 and of 128 rows. */
static void list_few_tiles(struct serving_case *cases) {
  for (int i = 0; i < 3; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 3, (const int[]){2, 2, 2}, i ? (const int[]){700, 0, 30} : (const int[]){500, 500, 500});
    c->heads_kv = 2;
    c->group = i < 2 ? 5 : 50;
    c->head_dim = c->head_dim_v = 128;
    c->cache = SERVING_PAGED;
    c->causal = true;
    c->append = i > 0;
    for (int b = 0; b < 3; b++)
      c->added[b] = i > 0;
  }
}

/* More tiles of 64 and of 128 rows than the multiprocessors of an H200 can share: runs of several tiles, of one key
 * head and of four and eight side by side. And few tiles in pages of one key. */
static void list_runs(struct serving_case *cases) {
  static const int heads[] = {23, 44, 24, 2}, groups[] = {5, 33, 17, 5}, pages[] = {64, 16, 16, 1};
  for (int i = 0; i < 4; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 3, (const int[]){2, 2, 2}, (const int[]){900, 0, 30});
    c->heads_kv = heads[i];
    c->group = groups[i];
    c->head_dim = c->head_dim_v = 64;
    c->cache = SERVING_PAGED;
    c->page_size = pages[i];
    c->causal = true;
  }
  cases[3].head_dim = cases[3].head_dim_v = 128;
}

/* Caches of e4m3: few and many tiles of few rows. */
static void list_narrow(struct serving_case *cases) {
  for (int i = 0; i < 2; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 3, (const int[]){1, 1, 1}, (const int[]){900, 0, 30});
    c->narrow = true;
    c->heads_kv = i ? 23 : 2;
    c->group = 4;
    c->head_dim = c->head_dim_v = i ? 64 : 128;
    c->cache = SERVING_PAGED;
    c->page_size = i ? 16 : 64;
    c->causal = true;
  }
}

/* Many rows on caches of e4m3, in pages that boxes of TMA fit and row by row, and new keys that the pass in front
 * quantises. In bf16 the last one's q is beyond fp16, so that its rows are scaled. */
static void list_narrow_prefill(struct serving_case *cases) {
  static const int pages[] = {64, 1, 16};
  for (int i = 0; i < 3; i++) {
    struct serving_case *c = &cases[i];
    serving_set_lengths(c, 4, (const int[]){150, 0, 1, 33}, (const int[]){200, 9, 300, 33});
    c->narrow = true;
    c->heads_kv = 2;
    c->group = 4;
    c->head_dim = c->head_dim_v = i == 1 ? 64 : 128;
    c->cache = SERVING_PAGED;
    c->page_size = pages[i];
    c->causal = true;
    c->ragged_q = true;
    c->append = i == 0;
    for (int b = 0; b < c->batch && i == 0; b++)
      c->added[b] = 1;
  }
  if (cases[2].dtype != KJIT_BF16) return;
  cases[2].query_size = 1e9f;
  cases[2].scale = 1e-10f;
}

/* More tiles for a block of threads than shares that its loading warp may be ahead of. With a window, and K and V of 16
 * and of 8 bits, attention_serving's schedule is walked along; without, and with heads of 192 columns, runs are. */
static void list_many_shares(struct serving_case *cases) {
  for (int i = 0; i < 3; i++) {
    struct serving_case *c = &cases[i];
    c->batch = i < 2 ? 40 : 14;
    for (int b = 0; b < c->batch; b++) {
      c->rows[b] = 1;
      c->keys[b] = 1 + 37 * b % 90;
    }
    c->narrow = i > 0;
    c->heads_kv = 2;
    c->group = 4;
    c->head_dim = c->head_dim_v = i < 2 ? 64 : 192;
    c->cache = SERVING_PAGED;
    c->page_size = 64;
    c->window_left = i < 2 ? 50 : -1;
    c->causal = true;
  }
}

_Static_assert(SERVING_TEXT_MAX <= SAMPLE_VERDICT_MAX, "a verdict fits");

static kjit_status run_case(const struct sample *sample, const void *problem, struct sample_verdict *verdict,
                            kjit_error *error) {
  struct serving_trial trial;
  kjit_status status = serving_trial_create(&trial, sample->runtime, &sample->card, problem, error);
  for (int run = 0; run < RUNS && status == KJIT_OK; run++) { /* the second finds the first one's counters */
    status = serving_trial_reset(&trial, error);
    if (status == KJIT_OK) status = serving_trial_enqueue(&trial, sample->card.stream, error);
    if (status == KJIT_OK) status = card_synchronize(&sample->card, sample->card.stream, error);
  }
  verdict->passed = status == KJIT_OK && serving_trial_judge(&trial, verdict->text, error);
  serving_trial_destroy(&trial);
  return status;
}

static int run_all(const struct sample *sample) {
  struct serving_case cases[CASES];
  int failures = 0;
  for (int i = 0; i < CASES; i++) {
    cases[i] = serving_plain_case();
    cases[i].seed = (uint64_t)i;
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
  }
  list_decoding(cases);
  list_prefill(cases + 7);
  list_few_tiles(cases + 14);
  list_runs(cases + 17);
  list_narrow(cases + 21);
  list_narrow_prefill(cases + 23);
  list_many_shares(cases + FIRST_OF_FEW);
  list_prefill(cases + 29);
  list_narrow_prefill(cases + 36);
  for (int i = FIRST_OF_FEW; i < CASES; i++)
    cases[i].sm_margin = sample->card.multiprocessors - FEW_MULTIPROCESSORS;
  for (int i = 0; i < CASES; i++) {
    char what[SERVING_TEXT_MAX];
    serving_case_print(&cases[i], what);
    failures += !sample_try(sample, (size_t)i, what, run_case, &cases[i]);
  }
  printf("%d not right\n", failures);
  return failures ? 1 : 0;
}

int main(int argc, char **argv) {
  return sample_main(argc, argv, NULL, run_all);
}
