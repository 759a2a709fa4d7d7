// Boxes between global and shared memory by TMA. A load arrives at a time that chance picks, perhaps only
// when nothing else can go on, and nobody may touch its place until then; a store reads shared memory at the last
// moment, when its thread waits for it.
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

constexpr unsigned kSwizzleNone = 0, kSwizzle64 = 2, kSwizzle128 = 3; // CUtensorMapSwizzle
constexpr unsigned kBoxAlignment = 128;

struct Geometry {
  unsigned row_bytes, rows;
};

Geometry geometry_of(const emulator_tensor_map &map) {
  Geometry geometry = {static_cast<unsigned>(map.box[0]) * map.element_bytes, 1};
  for (unsigned axis = 1; axis < map.rank; axis++)
    geometry.rows *= map.box[axis];
  return geometry;
}

unsigned bytes_of(const Geometry &geometry) {
  return geometry.row_bytes * geometry.rows;
}

// A row of the box: where it begins in global memory, and which of its elements the tensor has: none if first == last.
struct Row {
  char *start;
  int64_t first, last;
};

Row row_of(const TensorCopy &copy, unsigned number) {
  const emulator_tensor_map &map = copy.map;
  uint64_t address = map.address + static_cast<uint64_t>(int64_t{copy.at[0]} * map.element_bytes);
  const int64_t size = static_cast<int64_t>(map.size[0]), box = map.box[0], start = copy.at[0];
  Row row = {nullptr, start < 0 ? -start : 0, size - start < box ? size - start : box};
  if (row.last < row.first) row.last = row.first;
  for (unsigned axis = 1; axis < map.rank; axis++) {
    const int64_t at = copy.at[axis] + static_cast<int64_t>(number % map.box[axis]);
    number /= map.box[axis];
    if (at < 0 || at >= static_cast<int64_t>(map.size[axis])) row.last = row.first;
    address += static_cast<uint64_t>(at) * map.stride[axis];
  }
  row.start = reinterpret_cast<char *>(address);
  return row;
}

// Two bits of the number of a 16-byte piece, XORed with those of the 128 bytes that it lies in.
uint32_t swizzled_64(uint32_t address) {
  return address ^ (address >> 7 & 3) << 4;
}

// Where TMA puts the 16 bytes that begin `offset` bytes into the box.
uint32_t place_of(const TensorCopy &copy, unsigned offset) {
  const uint32_t address = copy.shared + offset;
  if (copy.map.swizzle == kSwizzleNone) return address;
  return copy.map.swizzle == kSwizzle64 ? swizzled_64(address) : swizzled_128(address);
}

// The machine knows rows that are as wide as their swizzle's pattern.
bool is_known_swizzle(unsigned swizzle, unsigned row_bytes) {
  if (swizzle == kSwizzle128) return row_bytes == 128;
  return swizzle == kSwizzleNone || (swizzle == kSwizzle64 && row_bytes == 64);
}

void check_map(const emulator_tensor_map &map, int rank, const char *what) {
  if (map.magic != EMULATOR_TENSOR_MAP_MAGIC) fail("%s: this is no tensor map", what);
  if (map.rank != rank) fail("%s: the map has %d axes, the instruction %d", what, map.rank, rank);
  const unsigned row_bytes = geometry_of(map).row_bytes;
  bool known = map.interleave == 0 && row_bytes % kChunkBytes == 0 && is_known_swizzle(map.swizzle, row_bytes);
  for (unsigned axis = 0; axis < map.rank; axis++)
    known = known && map.element_stride[axis] == 1;
  if (!known)
    fail("%s: the machine knows boxes without a swizzle, or of rows of 64 or 128 bytes with a swizzle of as many, "
         "without strides",
         what);
}

// What the tensor has of each row of the box.
template <typename Visit> void for_rows(const TensorCopy &copy, Visit visit) {
  const unsigned size = copy.map.element_bytes;
  for (unsigned i = 0; i < geometry_of(copy.map).rows; i++) {
    const Row row = row_of(copy, i);
    if (row.first < row.last) visit(row.start + row.first * size, static_cast<unsigned>(row.last - row.first) * size);
  }
}

void check_rows(const TensorCopy &copy, const char *what) {
  for_rows(copy, [&](const char *row, unsigned bytes) { check_global(row, bytes, copy.map.element_bytes, what); });
}

void order_rows(const TensorCopy &copy, size_t index, uint32_t at, GlobalAccess access, const char *what) {
  for_rows(copy,
           [&](const char *row, unsigned bytes) { order_global_copy(self(), index, at, row, bytes, access, what); });
}

// The copy that an instruction asks for, its map and addresses checked.
TensorCopy prepare(unsigned shared, const void *map, unsigned barrier, const int *coordinates, int rank,
                   const char *what) {
  TensorCopy copy = {};
  memcpy(&copy.map, map, sizeof copy.map);
  check_map(copy.map, rank, what);
  copy.shared = shared;
  copy.barrier = barrier;
  for (int axis = 0; axis < rank; axis++)
    copy.at[axis] = coordinates[axis];
  shared_at(*self().block, shared, bytes_of(geometry_of(copy.map)), kBoxAlignment, what);
  check_rows(copy, what);
  return copy;
}

