/* The table that bench_lookup compares with: a std::map of configs, ordered field by field. */
#ifndef KJIT_BENCH_SEED_MAP_H
#define KJIT_BENCH_SEED_MAP_H

#include <kjit/flash_forward.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct seed_map;

struct seed_map *seed_map_create(void);
void seed_map_destroy(struct seed_map *map);

/* Returns true when the config was not in the map yet. */
bool seed_map_insert(struct seed_map *map, const kjit_flash_config *config, const void *value);

/* The value of a config, or NULL when it is not in the map. */
const void *seed_map_find(const struct seed_map *map, const kjit_flash_config *config);

#ifdef __cplusplus
}
#endif
#endif
