// Barriers: named barriers of a block, mbarriers with their phases, and the registers that warpgroups hand to each
// other by setmaxnreg. A thread that has to wait gives its turn back to the scheduler.
#include <algorithm>

#include "machine/state.h"

namespace emulator {
namespace {

void release_waiting(std::vector<Thread *> &waiting) {
  for (Thread *const thread : waiting)
    wake(thread);
  waiting.clear();
}

// Number 0 for no stated number of threads is for all that have not ended.
bool is_complete(const Block &block, const Barrier &barrier) {
  const int expected = barrier.expected < 0 ? block.threads_alive : barrier.expected;
  return barrier.expected != 0 && barrier.came >= expected;
}

void complete(Block &block, Barrier &barrier) {
  if (barrier.came == static_cast<int>(block.threads.size())) block.era++;
  for (Thread *const thread : barrier.waiting)
    join(thread->clock, barrier.clock);
  barrier.clock.clear();
  barrier.expected = 0;
  barrier.came = 0;
  barrier.arrived.reset();
  release_waiting(barrier.waiting);
}

Barrier &arrive(int number, int threads, const char *what) {
  Thread &thread = self();
  if (number < 0 || number >= kBarriers) fail("%s %d: barriers are 0 to 15", what, number);
  if (threads % kLanes != 0) fail("%s %d for %d threads: not whole warps", what, number, threads);
  Barrier &barrier = thread.block->barriers[static_cast<size_t>(number)];
  const int expected = threads ? threads : -1;
  if (barrier.expected && barrier.expected != expected)
    fail("%s %d for %d threads, others for %d", what, number, threads, barrier.expected);
  if (barrier.arrived.test(static_cast<size_t>(thread.index)))
    fail("%s %d: this thread has arrived already", what, number);
  barrier.expected = expected;
  barrier.arrived.set(static_cast<size_t>(thread.index));
  barrier.came++;
  let_know(barrier.clock, thread);
  return barrier;
}

void barrier_sync(int number, int threads) {
  Barrier &barrier = arrive(number, threads, "bar.sync");
  if (is_complete(*self().block, barrier)) {
    join(self().clock, barrier.clock);
    complete(*self().block, barrier);
    give_way(4);
    return;
  }
  barrier.waiting.push_back(&self());
  wait_for({Wait::kBarrier, "bar.sync", static_cast<uint32_t>(number), 0});
}

void barrier_arrive(int number, int threads) {
  Barrier &barrier = arrive(number, threads, "bar.arrive");
  if (is_complete(*self().block, barrier)) complete(*self().block, barrier);
  give_way(64);
}

void mbarrier_init(unsigned address, int arrivals) {
  Block &block = *self().block;
  shared_at(block, address, 8, 8, "mbarrier.init");
  if (arrivals <= 0) fail("mbarrier.init at shared 0x%x: %d arrivals", address, arrivals);
  if (block.mbarriers.count(address)) fail("mbarrier.init at shared 0x%x: it is one already", address);
  Mbarrier &barrier = block.mbarriers[address];
  barrier.arrivals = barrier.missing = arrivals;
  barrier.initialiser = self().index;
  barrier.initialised_at = self().clock[static_cast<size_t>(self().index)];
  chunk_at(block, address).barrier = true;
}

void mbarrier_init_fence() {
  for (auto &[address, barrier] : self().block->mbarriers)
    if (barrier.initialiser == self().index) barrier.fenced = true;
}

Mbarrier &find(Block &block, uint32_t address, const char *what) {
  const auto found = block.mbarriers.find(address);
  if (found == block.mbarriers.end()) fail("%s at shared 0x%x: no mbarrier was initialised there", what, address);
  return found->second;
}

Mbarrier &find_visible(uint32_t address, const char *what) {
  Mbarrier &barrier = find(*self().block, address, what);
  if (self().clock[static_cast<size_t>(barrier.initialiser)] < barrier.initialised_at)
    fail("%s at shared 0x%x: no barrier since thread %d initialised it", what, address, barrier.initialiser);
  return barrier;
}

void advance(Mbarrier &barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.phase++;
  barrier.completed = barrier.clock;
  barrier.missing = barrier.arrivals;
  release_waiting(barrier.waiting);
}

void mbarrier_arrive(unsigned address, int bytes) {
  Mbarrier &barrier = find_visible(address, "mbarrier.arrive");
  if (barrier.missing == 0)
    fail("mbarrier.arrive at shared 0x%x: all %d arrivals of the phase were there", address, barrier.arrivals);
  let_know(barrier.clock, self());
  barrier.bytes += bytes;
  barrier.missing--;
  advance(barrier);
  give_way(2);
}

void mbarrier_wait(unsigned address, int parity) {
  Mbarrier &barrier = find_visible(address, "mbarrier.try_wait");
  if (parity != 0 && parity != 1) fail("mbarrier.try_wait at shared 0x%x: parity %d", address, parity);
  while (barrier.phase % 2 == static_cast<unsigned>(parity)) {
    barrier.waiting.push_back(&self());
    wait_for({Wait::kMbarrier, "mbarrier.try_wait", address, static_cast<uint32_t>(parity)});
  }
  join(self().clock, barrier.completed);
  give_way(64);
}

Warpgroup &own_group() {
  Block &block = *self().block;
  const size_t group = static_cast<size_t>(self().index / kGroupThreads);
  if (group >= block.groups.size()) fail("setmaxnreg outside of a whole warpgroup");
  return block.groups[group];
}

// What a warpgroup gives up others may take.
void change_registers(Warpgroup &group, int registers, bool increase) {
  Block &block = *self().block;
  if (registers % 8 != 0 || registers < 24 || registers > 256) fail("setmaxnreg %d: 24 to 256, by eights", registers);
  if (increase ? registers < group.registers : registers > group.registers)
    fail("setmaxnreg.%s %d: a thread has %d", increase ? "inc" : "dec", registers, group.registers);
  block.registers_free += group.registers - registers;
  group.registers = registers;
}

void set_registers(int registers, bool increase) {
  Warpgroup &group = own_group();
  Block &block = *self().block;
  const unsigned position = static_cast<unsigned>(self().index % kGroupThreads);
  const char *const what = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  meet(group.meeting, kGroupThreads, position, Wait::kWarpgroup, what, nullptr, [&](auto &) {
    while (registers - group.registers > block.registers_free)
      wait_for({Wait::kRegisters, what, static_cast<uint32_t>(registers), 0});
    change_registers(group, registers, increase);
    for (auto &thread : block.threads)
      if (thread->wait.kind == Wait::kRegisters) wake(thread.get());
  });
}

} // namespace

// What arrived is known to those who wait for the barrier.
void complete_bytes(Block &block, const TensorCopy &copy, int64_t bytes) {
  Mbarrier &barrier = find(block, copy.barrier, "complete_tx");
  barrier.clock.resize(block.threads.front()->clock.size());
  uint32_t &known = barrier.clock[static_cast<size_t>(copy.asker)];
  known = std::max(known, copy.asked_at);
  barrier.bytes -= bytes;
  advance(barrier);
}

// An arrival by somebody who knew `clock` when it was asked for.
void complete_arrival(Block &block, uint32_t address, const Clock &clock) {
  Mbarrier &barrier = find(block, address, "cp.async.mbarrier.arrive");
  if (barrier.missing == 0)
    fail("cp.async.mbarrier.arrive at shared 0x%x: all %d arrivals of the phase were there", address, barrier.arrivals);
  join(barrier.clock, clock);
  barrier.missing--;
  advance(barrier);
}

void check_copy_barrier(Block &block, uint32_t address) {
  if (!find(block, address, "cp.async.bulk").fenced)
    fail("cp.async.bulk with the mbarrier at shared 0x%x: no fence.mbarrier_init since it was initialised", address);
}

// A thread that ended is not waited for.
void drop_out_of_barriers(Thread &thread) {
  Barrier &barrier = thread.block->barriers[0];
  if (barrier.expected < 0 && is_complete(*thread.block, barrier)) complete(*thread.block, barrier);
}

void fill_barriers(emulator_device_api *device) {
  device->barrier_sync = barrier_sync;
  device->barrier_arrive = barrier_arrive;
  device->mbarrier_init = mbarrier_init;
  device->mbarrier_init_fence = mbarrier_init_fence;
  device->mbarrier_arrive = mbarrier_arrive;
  device->mbarrier_wait = mbarrier_wait;
  device->set_registers = set_registers;
}

} // namespace emulator