// 16 bytes of a row that begin with element `first`, to or from shared memory.
void move_piece(const TensorCopy &copy, const Row &row, int64_t first, char *shared, bool load) {
  const unsigned size = copy.map.element_bytes;
  for (unsigned i = 0; i < kChunkBytes / size; i++) {
    const int64_t element = first + static_cast<int64_t>(i);
    char *const here = shared + i * size, *const there = row.start + element * size;
    const bool inside = element >= row.first && element < row.last;
    if (inside) memcpy(load ? here : there, load ? there : here, size);
    if (!inside && load) memset(here, 0, size);
  }
}

void move_box(Block &block, const TensorCopy &copy, bool load) {
  const Geometry geometry = geometry_of(copy.map);
  for (unsigned i = 0; i < geometry.rows; i++) {
    const Row row = row_of(copy, i);
    for (unsigned offset = 0; offset < geometry.row_bytes; offset += kChunkBytes) {
      const uint32_t address = place_of(copy, i * geometry.row_bytes + offset);
      move_piece(copy, row, offset / copy.map.element_bytes, block.shared + (address - block.shared_base), load);
    }
  }
}

template <typename Visit> void for_box_chunks(Block &block, const TensorCopy &copy, Visit visit) {
  for (unsigned offset = 0; offset < bytes_of(geometry_of(copy.map)); offset += kChunkBytes)
    visit(copy.shared + offset, chunk_at(block, copy.shared + offset));
}

} // namespace

// Late, at once, or soon.
uint64_t choose_due() {
  Random &random = machine().random;
  switch (random.below(4)) {
  case 0:
    return machine().step;
  case 1:
    return machine().step + random.below(8);
  case 2:
    return machine().step + random.below(256);
  default:
    return UINT64_MAX;
  }
}

