/* A look-up among 10,000 resident configs: kjit's table against a std::map over the same keys, which is the obvious
 * way. Both are asked for all configs in the same random order, and for one config again and again, in turns. No GPU.
 */
#include <stdbool.h>
#include <stdio.h>

#include "attention/flash/flash_family.h"
#include "base/mem.h"
#include "base/threads/push_table.h"
#include "output.h"
#include "seed_map.h"
#include "support/random.h"

#define CONFIGS     10000 /* configs, and as many look-ups in one timing */
#define MOST_ROUNDS 10000

struct tables {
  struct push_table resident;
  struct seed_map *map;
  uint64_t sink; /* every answer is added here, so that the compiler cannot leave a look-up out */
};

/* The key of the library's table, as src/family/config_kernel.c has it. */
struct key {
  const kjit_family *family;
  int32_t device;
  struct flash_variant variant;
};

#define KEY_BYTES (offsetof(struct key, variant) + sizeof(struct flash_variant))

struct resident_kernel {
  uint32_t B_r;
};

static struct key key_of(const kjit_flash_config *config) {
  return (struct key){&flash_forward_family, 0, {*config, {0, 0, config->d_head, config->d_head}}};
}

static int32_t pick(struct random *random, const int32_t *values, size_t count) {
  return values[random_below(random, count)];
}

static kjit_flash_config random_config(struct random *random) {
  static const int32_t dtypes[] = {KJIT_FP16, KJIT_BF16}, heads[] = {32, 48, 64, 80, 96, 128, 160, 256};
  static const int32_t warps[] = {1, 2, 4, 8}, loads[] = {0, 2};
  kjit_flash_config config = {0};
  config.dtype = pick(random, dtypes, 2);
  config.d_head = pick(random, heads, 8);
  config.n_warps = pick(random, warps, 4);
  config.B_r = 16 * config.n_warps * (1 + (int32_t)random_below(random, 2));
  config.B_c = 16 * (1 + (int32_t)random_below(random, 8));
  config.async_copy = (int32_t)random_below(random, 2);
  config.eager_load_blocks = (int32_t)random_below(random, 2);
  config.swizzled = (int32_t)random_below(random, 2);
  config.Q_mma_load_K_tiles = pick(random, loads, 2);
  config.K_mma_load_K_tiles = config.Q_mma_load_K_tiles ? config.Q_mma_load_K_tiles : pick(random, loads, 2);
  config.V_mma_load_K_tiles = pick(random, loads, 2);
  config.mma_double_buffer_loads = (int32_t)random_below(random, 2);
  config.optimized_softmax = (int32_t)random_below(random, 2);
  return config;
}

/* Put distinct legal configs, in random order, into both tables. */
static bool fill(struct tables *tables, struct random *random, kjit_flash_config *configs) {
  size_t count = 0;
  while (count < CONFIGS) {
    const kjit_flash_config config = random_config(random);
    const struct resident_kernel kernel = {.B_r = (uint32_t)config.B_r};
    const struct key key = key_of(&config);
    if (flash_check(&key.variant, NULL) != KJIT_OK || seed_map_find(tables->map, &config)) continue;
    const struct resident_kernel *kept = push_table_add(&tables->resident, &key, KEY_BYTES, &kernel);
    if (!kept || !seed_map_insert(tables->map, &config, kept)) return false;
    configs[count++] = config;
  }
  return true;
}

static void shuffle(struct random *random, kjit_flash_config *configs) {
  for (size_t i = CONFIGS; i > 1; i--) {
    const size_t other = random_below(random, i);
    const kjit_flash_config kept = configs[other];
    configs[other] = configs[i - 1];
    configs[i - 1] = kept;
  }
}

/* Nanoseconds a lookup. */
static double ask_kjit(struct tables *tables, const kjit_flash_config *keys) {
  const double begin = statistics_now();
  for (size_t i = 0; i < CONFIGS; i++) {
    const struct key key = key_of(&keys[i]);
    const struct resident_kernel *found = push_table_find(&tables->resident, &key, KEY_BYTES);
    tables->sink += found->B_r;
  }
  return (statistics_now() - begin) * 1e9 / CONFIGS;
}

static double ask_map(struct tables *tables, const kjit_flash_config *keys) {
  const double begin = statistics_now();
  for (size_t i = 0; i < CONFIGS; i++)
    tables->sink += ((const struct resident_kernel *)seed_map_find(tables->map, &keys[i]))->B_r;
  return (statistics_now() - begin) * 1e9 / CONFIGS;
}

static void compare(struct tables *tables, const kjit_flash_config *keys, const char *what, size_t rounds,
                    const struct output *output) {
  static double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
  char name[80];
  for (size_t round = 0; round < rounds; round++) {
    ours[round] = ask_kjit(tables, keys);
    theirs[round] = ask_map(tables, keys);
  }
  const struct statistics kjit = statistics_of(ours, rounds), map = statistics_of(theirs, rounds);
  snprintf(name, sizeof name, "%s: kjit", what);
  output_statistics(output, name, "ns", &kjit);
  snprintf(name, sizeof name, "%s: std::map", what);
  output_statistics(output, name, "ns", &map);
  snprintf(name, sizeof name, "%s: std::map / kjit", what);
  output_number(output, name, "x", map.median / kjit.median);
}

static int run(struct tables *tables, size_t rounds, const struct output *output) {
  static kjit_flash_config configs[CONFIGS], same[CONFIGS];
  struct random random = {random_fresh_seed()};
  if (!fill(tables, &random, configs)) return output_failure(output, "no memory for the tables");
  for (size_t i = 0; i < CONFIGS; i++)
    same[i] = configs[CONFIGS / 2];
  shuffle(&random, configs);
  compare(tables, configs, "in random order", rounds, output);
  compare(tables, same, "one config again and again", rounds, output);
  return tables->sink ? 0 : output_failure(output, "the tables are empty");
}

int main(int argc, char **argv) {
  struct output output = {.benchmark = "lookup"};
  size_t rounds = 201;
  if (!output_read_options(&output, argc, argv, &rounds, MOST_ROUNDS)) return 2;
  struct mem memory;
  const kjit_allocator hooks = {0};
  if (!mem_init(&memory, &hooks)) return output_failure(&output, "no allocator");
  struct tables tables = {.map = seed_map_create()};
  push_table_init(&tables.resident, &memory, sizeof(struct resident_kernel));
  const int code = run(&tables, rounds, &output);
  seed_map_destroy(tables.map);
  push_table_finish(&tables.resident);
  return code;
}
