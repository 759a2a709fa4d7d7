// wgmma.mma_async: products of a warpgroup, performed in their order when a warp waits for them. Until then their
// accumulators hold NaNs, and what they read must stay as it is.
#include <algorithm>
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

constexpr int kRows = 64, kDepth = 16, kMostColumns = 256;
constexpr uint32_t kRowBytes = 128, kPieceElements = 8;
constexpr uint32_t kPoisonBits = 0x7fff7fff;

// A shared-memory descriptor's fields, in bytes.
struct Descriptor {
  uint32_t address, leading, stride;
};

Descriptor decode(uint64_t bits) {
  const auto field = [bits](int first) { return static_cast<uint32_t>(bits >> first & 0x3fff) << 4; };
  const Descriptor descriptor = {field(0), field(16), field(32)};
  if (bits >> 62 != 1)
    fail("wgmma: swizzle mode %d; the machine knows the 128-byte one, 1", static_cast<int>(bits >> 62));
  if (bits >> 49 & 7) fail("wgmma: base offset %d; the machine knows 0", static_cast<int>(bits >> 49 & 7));
  if (descriptor.address >> 7 & 7)
    fail("wgmma: a tile at shared 0x%x, where no period of the 128-byte swizzle begins", descriptor.address);
  return descriptor;
}

// visit(place, outer, depth): each 16 bytes of a K-major operand; they are elements depth … depth + 7 of row `outer`.
template <typename Visit> void for_k_major(const Descriptor &tile, int rows, Visit visit) {
  for (int row = 0; row < rows; row++)
    for (int half = 0; half < 2; half++) {
      const uint32_t r = static_cast<uint32_t>(row), h = static_cast<uint32_t>(half);
      visit(swizzled_128(tile.address + r / 8 * tile.stride + r % 8 * kRowBytes + h * kChunkBytes), row, half * 8);
    }
}

// The same of an MN-major operand: elements outer … outer + 7 of depth `depth`. Chunks of 64 lie `leading` apart.
template <typename Visit> void for_mn_major(const Descriptor &tile, int columns, Visit visit) {
  for (int depth = 0; depth < kDepth; depth++)
    for (int piece = 0; piece < columns / 8; piece++) {
      const uint32_t d = static_cast<uint32_t>(depth), p = static_cast<uint32_t>(piece);
      const uint32_t row = tile.address + p / 8 * tile.leading + d / 8 * tile.stride + d % 8 * kRowBytes;
      visit(swizzled_128(row + p % 8 * kChunkBytes), piece * 8, depth);
    }
}

template <typename Visit> void for_operands(const emulator_wgmma &product, Visit visit) {
  const auto each = [&](uint32_t place, int, int) { visit(place); };
  const Descriptor b = decode(product.b_descriptor);
  if (!product.a && product.a_transposed) for_mn_major(decode(product.a_descriptor), kRows, each);
  if (!product.a && !product.a_transposed) for_k_major(decode(product.a_descriptor), kRows, each);
  if (product.b_transposed)
    for_mn_major(b, product.columns, each);
  else
    for_k_major(b, product.columns, each);
}

// Of accumulator i of a lane: row and column in the warpgroup's 64 rows.
float &value_at(Accumulators &accumulators, int thread, int i) {
  const int row = thread / kLanes * 16 + thread % kLanes / 4 + i / 2 % 2 * 8;
  const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
  return accumulators
      .values[static_cast<size_t>(row) * static_cast<size_t>(accumulators.columns) + static_cast<size_t>(column)];
}

void poison_registers(float *registers, int count) {
  for (int i = 0; i < count; i++)
    memcpy(&registers[i], &kPoisonBits, sizeof kPoisonBits);
}

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool are_poisoned(const float *registers, int count) {
  return std::all_of(registers, registers + count, [](float value) { return bits_of(value) == kPoisonBits; });
}

template <typename Members> const emulator_wgmma &product_of(const Members &members, size_t thread) {
  return *static_cast<const emulator_wgmma *>(members[thread]->operands);
}

template <typename Members> void check_alike(const Members &members) {
  const emulator_wgmma &first = product_of(members, 0);
  for (size_t i = 1; i < kGroupThreads; i++) {
    const emulator_wgmma &other = product_of(members, i);
    if (other.a_descriptor != first.a_descriptor || other.b_descriptor != first.b_descriptor ||
        other.columns != first.columns || other.accumulate != first.accumulate ||
        other.a_transposed != first.a_transposed || other.b_transposed != first.b_transposed || !other.a != !first.a)
      fail("wgmma: thread %zu of the warpgroup has other operands than thread 0", i);
  }
}

