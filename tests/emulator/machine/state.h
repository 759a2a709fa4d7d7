// What the machine holds: a launch, the blocks under way, their warps and threads, and what is in flight.
#ifndef KJIT_TESTS_EMULATOR_MACHINE_STATE_H
#define KJIT_TESTS_EMULATOR_MACHINE_STATE_H

#include <stdbool.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "device/emulator_device.h"
#include "machine.h"
#include "machine/fiber.h"
#include "machine/global_order.h"

namespace emulator {

constexpr int kLanes = 32;
constexpr int kGroupThreads = 128; // of a warpgroup
constexpr int kBarriers = 16;      // named barriers of a block; number 0 is __syncthreads()
constexpr unsigned kChunkBytes = 16;

struct Warp;
struct Block;
struct Thread;

// SplitMix64: the choices of a run follow from its seed.
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>((next() >> 32) * limit >> 32); }

private:
  uint64_t state_;
};

// Why a thread does not run, for the scheduler and for the report of a deadlock.
struct Wait {
  enum Kind { kNothing, kEnded, kWarp, kWarpgroup, kBarrier, kMbarrier, kRegisters };
  Kind kind = kNothing;
  const char *what = "";
  uint32_t number = 0; // of the barrier; the mbarrier's address; registers
  uint32_t detail = 0; // threads; parity
};

// cp.async: 16 bytes under way.
struct AsyncCopy {
  uint32_t shared;
  const void *global;
  unsigned bytes; // the others become zeros
};

// cp.async.mbarrier.arrive: an arrival that comes when all copies that the thread had issued are done.
struct CopyArrival {
  std::vector<AsyncCopy> copies;
  uint32_t barrier;
  int asker;    // the thread,
  Clock clock;  // its clock then,
  uint64_t due; // and the step of the scheduler before which it does not come, unless nothing else can go on
};

// A box between global and shared memory.
struct TensorCopy {
  emulator_tensor_map map;
  uint32_t shared;
  uint32_t barrier; // loads
  int at[5];
  int asker; // loads: the thread, and its clock then
  uint32_t asked_at;
  uint64_t due; // loads: not before this step of the scheduler, unless nothing else can go on
  bool is_row;  // stores: by cp.async.bulk or cp.reduce.async.bulk
  bool adds;    // of these: fp32 values are added to what is there
};

struct Thread {
  Fiber fiber;
  emulator_place place = {};
  Block *block = nullptr;
  Warp *warp = nullptr;
  int index = 0, lane = 0; // in the block, in the warp
  Wait wait;
  void *operands = nullptr; // of the instruction that it waits in

  std::vector<AsyncCopy> open_copies;               // no group yet
  std::deque<std::vector<AsyncCopy>> copy_groups;   // oldest first
  std::vector<TensorCopy> open_stores;              // no group yet
  std::deque<std::vector<TensorCopy>> store_groups; // oldest first
  std::deque<uint32_t> groups_written;              // of groups that may not have reached global memory: the warp's
                                                    // stores until their end
  uint32_t proxy_fences = 0;                        // passed so far
  Clock clock, fenced;                              // what it knows, and knew at its last proxy fence
  Clock fenced_global;                              // the same of a fence that covers global memory
  std::vector<std::shared_ptr<const Knowledge>> observed; // by atomic reads since the last fence
  std::shared_ptr<const Knowledge> last_acquired;
};

// Threads that execute an instruction together.
struct Meeting {
  const char *what = nullptr; // of those who came first
  unsigned arrived = 0;
  std::array<Thread *, kGroupThreads> members = {};
};

struct Warp {
  Block *block = nullptr;
  int index = 0;
  int size = 0;            // lanes that exist
  int ready = 0;           // lanes that can run
  uint64_t held_until = 0; // step of the scheduler before which others go first
  std::array<Thread *, kLanes> lanes = {};
  Meeting meeting;
  std::deque<uint64_t>
      product_groups; // for each committed group of wgmma that was not waited for: products until its end
  bool products_fenced = false;
  uint32_t product_waits = 0; // passed so far
  uint32_t stores = 0;        // cp.async.bulk stores asked for so far
  uint64_t products_over = 0; // number of the last one waited for
};

