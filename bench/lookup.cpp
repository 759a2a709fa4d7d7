// A lookup among 10,000 resident configs: kjit's table against a std::map on the same keys, ordered as the seeds order
// theirs. Both are asked in the same random order, and for one key again and again, in turns. No GPU.
#include <algorithm>
#include <map>
#include <vector>

#include <stdbool.h> // _Bool, for the internal C headers

#include "output.h"

extern "C" {
#include "attention/flash_resident.h"
#include "base/mem.h"
#include "support/random.h"
}

namespace {

constexpr size_t kConfigs = 10000;
constexpr size_t kRepeats = 10000; // lookups of one timing
constexpr size_t kMostRounds = 10000;

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

using Map = std::map<kjit_flash_config, const flash_resident_kernel *, SeedsOrder>;

int32_t pick(struct random &random, std::initializer_list<int32_t> values) {
  return values.begin()[random_below(&random, values.size())];
}

kjit_flash_config random_config(struct random &random) {
  kjit_flash_config config = {};
  config.dtype = pick(random, {KJIT_FP16, KJIT_BF16});
  config.d_head = 16 * pick(random, {2, 3, 4, 5, 6, 8, 10, 12, 16});
  config.n_warps = pick(random, {1, 2, 4, 8});
  config.B_r = 16 * config.n_warps * pick(random, {1, 2});
  config.B_c = 16 * pick(random, {1, 2, 3, 4, 5, 6, 7, 8});
  config.async_copy = pick(random, {0, 1});
  config.eager_load_blocks = pick(random, {0, 1});
  config.swizzled = pick(random, {0, 1});
  config.Q_mma_load_K_tiles = pick(random, {0, 2});
  config.K_mma_load_K_tiles = config.Q_mma_load_K_tiles ? config.Q_mma_load_K_tiles : pick(random, {0, 2});
  config.V_mma_load_K_tiles = pick(random, {0, 2});
  config.mma_double_buffer_loads = pick(random, {0, 1});
  config.optimized_softmax = pick(random, {0, 1});
  return config;
}

std::vector<kjit_flash_config> distinct_configs(struct random &random) {
  std::map<kjit_flash_config, bool, SeedsOrder> seen;
  std::vector<kjit_flash_config> configs;
  while (configs.size() < kConfigs) {
    const kjit_flash_config config = random_config(random);
    if (kjit_flash_config_check(&config, nullptr, nullptr) == KJIT_OK && seen.emplace(config, true).second)
      configs.push_back(config);
  }
  return configs; // in the order drawn, which is random
}

// Nanoseconds a lookup. Every answer is used, so that none is left out.
template <typename Find> double time_lookups(const std::vector<kjit_flash_config> &keys, uint64_t &sink, Find find) {
  const double begin = statistics_now();
  for (const kjit_flash_config &key : keys)
    sink += find(key)->B_r;
  return (statistics_now() - begin) * 1e9 / static_cast<double>(keys.size());
}

struct Tables {
  flash_resident *resident;
  Map map;
  uint64_t sink = 0;

  double ask_kjit(const std::vector<kjit_flash_config> &keys) {
    return time_lookups(keys, sink,
                        [&](const kjit_flash_config &key) { return flash_resident_find(resident, &key, 0); });
  }
  double ask_map(const std::vector<kjit_flash_config> &keys) {
    return time_lookups(keys, sink, [&](const kjit_flash_config &key) { return map.find(key)->second; });
  }
};

bool fill(Tables &tables, const std::vector<kjit_flash_config> &configs) {
  for (const kjit_flash_config &config : configs) {
    flash_resident_kernel kernel = {};
    kernel.B_r = static_cast<uint32_t>(config.B_r);
    const flash_resident_kernel *kept = flash_resident_add(tables.resident, &config, 0, &kernel);
    if (!kept) return false;
    tables.map.emplace(config, kept);
  }
  return true;
}

double compare(Tables &tables, const std::vector<kjit_flash_config> &keys, const char *what, size_t rounds,
               const output &out) {
  std::vector<double> ours, theirs;
  for (size_t round = 0; round < rounds; round++) {
    ours.push_back(tables.ask_kjit(keys));
    theirs.push_back(tables.ask_map(keys));
  }
  const statistics kjit = statistics_of(ours.data(), rounds), map = statistics_of(theirs.data(), rounds);
  output_note(&out, "%s", what);
  output_statistics(&out, "kjit", "ns", &kjit);
  output_statistics(&out, "std::map", "ns", &map);
  output_number(&out, "std::map / kjit", "x", map.median / kjit.median);
  return kjit.median;
}

} // namespace

int main(int argc, char **argv) {
  output out = {"lookup", false};
  size_t rounds = 201;
  if (!output_read_options(&out, argc, argv, &rounds, kMostRounds)) return 2;
  mem memory;
  const kjit_allocator hooks = {nullptr, nullptr, nullptr};
  if (!mem_init(&memory, &hooks)) return output_failure(&out, "no memory");
  struct random random = {random_fresh_seed()};
  const std::vector<kjit_flash_config> configs = distinct_configs(random);
  Tables tables = {flash_resident_create(&memory), {}};
  if (!tables.resident || !fill(tables, configs)) return output_failure(&out, "no memory");

  std::vector<kjit_flash_config> shuffled = configs;
  for (size_t i = shuffled.size(); i > 1; i--)
    std::swap(shuffled[i - 1], shuffled[random_below(&random, i)]);
  compare(tables, shuffled, "10,000 configs, each asked for once, in random order", rounds, out);
  compare(tables, std::vector<kjit_flash_config>(kRepeats, configs[kConfigs / 2]),
          "one config of the 10,000, asked for again and again", rounds, out);
  if (tables.sink == 0) return output_failure(&out, "the tables are empty");
  flash_resident_destroy(tables.resident);
  return 0;
}