// The accumulators at these registers: in flight already, or taken from them now.
template <typename Members> std::shared_ptr<Accumulators> take_accumulators(Warpgroup &group, const Members &members) {
  const emulator_wgmma &first = product_of(members, 0);
  for (auto &held : group.held)
    if (held->registers[0] == first.d) {
      if (held->columns != first.columns) fail("wgmma: accumulators in flight with %d columns", held->columns);
      return held;
    }
  auto taken = std::make_shared<Accumulators>();
  taken->columns = first.columns;
  taken->values.assign(size_t{kRows} * static_cast<size_t>(first.columns), 0.0f);
  for (int thread = 0; thread < kGroupThreads; thread++) {
    float *const registers = product_of(members, static_cast<size_t>(thread)).d;
    taken->registers[static_cast<size_t>(thread)] = registers;
    for (int i = 0; i < first.columns / 2; i++)
      value_at(*taken, thread, i) = registers[i];
    poison_registers(registers, first.columns / 2);
  }
  group.held.push_back(taken);
  return taken;
}

template <typename Members> void begin_reading(Block &block, const Members &members) {
  for_operands(product_of(members, 0), [&](uint32_t place) {
    shared_at(block, place, kChunkBytes, kChunkBytes, "wgmma");
    Chunk &chunk = chunk_at(block, place);
    if (chunk.copying) fail("wgmma reads shared 0x%x: a copy to it is in flight", place);
    if (chunk.barrier) fail("wgmma reads shared 0x%x: an mbarrier is there", place);
    for (size_t warp = 0; warp < 4; warp++) {
      check_proxy(*members[warp * kLanes], place, "wgmma");
      order_seen(*members[warp * kLanes], place, kChunkBytes, "wgmma");
    }
    chunk.reading++;
  });
}

template <typename Members> void issue(Warpgroup &group, const Members &members) {
  check_alike(members);
  Product product = {};
  product.number = ++group.issued;
  product.operands = product_of(members, 0);
  begin_reading(*self().block, members);
  product.accumulators = take_accumulators(group, members);
  product.accumulators->last_product = product.number;
  for (size_t i = 0; i < kGroupThreads && product.operands.a; i++) {
    product.a[i] = product_of(members, i).a;
    memcpy(product.a_at_issue[i].data(), product.a[i], sizeof product.a_at_issue[i]);
  }
  group.in_flight.push_back(product);
}

void wgmma(emulator_wgmma *operands) {
  Block &block = *self().block;
  const size_t group = static_cast<size_t>(self().index / kGroupThreads);
  if (group >= block.groups.size()) fail("wgmma outside of a whole warpgroup");
  if (!self().warp->products_fenced) fail("wgmma: no wgmma.fence since the warp last waited for products");
  meet(block.groups[group].meeting, kGroupThreads, static_cast<unsigned>(self().index % kGroupThreads),
       Wait::kWarpgroup, "wgmma", operands, [&](auto &members) { issue(block.groups[group], members); });
  give_way(512);
}

struct Tiles {
  float a[kRows][kDepth];
  float b[kDepth][kMostColumns];
};

void read_piece(const Block &block, uint32_t place, bool bf16, float (&numbers)[kPieceElements]) {
  uint16_t bits[kPieceElements];
  memcpy(bits, block.shared + (place - block.shared_base), sizeof bits);
  for (size_t i = 0; i < kPieceElements; i++)
    numbers[i] = number_of(bits[i], bf16);
}

// Registers as for mma.m16n8k16, by warp.
void read_a_registers(const Product &product, Tiles &tiles) {
  for (int thread = 0; thread < kGroupThreads; thread++) {
    const uint32_t *const registers = product.a[static_cast<size_t>(thread)];
    const auto &at_issue = product.a_at_issue[static_cast<size_t>(thread)];
    if (memcmp(registers, at_issue.data(), sizeof at_issue) != 0)
      fail("wgmma: thread %d of the warpgroup changed registers of A while the product was in flight", thread);
    for (int i = 0; i < 4; i++) {
      const int row = thread / kLanes * 16 + thread % kLanes / 4 + i % 2 * 8, column = thread % 4 * 2 + i / 2 * 8;
      tiles.a[row][column] = number_of(static_cast<uint16_t>(registers[i]), product.operands.bf16);
      tiles.a[row][column + 1] = number_of(static_cast<uint16_t>(registers[i] >> 16), product.operands.bf16);
    }
  }
}

void read_a_shared(const Block &block, const emulator_wgmma &product, Tiles &tiles) {
  if (product.a_transposed) {
    for_mn_major(decode(product.a_descriptor), kRows, [&](uint32_t place, int row, int depth) {
      float numbers[kPieceElements];
      read_piece(block, place, product.bf16, numbers);
      for (int i = 0; i < static_cast<int>(kPieceElements); i++)
        tiles.a[row + i][depth] = numbers[i];
    });
    return;
  }
  for_k_major(decode(product.a_descriptor), kRows, [&](uint32_t place, int row, int depth) {
    float numbers[kPieceElements];
    read_piece(block, place, product.bf16, numbers);
    memcpy(&tiles.a[row][depth], numbers, sizeof numbers);
  });
}