// Accumulators of a warpgroup while products are in flight on them.
struct Accumulators {
  int columns = 0;
  uint64_t last_product = 0;                            // number of the latest product on them
  std::array<float *, kGroupThreads> registers = {};    // columns / 2 of each thread
  std::vector<float> values;                            // [64][columns]
  std::array<bool, kGroupThreads / kLanes> handed = {}; // whether a warp has got them back
};

struct Product {
  uint64_t number; // counted from 1
  emulator_wgmma operands;
  std::array<const uint32_t *, kGroupThreads> a; // registers
  std::array<std::array<uint32_t, 4>, kGroupThreads> a_at_issue;
  std::shared_ptr<Accumulators> accumulators;
  bool performed;
  int warps_waited; // for it
};

struct Warpgroup {
  Meeting meeting;
  int registers = 0; // per thread
  uint64_t issued = 0;
  std::deque<Product> in_flight;
  std::vector<std::shared_ptr<Accumulators>> held; // in flight, or not handed back to every warp
};

struct Barrier {
  int expected = 0; // threads; 0: nobody came yet
  int came = 0;
  std::bitset<EMULATOR_THREADS_MAX> arrived;
  std::vector<Thread *> waiting;
  Clock clock; // of those who came
};

struct Mbarrier {
  int arrivals = 0; // of a phase
  int missing = 0;
  int64_t bytes = 0; // expected and not arrived
  unsigned phase = 0;
  bool fenced = false;
  int initialiser = 0; // thread, and its clock then
  uint32_t initialised_at = 0;
  Clock clock, completed; // of all who arrived; of those in completed phases
  std::vector<Thread *> waiting;
};

// What is known of 16 bytes of shared memory.
struct Chunk {
  uint16_t copying = 0; // copies to it in flight
  uint16_t reading = 0; // copies and products that read it in flight
  bool barrier = false; // holds an mbarrier
  bool written = false; // by a thread's own instruction, not by TMA:
  uint16_t writer = 0;
  uint32_t writer_fences = 0; // proxy fences that the writer had passed
};

struct Reading {
  uint16_t thread;
  uint32_t at;
};

// Who wrote four bytes of shared memory last, and who read them since.
struct Word {
  uint32_t era = 0; // of the block; what is from an earlier one is known to all
  uint16_t writer = 0;
  uint32_t written_at = 0;
  std::vector<Reading> readings;
};

// The last product of a warpgroup that read a chunk: the waits of its warps by which it was over.
struct ProductReading {
  uint64_t product = 0;
  std::array<uint32_t, 4> waits = {};
};

struct Block {
  emulator_index index = {};
  int threads_alive = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> groups;
  int registers_free = 0; // given up by warpgroups, per thread of a warpgroup

  uint32_t shared_base = 0; // the shared address of the dynamic memory
  char *shared = nullptr;   // where it lies here
  std::vector<char> shared_memory;
  std::vector<Chunk> chunks;
  std::vector<Word> words;
  uint32_t era = 0;                             // barriers of all threads so far
  std::vector<ProductReading> product_readings; // [chunk][warpgroup]
  std::array<Barrier, kBarriers> barriers;
  std::map<uint32_t, Mbarrier> mbarriers;
  std::vector<TensorCopy> loads;     // in flight
  std::vector<CopyArrival> arrivals; // in flight
  BlockKnowledge known;              // of other blocks
};

// A launch under way. One for each call of emulator_run().
struct Machine {
  const emulator_launch *launch = nullptr;
  char *error = nullptr;
  bool failed = false;
  Random random{0};
  uint64_t step = 0;     // of the scheduler
  bool gave_way = false; // the turn of the warp that runs is over
  bool napped = false;   // it ended in __nanosleep()
  uint64_t naps = 0;     // turns in a row that did, while nothing was delivered
  Thread *running = nullptr;
  GlobalOrder global;
  std::vector<std::unique_ptr<Block>> blocks; // places for blocks that are under way at the same time
};