namespace {

void begin_load(Block &block, TensorCopy &copy, unsigned alignment, const char *what) {
  check_copy_barrier(block, copy.barrier);
  for_box_chunks(block, copy, [&](uint32_t address, Chunk &chunk) {
    if (chunk.barrier || chunk.copying || chunk.reading)
      fail("%s to shared 0x%x: %s", what, address,
           chunk.barrier   ? "an mbarrier is there"
           : chunk.copying ? "another copy to it is in flight"
                           : "a copy or a product that reads it is in flight");
    check_proxy(self(), address, what);
    order_access(self(), address, kChunkBytes, Access::kWrite, what);
    order_after_products(self(), address, what);
    chunk.copying++;
    chunk.written = false;
  });
  poison(shared_at(block, copy.shared, bytes_of(geometry_of(copy.map)), alignment, what),
         bytes_of(geometry_of(copy.map)));
  copy.due = choose_due();
  copy.asker = self().index;
  copy.asked_at = self().clock[static_cast<size_t>(copy.asker)]++;
  order_rows(copy, static_cast<size_t>(copy.asker), copy.asked_at, GlobalAccess::kRead, what);
  block.loads.push_back(copy);
}

void tensor_load(unsigned shared, const void *map, unsigned barrier, const int *coordinates, int rank) {
  static const char what[] = "cp.async.bulk.tensor load";
  TensorCopy copy = prepare(shared, map, barrier, coordinates, rank, what);
  begin_load(*self().block, copy, kBoxAlignment, what);
}

// The copy of a row that lies alike in both memories, as of a tensor of one row of 4-byte elements, its addresses
// checked.
TensorCopy prepare_row(const void *global, unsigned shared, unsigned bytes, const char *what) {
  constexpr unsigned kValueBytes = sizeof(float);
  if (bytes % kChunkBytes != 0 || bytes == 0 || bytes / kValueBytes > UINT16_MAX)
    fail("%s of %u bytes: must be a multiple of 16, and at most 262140 here", what, bytes);
  if (reinterpret_cast<uintptr_t>(global) % kChunkBytes != 0)
    fail("%s, global %p: must be 16-byte aligned", what, global);
  TensorCopy copy = {};
  copy.map.rank = 1;
  copy.map.element_bytes = kValueBytes;
  copy.map.box[0] = static_cast<uint16_t>(bytes / kValueBytes);
  copy.map.size[0] = copy.map.box[0];
  copy.map.address = reinterpret_cast<uint64_t>(global);
  copy.shared = shared;
  shared_at(*self().block, shared, bytes, kChunkBytes, what);
  check_rows(copy, what);
  return copy;
}

void bulk_load(unsigned shared, const void *global, unsigned barrier, unsigned bytes) {
  static const char what[] = "cp.async.bulk to shared memory";
  TensorCopy copy = prepare_row(global, shared, bytes, what);
  copy.barrier = barrier;
  begin_load(*self().block, copy, kChunkBytes, what);
}

// Shared memory is read later, when the thread waits for it.
void begin_store(Block &block, const TensorCopy &copy, const char *what) {
  for_box_chunks(block, copy, [&](uint32_t address, Chunk &chunk) {
    if (chunk.copying) fail("%s from shared 0x%x: a copy to it is in flight", what, address);
    check_proxy(self(), address, what);
    order_access(self(), address, kChunkBytes, Access::kRead, what);
    chunk.reading++;
  });
  Warp &warp = *self().warp;
  order_rows(copy, stores_of(warp), ++warp.stores, copy.adds ? GlobalAccess::kAdd : GlobalAccess::kWrite, what);
  self().open_stores.push_back(copy);
}

void tensor_store(const void *map, unsigned shared, const int *coordinates, int rank) {
  static const char what[] = "cp.async.bulk.tensor store";
  Block &block = *self().block;
  begin_store(block, prepare(shared, map, 0, coordinates, rank, what), what);
}

// cp.reduce.async.bulk and cp.async.bulk, as a store of a tensor of one row, which adds or not.
void bulk_store(void *global, unsigned shared, unsigned bytes, bool adds) {
  static const char what[] = "cp.async.bulk to global memory";
  TensorCopy copy = prepare_row(global, shared, bytes, what);
  copy.is_row = true;
  copy.adds = adds;
  begin_store(*self().block, copy, what);
}

void tensor_store_commit() {
  self().store_groups.push_back(std::move(self().open_stores));
  self().groups_written.push_back(self().warp->stores);
  self().open_stores.clear();
}

void store_row(const Block &block, const TensorCopy &copy) {
  const char *const from = block.shared + (copy.shared - block.shared_base);
  char *const to = row_of(copy, 0).start;
  for (size_t i = 0; i < copy.map.box[0]; i++) {
    float value, sum;
    memcpy(&value, from + i * sizeof value, sizeof value);
    memcpy(&sum, to + i * sizeof sum, sizeof sum);
    sum = copy.adds ? sum + value : value;
    memcpy(to + i * sizeof sum, &sum, sizeof sum);
  }
}

void perform_store(Thread &thread, const TensorCopy &copy) {
  if (copy.is_row)
    store_row(*thread.block, copy);
  else
    move_box(*thread.block, copy, false);
  for_box_chunks(*thread.block, copy, [&](uint32_t address, Chunk &chunk) {
    order_access(thread, address, kChunkBytes, Access::kRead, "cp.async.bulk.tensor store");
    chunk.reading--;
  });
}

// What has read shared memory has reached global memory, too; the thread may rely on it only behind a wait that is not
// for reading alone.
void tensor_store_wait(int pending, bool read_only) {
  Thread &thread = self();
  for (; !read_only && thread.groups_written.size() > static_cast<size_t>(pending); thread.groups_written.pop_front())
    thread.clock[stores_of(*thread.warp)] = thread.groups_written.front();
  while (thread.store_groups.size() > static_cast<size_t>(pending)) {
    for (const TensorCopy &copy : thread.store_groups.front())
      perform_store(thread, copy);
    thread.store_groups.pop_front();
  }
}

void shared_proxy_fence() {
  Thread &thread = self();
  thread.proxy_fences++;
  thread.fenced = thread.clock;
}

void global_proxy_fence() {
  Thread &thread = self();
  thread.fenced_global = thread.clock;
}

void perform_load(Block &block, const TensorCopy &copy) {
  move_box(block, copy, true);
  for_box_chunks(block, copy, [&](uint32_t address, Chunk &chunk) {
    chunk.copying--;
    order_landed(block, copy.asker, copy.asked_at, address);
  });
  complete_bytes(block, copy, bytes_of(geometry_of(copy.map)));
}

} // namespace

uint32_t swizzled_128(uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

// What a thread wrote itself is seen by TMA and by wgmma only after a fence: the writer's own, or that of the reader,
// who knew of the write then.
void check_proxy(const Thread &by, uint32_t address, const char *what) {
  Block &block = *by.block;
  const Chunk &chunk = chunk_at(block, address);
  if (chunk.written && block.threads[chunk.writer]->proxy_fences == chunk.writer_fences &&
      !order_is_fenced(by, address))
    fail("%s at shared 0x%x: thread %u wrote there, and no fence.proxy.async followed", what, address, chunk.writer);
}

// Those that are due; with `idle` one by chance, as nothing else can go on. Whether any arrived.
bool deliver_load(Block &block, bool idle) {
  if (block.loads.empty()) return false;
  const size_t start = machine().random.below(static_cast<unsigned>(block.loads.size()));
  for (size_t i = 0; i < block.loads.size(); i++) {
    const size_t at = (start + i) % block.loads.size();
    if (!idle && block.loads[at].due > machine().step) continue;
    const TensorCopy copy = block.loads[at];
    block.loads.erase(block.loads.begin() + static_cast<std::ptrdiff_t>(at));
    perform_load(block, copy);
    return true;
  }
  return false;
}

void fill_tensor_copies(emulator_device_api *device) {
  device->tensor_load = tensor_load;
  device->tensor_store = tensor_store;
  device->bulk_load = bulk_load;
  device->bulk_store = bulk_store;
  device->tensor_store_commit = tensor_store_commit;
  device->tensor_store_wait = tensor_store_wait;
  device->shared_proxy_fence = shared_proxy_fence;
  device->global_proxy_fence = global_proxy_fence;
}

} // namespace emulator
