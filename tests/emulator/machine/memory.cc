// Accesses to shared and global memory: each is checked for bounds and alignment, and for bytes that a copy or a
// product in flight still uses.
#include <algorithm>
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

// A NaN in every format that kernels compute in.
constexpr unsigned char kPoison[2] = {0xff, 0x7f};

char *dynamic_shared() {
  return self().block->shared;
}

unsigned shared_address(const void *pointer) {
  const Block &block = *self().block;
  const uintptr_t at = reinterpret_cast<uintptr_t>(pointer), start = reinterpret_cast<uintptr_t>(block.shared);
  if (at < start || at > start + machine().launch->shared_bytes) fail("%p is no address in shared memory", pointer);
  return block.shared_base + static_cast<unsigned>(at - start);
}

void load_shared(void *value, unsigned address, unsigned bytes) {
  memcpy(value, access_shared(self(), address, bytes, Access::kRead, "ld.shared"), bytes);
}

void store_shared(unsigned address, const void *value, unsigned bytes) {
  memcpy(access_shared(self(), address, bytes, Access::kWrite, "st.shared"), value, bytes);
  give_way(256);
}

void load_global(void *value, const void *address, unsigned bytes) {
  check_global(address, bytes, bytes, "ld.global");
  order_global(self(), address, bytes, GlobalAccess::kRead, "ld.global");
  memcpy(value, address, bytes);
}

void store_global(void *address, const void *value, unsigned bytes) {
  check_global(address, bytes, bytes, "st.global");
  order_global(self(), address, bytes, GlobalAccess::kWrite, "st.global");
  memcpy(address, value, bytes);
  give_way(64);
}

void load_atomic(void *value, const void *address, unsigned bytes, emulator_order order) {
  check_global(address, bytes, bytes, "an atomic access");
  const bool acquires = order == EMULATOR_ACQUIRES || order == EMULATOR_BOTH;
  if (acquires || order == EMULATOR_RELAXED) observe_word(self(), address, acquires);
  memcpy(value, address, bytes);
}

void store_atomic(void *address, const void *value, unsigned bytes, emulator_order order) {
  check_global(address, bytes, bytes, "an atomic access");
  if (order == EMULATOR_ADDS)
    order_global(self(), address, bytes, GlobalAccess::kAdd, "an addition");
  else
    publish_word(self(), address, order == EMULATOR_RELEASES || order == EMULATOR_BOTH);
  memcpy(address, value, bytes);
  give_way(64);
}

void fence() {
  fence_global(self());
}

template <typename Visit> void for_chunks(Block &block, uint32_t address, unsigned bytes, Visit visit) {
  for (uint32_t at = address / kChunkBytes * kChunkBytes; at < address + bytes; at += kChunkBytes)
    visit(chunk_at(block, at));
}

void note_writer(Block &block, uint32_t address, unsigned bytes, const Thread &writer) {
  for_chunks(block, address, bytes, [&](Chunk &chunk) {
    chunk.written = true;
    chunk.writer = static_cast<uint16_t>(writer.index);
    chunk.writer_fences = writer.proxy_fences;
  });
}

} // namespace

char *shared_at(Block &block, uint32_t address, unsigned bytes, unsigned alignment, const char *what) {
  const uint32_t size = machine().launch->shared_bytes;
  if (address % alignment != 0) fail("%s at shared 0x%x: not aligned to %u bytes", what, address, alignment);
  if (address < block.shared_base || address - block.shared_base > size || bytes > size - (address - block.shared_base))
    fail("%s of %u bytes at shared 0x%x: the block has 0x%x to 0x%x", what, bytes, address, block.shared_base,
         block.shared_base + size);
  return block.shared + (address - block.shared_base);
}

Chunk &chunk_at(Block &block, uint32_t address) {
  return block.chunks[(address - block.shared_base) / kChunkBytes];
}

char *access_shared(Thread &by, uint32_t address, unsigned bytes, Access access, const char *what) {
  Block &block = *by.block;
  // One access has a power of two of bytes. A structure of other bytes is written in pieces, of which the largest
  // divides it.
  char *const memory = shared_at(block, address, bytes, bytes & (~bytes + 1), what);
  for_chunks(block, address, bytes, [&](const Chunk &chunk) {
    if (chunk.barrier) fail("%s at shared 0x%x: an mbarrier is there", what, address);
    if (chunk.copying) fail("%s at shared 0x%x: a copy to it is in flight", what, address);
    if (chunk.reading && access == Access::kWrite)
      fail("%s at shared 0x%x: a copy or a product that reads it is in flight", what, address);
  });
  order_access(by, address, bytes, access, what);
  if (access == Access::kWrite) {
    order_after_products(by, address, what);
    note_writer(block, address, bytes, by);
  }
  return memory;
}

void check_global(const void *address, unsigned bytes, unsigned alignment, const char *what) {
  const emulator_launch &launch = *machine().launch;
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0)
    fail("%s at global %p: not aligned to %u bytes", what, address, alignment);
  if (!launch.is_device_memory(launch.context, address, bytes))
    fail("%s of %u bytes at global %p: outside of every allocation", what, bytes, address);
}

void poison(char *memory, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++)
    memory[i] = static_cast<char>(kPoison[i % 2]);
}

// The hardware promises 16 bytes of alignment and gives 128: any multiple of these may come.
void reset_shared(Block &block) {
  const unsigned bytes = machine().launch->shared_bytes;
  block.shared_base = 1024 + 128 * machine().random.below(8);
  block.shared_memory.resize(bytes + 2048);
  const uintptr_t start = reinterpret_cast<uintptr_t>(block.shared_memory.data());
  block.shared = block.shared_memory.data() + (1024 - start % 1024) + block.shared_base % 1024;
  poison(block.shared, bytes);
  block.chunks.assign(bytes / kChunkBytes + 1, Chunk{});
  reset_order(block);
}

static void announce(const void *address, unsigned bytes, bool write) {
  const Block &block = *self().block;
  const emulator_launch &launch = *machine().launch;
  const char *const what = write ? "a write" : "a read";
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(block.shared);
  if (offset < launch.shared_bytes)
    access_shared(self(), block.shared_base + static_cast<uint32_t>(offset), bytes,
                  write ? Access::kWrite : Access::kRead, what);
  else if (launch.is_device_memory(launch.context, address, bytes))
    order_global(self(), address, bytes, write ? GlobalAccess::kWrite : GlobalAccess::kRead, what);
  else
    fail("%s of %u bytes at %p: neither in device memory nor in shared memory", what, bytes, address);
}

void fill_memory(emulator_device_api *device) {
  device->announce = announce;
  device->dynamic_shared = dynamic_shared;
  device->shared_address = shared_address;
  device->load_shared = load_shared;
  device->store_shared = store_shared;
  device->load_global = load_global;
  device->store_global = store_global;
  device->load_atomic = load_atomic;
  device->store_atomic = store_atomic;
  device->fence = fence;
}

} // namespace emulator