// Of the launch that this host thread runs.
Machine &machine();
Thread &self();

// A rule was broken: noted with the block and thread that run; the first one counts. Does not return on a fiber.
__attribute__((format(printf, 1, 2))) void fail(const char *rule, ...);

// Stop until somebody wakes this thread.
void wait_for(const Wait &wait);
void wake(Thread *thread);

// Once in so many calls, let others run: where what this thread did may let them go on too early.
void give_way(unsigned one_in);

// Memory, checked. `what` names the instruction.
enum class Access { kRead, kWrite };
char *shared_at(Block &block, uint32_t address, unsigned bytes, unsigned alignment, const char *what);
char *access_shared(Thread &by, uint32_t address, unsigned bytes, Access access, const char *what);
Chunk &chunk_at(Block &block, uint32_t address);
uint32_t swizzled_128(uint32_t address);
void check_proxy(const Thread &by, uint32_t address, const char *what);
void check_global(const void *address, unsigned bytes, unsigned alignment, const char *what);
void reset_shared(Block &block);
void poison(char *memory, unsigned bytes);

// Order (order.cc). `by` reads or writes; reads what products read; has written what was under way. join(): know what
// another does. let_know(): tell it.
void reset_order(Block &block);
void order_access(Thread &by, uint32_t address, unsigned bytes, Access access, const char *what);
void order_seen(const Thread &by, uint32_t address, unsigned bytes, const char *what);
void order_landed(Block &block, int by, uint32_t by_clock, uint32_t address);
bool order_is_fenced(const Thread &by, uint32_t address);
void join(Clock &to, const Clock &from);
void let_know(Clock &to, Thread &by);
void count_product_wait(Warp &warp);
size_t stores_of(const Warp &warp);
void note_product_reading(Warp &warp, uint64_t product, uint32_t address);
void order_after_products(Thread &by, uint32_t address, const char *what);

// For blocks that end, and for the scheduler.
void finish_copies(Thread &thread);
void drop_out_of_barriers(Thread &thread);
bool deliver_load(Block &block, bool idle);
bool deliver_arrival(Block &block, bool idle);
uint64_t choose_due();
void complete_arrival(Block &block, uint32_t barrier, const Clock &clock);
void complete_bytes(Block &block, const TensorCopy &copy, int64_t bytes);
void check_copy_barrier(Block &block, uint32_t barrier);
void check_no_products(const Thread &thread);
void report_deadlock();

// Bits of 16-bit operands as numbers.
float number_of(uint16_t bits, bool bf16);

// The table's entries, by file.
void fill_memory(emulator_device_api *device);
void fill_warp(emulator_device_api *device);
void fill_barriers(emulator_device_api *device);
void fill_copies(emulator_device_api *device);
void fill_tensor_copies(emulator_device_api *device);
void fill_products(emulator_device_api *device);

// Every member executes `what` with its operands; the last to come performs it for all, by members in their order.
template <typename Perform>
void meet(Meeting &meeting, unsigned size, unsigned position, Wait::Kind kind, const char *what, void *operands,
          Perform perform) {
  Thread &thread = self();
  if (meeting.arrived && meeting.what != what)
    fail("%s, while others of the same %s are at %s: they must execute it together", what,
         kind == Wait::kWarp ? "warp" : "warpgroup", meeting.what);
  meeting.what = what;
  meeting.members[position] = &thread;
  thread.operands = operands;
  if (++meeting.arrived < size) {
    wait_for({kind, what, 0, 0});
    return;
  }
  meeting.arrived = 0;
  perform(meeting.members);
  for (unsigned i = 0; i < size; i++)
    if (meeting.members[i] != &thread) wake(meeting.members[i]);
}

template <typename Perform> void meet_warp(const char *what, void *operands, Perform perform) {
  Thread &thread = self();
  meet(thread.warp->meeting, static_cast<unsigned>(thread.warp->size), static_cast<unsigned>(thread.lane), Wait::kWarp,
       what, operands, perform);
}

} // namespace emulator

#endif
