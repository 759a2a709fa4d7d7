/* The named sets of configs: a staircase of optimisations, an autotuning grid with its filter, and their union. A set
 * is made anew for each question, since that takes some microseconds. Pure; any thread. */
#include "attention/flash/flash_sets.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "attention/flash/flash_config.h"
#include "base/error.h"

/* Room for the largest set while it is made: autotune and progression, before configs that are in both are dropped. */
#define SET_MAX 96

#define PROGRESSION_STEPS 7

struct config_list {
  kjit_flash_config items[SET_MAX];
  size_t count;
};

static void add(struct config_list *list, const kjit_flash_config *config) {
  assert(list->count < SET_MAX);
  list->items[list->count++] = *config;
}

static void set_loads(kjit_flash_config *config, int32_t q, int32_t k, int32_t v) {
  config->Q_mma_load_K_tiles = q;
  config->K_mma_load_K_tiles = k;
  config->V_mma_load_K_tiles = v;
}

/* Apply step `step` of the staircase, from 1: each step adds one idea to the step before. */
static void take_step(kjit_flash_config *config, int step) {
  switch (step) {
  case 1:
    config->async_copy = 1;
    break;
  case 2:
    config->swizzled = 1;
    break;
  case 3:
    config->eager_load_blocks = 1;
    break;
  case 4:
    set_loads(config, 2, 2, 2);
    break;
  case 5:
    config->mma_double_buffer_loads = 1;
    break;
  case 6:
    config->optimized_softmax = 1;
    break;
  default: /* the config that autotuning found: Q kept in registers, nothing buffered */
    set_loads(config, 0, 2, 2);
    config->mma_double_buffer_loads = 0;
  }
}

static void add_progression_of(struct config_list *list, int32_t B_r, int32_t B_c, int32_t n_warps) {
  kjit_flash_config config = {.dtype = KJIT_FP16, .d_head = 128, .B_r = B_r, .B_c = B_c, .n_warps = n_warps};
  for (int step = 1; step <= PROGRESSION_STEPS; step++) {
    take_step(&config, step);
    add(list, &config);
  }
}

static void add_progression(struct config_list *list) {
  add_progression_of(list, 64, 64, 4);
}

static int compare(const void *a, const void *b) {
  return field_table_compare(&flash_config_fields, a, b);
}

static void sort(struct config_list *list) {
  qsort(list->items, list->count, sizeof *list->items, compare);
}

static void sort_and_drop_repeated(struct config_list *list) {
  size_t kept = 0;
  sort(list);
  for (size_t i = 0; i < list->count; i++) {
    if (kept && compare(&list->items[kept - 1], &list->items[i]) == 0) continue;
    list->items[kept++] = list->items[i];
  }
  list->count = kept;
}

static void add_progression_all(struct config_list *list) {
  static const int32_t large_columns[] = {128, 64, 32}, small_columns[] = {64, 32}, warps[] = {4, 8};
  for (size_t c = 0; c < 3; c++) {
    for (size_t w = 0; w < 2; w++)
      add_progression_of(list, 128, large_columns[c], warps[w]);
  }
  for (size_t c = 0; c < 2; c++)
    add_progression_of(list, 64, small_columns[c], 4);
  sort(list);
}

/* True for points of the autotuning grid that are worth compiling. */
static bool should_autotune(const kjit_flash_config *config) {
  const int32_t q = config->Q_mma_load_K_tiles, k = config->K_mma_load_K_tiles;
  if (config->eager_load_blocks && !config->async_copy) return false;
  if (q != 0 && q != k) return false;
  if (config->B_r == 128) return q != 0;  /* 32 rows of Q per warp do not stay in registers */
  if (config->n_warps == 8) return false; /* 8 rows per warp are less than an mma */
  /* With tiles of (64, 32) and Q in registers there are too many of them for 3 blocks on an SM. With (64, 64) Q is
   * always kept. */
  return config->B_c == 32 ? q != 0 : q == 0;
}

/* Take the last digit, in this base, off `*rest`. */
static int32_t take_digit(unsigned *rest, unsigned base) {
  const unsigned digit = *rest % base;
  *rest /= base;
  return (int32_t)digit;
}

/* Point `index` of the autotuning grid over dtype, B_r, B_c, Q, K, V, buffer and opt_softmax, two values each. */
static kjit_flash_config autotune_point(unsigned index) {
  kjit_flash_config config = {.d_head = 128, .n_warps = 4, .async_copy = 1, .eager_load_blocks = 1, .swizzled = 1};
  config.optimized_softmax = take_digit(&index, 2);
  config.mma_double_buffer_loads = take_digit(&index, 2);
  config.V_mma_load_K_tiles = 2 * take_digit(&index, 2);
  config.K_mma_load_K_tiles = 2 * take_digit(&index, 2);
  config.Q_mma_load_K_tiles = 2 * take_digit(&index, 2);
  config.B_c = take_digit(&index, 2) ? 64 : 32;
  config.B_r = take_digit(&index, 2) ? 128 : 64;
  config.dtype = index ? KJIT_BF16 : KJIT_FP16;
  return config;
}

static void add_autotune(struct config_list *list) {
  for (unsigned index = 0; index < 1u << 8; index++) {
    const kjit_flash_config config = autotune_point(index);
    if (should_autotune(&config)) add(list, &config);
  }
  sort(list);
}

/* The set "prebuilt", which is worth compiling ahead of time: both of the above. */
static void add_prebuilt(struct config_list *list) {
  add_autotune(list);
  add_progression(list);
  sort_and_drop_repeated(list);
}

enum set { PROGRESSION, AUTOTUNE, PREBUILT, PROGRESSION_ALL, SET_COUNT };

const char *const flash_sets_names[] = {"progression", "autotune", "prebuilt", "progression_all", NULL};

_Static_assert(sizeof flash_sets_names / sizeof *flash_sets_names == SET_COUNT + 1, "a name for each set");

static void make(struct config_list *list, enum set set) {
  static void (*const makers[SET_COUNT])(struct config_list * list) = {add_progression, add_autotune, add_prebuilt,
                                                                       add_progression_all};
  list->count = 0;
  makers[set](list);
}

/* Find a set by its name; SET_COUNT when there is none. */
static enum set find_set(const char *name) {
  int set = 0;
  while (set < SET_COUNT && strcmp(flash_sets_names[set], name) != 0)
    set++;
  return (enum set)set;
}

size_t flash_sets_count(const char *name) {
  struct config_list list;
  make(&list, find_set(name));
  return list.count;
}

kjit_flash_config flash_sets_get(const char *name, size_t index) {
  struct config_list list;
  make(&list, find_set(name));
  return list.items[index];
}

kjit_status kjit_flash_config_set(const char *name, kjit_flash_config *configs, size_t capacity, size_t *count,
                                  kjit_error *error) {
  struct config_list list;
  error_clear(error);
  if (!count) return error_invalid(error, "count", "must not be NULL");
  *count = 0;
  if (!name) return error_invalid(error, "name", "must not be NULL");
  const enum set set = find_set(name);
  if (set == SET_COUNT)
    return error_set(error, KJIT_ERR_NOT_FOUND, "set \"%.40s\" does not exist; there are %s, %s, %s, %s", name,
                     flash_sets_names[0], flash_sets_names[1], flash_sets_names[2], flash_sets_names[3]);
  make(&list, set);
  if (configs && capacity < list.count) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "capacity: %zu is too small; the set has %zu configs", capacity,
                     list.count);
  }
  if (configs) memcpy(configs, list.items, list.count * sizeof *configs);
  *count = list.count;
  return KJIT_OK;
}
