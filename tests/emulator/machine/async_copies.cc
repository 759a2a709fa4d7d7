// cp.async. A copy is performed as late as its thread's waits allow. Until then its destination holds NaNs and must not
// be touched, so that a kernel that waits too little computes NaN or is reported. Copies that an mbarrier counts are
// performed at some later step of the scheduler.
#include <algorithm>
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

void async_copy(unsigned shared, const void *global, unsigned bytes) {
  Block &block = *self().block;
  if (bytes > kChunkBytes) fail("cp.async of %u bytes", bytes);
  char *const target = access_shared(self(), shared, kChunkBytes, Access::kWrite, "cp.async");
  if (bytes) {
    check_global(global, kChunkBytes, kChunkBytes, "cp.async");
    order_global(self(), global, bytes, GlobalAccess::kRead, "cp.async");
  }
  poison(target, kChunkBytes);
  chunk_at(block, shared).copying++;
  self().open_copies.push_back({shared, global, bytes});
}

void perform(Block &block, const AsyncCopy &copy, int asker, uint32_t clock) {
  char *const target = block.shared + (copy.shared - block.shared_base);
  memset(target, 0, kChunkBytes);
  memcpy(target, copy.global, copy.bytes);
  chunk_at(block, copy.shared).copying--;
  order_landed(block, asker, clock, copy.shared);
}

void async_copy_commit() {
  self().copy_groups.push_back(std::move(self().open_copies));
  self().open_copies.clear();
}

void finish_groups(Thread &thread, int pending) {
  while (thread.copy_groups.size() > static_cast<size_t>(pending)) {
    for (const AsyncCopy &copy : thread.copy_groups.front())
      perform(*thread.block, copy, thread.index, thread.clock[static_cast<size_t>(thread.index)]);
    thread.copy_groups.pop_front();
  }
}

void perform_arrival(Block &block, size_t at) {
  const CopyArrival arrival = std::move(block.arrivals[at]);
  block.arrivals.erase(block.arrivals.begin() + static_cast<std::ptrdiff_t>(at));
  for (const AsyncCopy &copy : arrival.copies)
    perform(block, copy, arrival.asker, arrival.clock[static_cast<size_t>(arrival.asker)]);
  complete_arrival(block, arrival.barrier, arrival.clock);
}

// The arrival takes all copies of the thread along that are not done, in groups or not.
void async_copy_arrive(unsigned barrier) {
  Thread &thread = self();
  CopyArrival arrival = {{}, barrier, thread.index, thread.clock, choose_due()};
  async_copy_commit();
  for (const auto &group : thread.copy_groups)
    arrival.copies.insert(arrival.copies.end(), group.begin(), group.end());
  thread.copy_groups.clear();
  thread.clock[static_cast<size_t>(thread.index)]++;
  thread.block->arrivals.push_back(std::move(arrival));
  give_way(64);
}

// A wait for groups waits for those that an mbarrier counts too: which of them are meant is not kept.
void finish_arrivals(Thread &thread) {
  auto &arrivals = thread.block->arrivals;
  for (size_t i = 0; i < arrivals.size();) {
    if (arrivals[i].asker == thread.index)
      perform_arrival(*thread.block, i);
    else
      i++;
  }
}

void async_copy_wait(int pending) {
  finish_arrivals(self());
  finish_groups(self(), pending);
  give_way(64);
}

} // namespace

// Of those that are due, one that came first; with `idle` of all. Whether any arrived.
bool deliver_arrival(Block &block, bool idle) {
  const auto is_due = [&](const CopyArrival &arrival) { return idle || arrival.due <= machine().step; };
  const auto found = std::find_if(block.arrivals.begin(), block.arrivals.end(), is_due);
  if (found == block.arrivals.end()) return false;
  perform_arrival(block, static_cast<size_t>(found - block.arrivals.begin()));
  return true;
}

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
  device->async_copy_arrive = async_copy_arrive;
}

} // namespace emulator
