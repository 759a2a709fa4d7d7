/* Cases of serving attention: a plain one to be changed, and cases by chance. Pure, but for the random numbers. */
#include <stdio.h>
#include <string.h>

#include "serving_trial.h"

struct serving_case serving_plain_case(void) {
  return (struct serving_case){.dtype = KJIT_FP16,
                               .batch = 1,
                               .heads_kv = 1,
                               .group = 1,
                               .head_dim = 64,
                               .head_dim_v = 64,
                               .page_size = 16,
                               .rows = {1},
                               .keys = {100},
                               .window_left = -1,
                               .window_right = -1,
                               .lse = true,
                               .seed = 1};
}

static int pick(struct random *random, const int *values, size_t count) {
  return values[random_below(random, count)];
}
#define PICK(random, ...) pick(random, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static bool chance(struct random *random, size_t one_in) {
  return random_below(random, one_in) == 0;
}

static void random_lengths(struct serving_case *c, struct random *random, int most) {
  const bool decodes = chance(random, 2);
  const int rows = decodes ? PICK(random, 1, 1, 2, 4) : 1 + (int)random_below(random, (size_t)most);
  const int added = PICK(random, 1, 1, 3);
  for (int b = 0; b < c->batch; b++) {
    c->rows[b] = c->ragged_q || c->use_seqused_q ? (int)random_below(random, (size_t)rows + 1) : rows;
    if (b == 0 && c->rows[b] == 0) c->rows[b] = 1; /* without a row of q nothing is done */
    c->keys[b] = chance(random, 8) ? 0 : 1 + (int)random_below(random, (size_t)most);
    if (c->append) c->added[b] = c->ragged_new ? (int)random_below(random, 4) : added;
    if (c->append && !c->ragged_new && added == 1 && chance(random, 12)) c->keys[b] = -1;
    if (c->use_leftpad && c->keys[b] > 0) c->leftpad[b] = (int)random_below(random, (size_t)c->keys[b] + 1);
  }
}

struct serving_case serving_random_case(struct random *random, int most) {
  struct serving_case c = serving_plain_case();
  c.seed = random_next(random);
  c.dtype = chance(random, 2) ? KJIT_BF16 : KJIT_FP16;
  c.batch = PICK(random, 1, 2, 3, 5, 9);
  c.heads_kv = PICK(random, 1, 2, 3);
  c.group = PICK(random, 1, 2, 3, 4, 7, 8);
  c.cache = (enum serving_cache)random_below(random, 3);
  c.layout = (enum serving_layout)random_below(random, 3);
  if (c.cache == SERVING_RAGGED) c.layout = SERVING_NHD;
  c.page_size = PICK(random, 1, 3, 16, 64);
  c.ragged_q = chance(random, 2);
  c.use_seqused_q = chance(random, 4);
  c.append = c.cache != SERVING_RAGGED && chance(random, 3);
  c.ragged_new = c.append && chance(random, 3);
  c.use_cache_index = c.cache != SERVING_RAGGED && chance(random, 4);
  c.use_leftpad = c.cache != SERVING_RAGGED && chance(random, 4);
  if (c.append && chance(random, 2)) c.rotary_columns = PICK(random, 16, 32, 64);
  c.interleaved = chance(random, 2);
  c.use_rotary_seqlens = c.rotary_columns && chance(random, 3);
  c.causal = chance(random, 2);
  if (chance(random, 3)) c.window_left = (int)random_below(random, 80);
  if (!c.causal && chance(random, 4)) c.window_right = (int)random_below(random, 40);
  if (chance(random, 8)) c.chunk = 1 + (int)random_below(random, 90);
  if (chance(random, 6)) c.softcap = 5;
  if (chance(random, 4)) c.sinks = chance(random, 2) ? KJIT_FP32 : c.dtype;
  c.num_splits = PICK(random, 0, 0, 1, 2, 3);
  c.schedule = chance(random, 3);
  c.workspace = chance(random, 2);
  random_lengths(&c, random, most);
  int added = 0;
  for (int b = 0; b < c.batch; b++)
    added += c.added[b];
  if (added == 0) c.rotary_columns = 0; /* without new keys nothing is rotated */
  c.narrow = chance(random, 4);
  return c;
}

void serving_set_lengths(struct serving_case *c, int batch, const int *rows, const int *keys) {
  c->batch = batch;
  memcpy(c->rows, rows, (size_t)batch * sizeof *rows);
  memcpy(c->keys, keys, (size_t)batch * sizeof *keys);
}

void serving_mixed_cases(struct serving_case cases[SERVING_MIXED_CASES]) {
  for (int i = 0; i < SERVING_MIXED_CASES; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 5, (const int[]){1, 150, 0, 3, 1}, (const int[]){1700, 180, 9, 900, 40});
    c->dtype = i % 2 ? KJIT_BF16 : KJIT_FP16;
    c->group = i == 3 ? 3 : 4;
    c->heads_kv = 1 + i % 2;
    c->ragged_q = c->causal = true;
    c->cache = SERVING_PAGED;
    c->page_size = i == 2 ? 64 : 16;
    c->head_dim = c->head_dim_v = i < 3 ? 128 : 64;
    c->layout = (enum serving_layout)(i % 3);
  }
  cases[1].sinks = KJIT_FP32;
  cases[2].window_left = 1000;
  cases[3].num_splits = 1; /* nothing is divided */
  cases[4].num_splits = 2;
  cases[4].head_dim_v = 128;
  cases[5].page_size = 1; /* pages that no box fits */
  cases[6].page_size = 12;
  cases[6].head_dim = 40;
  cases[7].page_size = 1;
  cases[7].head_dim = cases[7].head_dim_v = 256; /* one consumer beside the warpgroup that gathers */
}

