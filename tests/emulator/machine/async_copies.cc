// cp.async. A copy is performed as late as its thread's waits allow. Until then its destination holds NaNs and must not
// be touched, so that a kernel that waits too little computes NaN or is reported.
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

void async_copy(unsigned shared, const void *global, unsigned bytes) {
  Block &block = *self().block;
  if (bytes > kChunkBytes) fail("cp.async of %u bytes", bytes);
  char *const target = access_shared(self(), shared, kChunkBytes, Access::kWrite, "cp.async");
  if (bytes) check_global(global, kChunkBytes, kChunkBytes, "cp.async");
  poison(target, kChunkBytes);
  chunk_at(block, shared).copying++;
  self().open_copies.push_back({shared, global, bytes});
}

void perform(Thread &thread, const AsyncCopy &copy) {
  Block &block = *thread.block;
  char *const target = block.shared + (copy.shared - block.shared_base);
  memset(target, 0, kChunkBytes);
  memcpy(target, copy.global, copy.bytes);
  chunk_at(block, copy.shared).copying--;
  order_landed(block, thread.index, thread.clock[static_cast<size_t>(thread.index)], copy.shared);
}

void async_copy_commit() {
  self().copy_groups.push_back(std::move(self().open_copies));
  self().open_copies.clear();
}

void finish_groups(Thread &thread, int pending) {
  while (thread.copy_groups.size() > static_cast<size_t>(pending)) {
    for (const AsyncCopy &copy : thread.copy_groups.front())
      perform(thread, copy);
    thread.copy_groups.pop_front();
  }
}

void async_copy_wait(int pending) {
  finish_groups(self(), pending);
  give_way(64);
}

} // namespace

// Copies that a thread never waited for write its block's memory all the same.
void finish_copies(Thread &thread) {
  async_copy_commit();
  finish_groups(thread, 0);
  if (!thread.open_stores.empty() || !thread.store_groups.empty())
    fail("the thread ended before its cp.async.bulk stores had read shared memory");
}

void fill_copies(emulator_device_api *device) {
  device->async_copy = async_copy;
  device->async_copy_commit = async_copy_commit;
  device->async_copy_wait = async_copy_wait;
}

} // namespace emulator
