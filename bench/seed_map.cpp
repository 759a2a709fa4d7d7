// A std::map of configs with a C interface. The order compares the fields one after the other, as a user of std::map
// would write it. One thread.
#include "seed_map.h"

#include <map>

namespace {

// Lexicographic in field order, field by field.
struct SeedsOrder {
  bool operator()(const kjit_flash_config &a, const kjit_flash_config &b) const {
#define COMPARE_FIELD(name, kind, token, text)                                                                         \
  if (a.name != b.name) return a.name < b.name;
    KJIT_FLASH_FORWARD_FIELDS(COMPARE_FIELD)
#undef COMPARE_FIELD
    return false;
  }
};

} // namespace

struct seed_map {
  std::map<kjit_flash_config, const void *, SeedsOrder> map;
};

seed_map *seed_map_create() {
  return new seed_map;
}

void seed_map_destroy(seed_map *map) {
  delete map;
}

bool seed_map_insert(seed_map *map, const kjit_flash_config *config, const void *value) {
  return map->map.emplace(*config, value).second;
}

const void *seed_map_find(const seed_map *map, const kjit_flash_config *config) {
  const auto found = map->map.find(*config);
  return found == map->map.end() ? nullptr : found->second;
}