void serving_wide_narrow_cases(struct serving_case cases[SERVING_WIDE_NARROW_CASES]) {
  static const int sizes[][2] = {{256, 256}, {208, 256}, {192, 224}};
  for (int i = 0; i < SERVING_WIDE_NARROW_CASES; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 2, i < 6 ? (const int[]){1, 1} : (const int[]){7, 30}, (const int[]){150, 39});
    c->narrow = c->use_leftpad = true;
    c->leftpad[1] = 5;
    c->dtype = (i + i / 4) % 2 ? KJIT_BF16 : KJIT_FP16; /* both among every fourth case, too */
    c->head_dim = sizes[i % 3][0];
    c->head_dim_v = sizes[i % 3][1];
    c->group = i < 3 ? 5 : i < 6 ? 20 : 3; /* tiles of 16, 32 and 64 rows */
    c->cache = i % 2 || i == 8 ? SERVING_DENSE : SERVING_PAGED;
    c->page_size = i == 4 ? 3 : 16;
    c->append = i % 4 == 3;
    c->causal = i % 3 == 1 || c->append;
    c->added[0] = c->added[1] = c->append;
    c->rotary_columns = c->append ? 32 : 0;
  }
  cases[1].query_size = cases[4].query_size = cases[6].query_size = 1e9f; /* beyond fp16: in bf16, for each tile */
  cases[1].scale = cases[4].scale = cases[6].scale = 1e-10f;
}

void serving_narrow_cases(struct serving_case cases[SERVING_NARROW_CASES]) {
  static const int pages[] = {16, 1, 0, 64, 3, 0, 128, 16, 1, 12, 0, 16};
  static const int sizes[][2] = {{128, 128}, {64, 64}, {256, 256}, {80, 144}, {192, 128}, {48, 16}};
  for (int i = 0; i < SERVING_NARROW_CASES; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 5, (const int[]){90, 210, 0, 1, 33}, (const int[]){300, 210, 9, 900, 0});
    c->narrow = true;
    c->dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    c->head_dim = sizes[i % 6][0];
    c->head_dim_v = sizes[i % 6][1];
    c->heads_kv = 1 + i % 2;
    c->group = 1 + i % 4; /* packed or not, in one launch or two */
    c->cache = pages[i] ? SERVING_PAGED : i == 10 ? SERVING_RAGGED : SERVING_DENSE;
    if (pages[i]) c->page_size = pages[i];
    c->layout = (enum serving_layout)(i % 3);
    c->ragged_q = true;
    c->causal = i % 5 != 4;
    c->use_cache_index = i == 5 || i == 7;
    c->use_seqused_q = i == 2;
  }
  cases[3].window_left = 50;
  cases[0].query_size = cases[6].query_size = 1e9f; /* beyond fp16 */
  cases[0].scale = cases[6].scale = 1e-10f;
  cases[4].query_size = 1e-5f; /* below */
  cases[4].scale = 1e4f;
  cases[0].query_step = 12; /* of the three warps that convert rows one has such rows */
  cases[6].softcap = 5;
  cases[7].sinks = KJIT_FP32;
  cases[8].num_splits = 1;
  cases[9].append = true; /* and so quantised by the pass in front */
  for (int b = 0; b < 5; b++)
    cases[9].added[b] = 3;
  cases[11].chunk = 40;
}

void serving_padded_cases(struct serving_case cases[SERVING_PADDED_CASES]) {
  for (int i = 0; i < SERVING_PADDED_CASES; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 6, (const int[]){5, 2, 40, 56, 1, 4}, (const int[]){5, 2, 40, 56, 1, 4});
    c->batch = 60;
    c->heads_kv = c->group = 2;
    c->ragged_q = c->causal = true;
    c->cache = i ? SERVING_PAGED : SERVING_RAGGED;
    for (int b = 6; b < c->batch; b++)
      c->rows[b] = c->keys[b] = 0;
  }
}

void serving_case_print(const struct serving_case *c, char text[SERVING_TEXT_MAX]) {
  int used = snprintf(
      text, SERVING_TEXT_MAX,
      "%s%s heads %dx%d d %d dv %d cache %d layout %d page %d append %d rotary %d%s window %d,%d causal %d "
      "chunk %d cap %g sinks %d splits %d schedule %d ragged_q %d used_q %d leftpad %d seed %llu:",
      c->dtype == KJIT_FP16 ? "fp16" : "bf16", c->narrow ? " e4m3" : "", c->heads_kv, c->group, c->head_dim,
      c->head_dim_v, c->cache, c->layout, c->page_size, c->append, c->rotary_columns, c->interleaved ? "i" : "",
      c->window_left, c->window_right, c->causal, c->chunk, (double)c->softcap, c->sinks, c->num_splits, c->schedule,
      c->ragged_q, c->use_seqused_q, c->use_leftpad, (unsigned long long)c->seed);
  for (int b = 0; b < c->batch && used < SERVING_TEXT_MAX - 64; b++)
    used += snprintf(text + used, SERVING_TEXT_MAX - (size_t)used, " %d/%d+%d-%d", c->rows[b], c->keys[b], c->added[b],
                     c->leftpad[b]);
}