void read_b(const Block &block, const emulator_wgmma &product, Tiles &tiles) {
  const Descriptor b = decode(product.b_descriptor);
  float numbers[kPieceElements];
  if (product.b_transposed) {
    for_mn_major(b, product.columns, [&](uint32_t place, int column, int depth) {
      read_piece(block, place, product.bf16, numbers);
      memcpy(&tiles.b[depth][column], numbers, sizeof numbers);
    });
    return;
  }
  for_k_major(b, product.columns, [&](uint32_t place, int column, int depth) {
    read_piece(block, place, product.bf16, numbers);
    for (int i = 0; i < static_cast<int>(kPieceElements); i++)
      tiles.b[depth + i][column] = numbers[i];
  });
}

void multiply(const Tiles &tiles, bool accumulate, Accumulators &accumulators) {
  const int columns = accumulators.columns;
  if (!accumulate) std::fill(accumulators.values.begin(), accumulators.values.end(), 0.0f);
  for (int row = 0; row < kRows; row++) {
    float *const sums = &accumulators.values[static_cast<size_t>(row) * static_cast<size_t>(columns)];
    for (int depth = 0; depth < kDepth; depth++) {
      const float a = tiles.a[row][depth];
      const float *const b = tiles.b[depth];
      for (int column = 0; column < columns; column++)
        sums[column] += a * b[column];
    }
  }
}

void perform(Block &block, const Product &product) {
  const auto tiles = std::make_unique<Tiles>();
  if (product.operands.a)
    read_a_registers(product, *tiles);
  else
    read_a_shared(block, product.operands, *tiles);
  read_b(block, product.operands, *tiles);
  multiply(*tiles, product.operands.accumulate, *product.accumulators);
  for_operands(product.operands, [&](uint32_t place) { chunk_at(block, place).reading--; });
}

// To the lanes of one warp.
void hand_back(Accumulators &accumulators, const Warp &warp) {
  const int first = warp.index * kLanes % kGroupThreads;
  for (int thread = first; thread < first + kLanes; thread++) {
    float *const registers = accumulators.registers[static_cast<size_t>(thread)];
    if (!are_poisoned(registers, accumulators.columns / 2))
      fail("wgmma: thread %d of the warpgroup wrote accumulators while a product on them was in flight", thread);
    for (int i = 0; i < accumulators.columns / 2; i++)
      registers[i] = value_at(accumulators, thread, i);
  }
  accumulators.handed[static_cast<size_t>(first / kLanes)] = true;
}

// The first warp that waits for a product performs it.
void finish_product(Warp &warp, Product &product) {
  if (!product.performed) perform(*warp.block, product);
  product.performed = true;
  product.warps_waited++;
  for_operands(product.operands, [&](uint32_t place) { note_product_reading(warp, product.number, place); });
}

void finish_products(Warp &warp, Warpgroup &group, uint64_t last) {
  count_product_wait(warp);
  for (Product &product : group.in_flight)
    if (product.number > warp.products_over && product.number <= last) finish_product(warp, product);
  warp.products_over = std::max(warp.products_over, last);
  while (!group.in_flight.empty() && group.in_flight.front().warps_waited == 4)
    group.in_flight.pop_front();
  for (auto &held : group.held)
    if (held->last_product <= last && !held->handed[static_cast<size_t>(warp.index % 4)]) hand_back(*held, warp);
  const auto is_done = [](const auto &held) {
    return std::all_of(held->handed.begin(), held->handed.end(), [](bool handed) { return handed; });
  };
  group.held.erase(std::remove_if(group.held.begin(), group.held.end(), is_done), group.held.end());
}

Warpgroup &group_of(Warp &warp) {
  const size_t group = static_cast<size_t>(warp.index / 4);
  if (group >= warp.block->groups.size()) fail("wgmma outside of a whole warpgroup");
  return warp.block->groups[group];
}

void wgmma_fence() {
  meet_warp("wgmma.fence", nullptr, [](auto &) { self().warp->products_fenced = true; });
}

void wgmma_commit() {
  meet_warp("wgmma.commit_group", nullptr, [](auto &) {
    Warp &warp = *self().warp;
    warp.product_groups.push_back(group_of(warp).issued);
  });
}

void wgmma_wait(int pending) {
  meet_warp("wgmma.wait_group", nullptr, [pending](auto &) {
    Warp &warp = *self().warp;
    while (warp.product_groups.size() > static_cast<size_t>(pending)) {
      finish_products(warp, group_of(warp), warp.product_groups.front());
      warp.product_groups.pop_front();
    }
    warp.products_fenced = false;
  });
}

} // namespace

void check_no_products(const Thread &thread) {
  const size_t group = static_cast<size_t>(thread.index / kGroupThreads);
  if (group >= thread.block->groups.size()) return;
  const auto &products = thread.block->groups[group].in_flight;
  if (std::any_of(products.begin(), products.end(), [](const Product &product) { return !product.performed; }))
    fail("the thread ended while its warpgroup's products were in flight");
}

void fill_products(emulator_device_api *device) {
  device->wgmma_fence = wgmma_fence;
  device->wgmma = wgmma;
  device->wgmma_commit = wgmma_commit;
  device->wgmma_wait = wgmma_wait;
}

} // namespace emulator
