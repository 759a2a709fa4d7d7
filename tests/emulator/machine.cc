// The machine's scheduler. Blocks start in order of their numbers, some of them at the same time; among their warps
// chance picks the next to run; the lanes of a warp run in turns until each waits or ends. When nothing can run
// although threads are left, it is a deadlock and is reported.
#include "machine.h"

#include <algorithm>
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

// Blocks under way at the same time: enough that those which share out their work do.
constexpr unsigned kMostBlocks = 4;

// In the part of a thread's memory that is found without a call.
__attribute__((tls_model("initial-exec"))) thread_local Machine *current;

void wait_ended(Thread &thread) {
  thread.wait.kind = Wait::kEnded;
  thread.warp->ready--;
  thread.block->threads_alive--;
}

void run_thread(void *argument) {
  Thread &thread = *static_cast<Thread *>(argument);
  machine().launch->entry(machine().launch->params);
  finish_copies(thread);
  check_no_products(thread);
  wait_ended(thread);
  drop_out_of_barriers(thread);
}

emulator_index index_of(unsigned number, const unsigned size[3]) {
  return {number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
}

unsigned count_of(const unsigned size[3]) {
  return size[0] * size[1] * size[2];
}

void make_threads(Block &block, unsigned count) {
  block.warps = std::vector<Warp>((count + kLanes - 1) / kLanes);
  for (unsigned i = 0; i < count; i++) {
    Warp &warp = block.warps[i / kLanes];
    block.threads.push_back(std::make_unique<Thread>());
    Thread &thread = *block.threads.back();
    thread.block = &block;
    thread.warp = &warp;
    thread.index = static_cast<int>(i);
    thread.lane = static_cast<int>(i % kLanes);
    warp.block = &block;
    warp.index = static_cast<int>(i / kLanes);
    warp.lanes[i % kLanes] = &thread;
    warp.size++;
  }
}

// Registers are handed out in eights, at most 255 a thread; an allocation of 256 counts as that.
int registers_at_launch(unsigned threads, unsigned blocks) {
  return static_cast<int>(std::min(256u, 65536u / std::max(blocks, 1u) / std::max(threads, 128u) / 8 * 8));
}

void start_thread(Thread &thread, unsigned block_number) {
  const emulator_launch &launch = *machine().launch;
  thread.place = {index_of(static_cast<unsigned>(thread.index), launch.block),
                  index_of(block_number, launch.grid),
                  {launch.block[0], launch.block[1], launch.block[2]},
                  {launch.grid[0], launch.grid[1], launch.grid[2]}};
  thread.wait = Wait{};
  thread.copy_groups.clear();
  thread.store_groups.clear();
  thread.groups_written.clear();
  thread.proxy_fences = 0;
  thread.fenced.clear();
  thread.fenced_global.clear();
  thread.observed.clear();
  thread.last_acquired = nullptr;
  thread.fiber.start(run_thread, &thread);
}

void start_block(Block &block, unsigned number) {
  const emulator_launch &launch = *machine().launch;
  block.index = index_of(number, launch.grid);
  block.threads_alive = static_cast<int>(block.threads.size());
  for (auto &thread : block.threads)
    start_thread(*thread, number);
  for (Warp &warp : block.warps) {
    warp.ready = warp.size;
    warp.held_until = 0;
    warp.meeting = Meeting{};
    warp.product_groups.clear();
    warp.products_fenced = false;
    warp.product_waits = 0;
    warp.stores = 0;
    warp.products_over = 0;
  }
  block.groups = std::vector<Warpgroup>(block.threads.size() / kGroupThreads);
  for (Warpgroup &group : block.groups)
    group.registers = registers_at_launch(static_cast<unsigned>(block.threads.size()), launch.min_blocks);
  block.registers_free = 0;
  block.barriers.fill(Barrier{});
  block.mbarriers.clear();
  block.loads.clear();
  block.arrivals.clear();
  block.known = BlockKnowledge{number + 1, {}, {}};
  reset_shared(block);
}

void resume(Thread &thread) {
  machine().running = &thread;
  thread.fiber.resume();
  machine().running = nullptr;
}

// When all threads that still run do nothing but ask for a word and sleep, nobody will write it. So many turns of that
// kind in a row come by chance in no launch that would end.
constexpr uint64_t kMostNaps = 1 << 16;

// Each lane that can run runs until it has to wait; from a different one each time.
void run_lanes(Warp &warp) {
  const unsigned size = static_cast<unsigned>(warp.size), first = machine().random.below(size);
  for (unsigned i = 0; i < size && !machine().failed && !machine().gave_way; i++) {
    Thread &thread = *warp.lanes[(first + i) % size];
    if (thread.wait.kind == Wait::kNothing) resume(thread);
  }
}

// Now and then a warp gets far ahead of the others.
unsigned burst_length() {
  static const unsigned lengths[] = {1, 1, 1, 8, 64, 1u << 20};
  return lengths[machine().random.below(sizeof lengths / sizeof *lengths)];
}

// One by chance of those that can go on, held back ones or others.
Warp *choose_warp(bool held) {
  Warp *chosen = nullptr;
  unsigned candidates = 0;
  for (auto &block : machine().blocks)
    for (Warp &warp : block->warps)
      if (block->threads_alive && warp.ready && (warp.held_until > machine().step) == held &&
          machine().random.below(++candidates) == 0)
        chosen = &warp;
  return chosen;
}

bool deliver_anything(bool idle) {
  bool delivered = false;
  for (auto &block : machine().blocks)
    delivered = (block->threads_alive && (deliver_load(*block, idle) || deliver_arrival(*block, idle))) || delivered;
  if (delivered) machine().naps = 0;
  return delivered;
}

void run_warp(Warp &warp) {
  machine().gave_way = machine().napped = false;
  warp.held_until = 0;
  for (unsigned i = burst_length(); i > 0 && warp.ready && !machine().failed && !machine().gave_way; i--)
    run_lanes(warp);
  machine().naps = machine().napped ? machine().naps + 1 : 0;
}

// One turn of a warp, or what TMA does when none has one. False when nothing can go on.
bool step() {
  machine().step++;
  deliver_anything(false);
  Warp *warp = choose_warp(false);
  if (!warp && machine().random.below(2) && deliver_anything(true)) return true;
  if (!warp) warp = choose_warp(true);
  if (!warp) return deliver_anything(true);
  run_warp(*warp);
  return true;
}

void make_blocks(unsigned count) {
  const emulator_launch &launch = *machine().launch;
  for (unsigned i = 0; i < std::min(count, kMostBlocks); i++) {
    machine().blocks.push_back(std::make_unique<Block>());
    make_threads(*machine().blocks.back(), count_of(launch.block));
  }
}

bool anybody_alive() {
  return std::any_of(machine().blocks.begin(), machine().blocks.end(),
                     [](const auto &block) { return block->threads_alive > 0; });
}

void run_grid() {
  const unsigned count = count_of(machine().launch->grid);
  unsigned started = 0;
  machine().global.has_one_block = count == 1;
  make_blocks(count);
  while (!machine().failed && (started < count || anybody_alive())) {
    for (auto &block : machine().blocks)
      if (!block->threads_alive && started < count) start_block(*block, started++);
    if (!step() || machine().naps > kMostNaps) report_deadlock();
  }
}

const emulator_place *place() {
  return &self().place;
}

void trap() {
  fail("trap");
}

void sleep() {
  machine().napped = true;
  give_way(1);
}

emulator_device_api make_device() {
  emulator_device_api device = {};
  device.place = place;
  device.trap = trap;
  device.sleep = sleep;
  fill_memory(&device);
  fill_warp(&device);
  fill_barriers(&device);
  fill_copies(&device);
  fill_tensor_copies(&device);
  fill_products(&device);
  return device;
}

} // namespace

Machine &machine() {
  return *current;
}

Thread &self() {
  return *current->running;
}

void wait_for(const Wait &wait) {
  Thread &thread = self();
  thread.wait = wait;
  thread.warp->ready--;
  thread.fiber.suspend();
}

void wake(Thread *thread) {
  thread->wait = Wait{};
  thread->warp->ready++;
}

// Sometimes the rest of the machine goes on for long while this warp stands still: a turn, some, or until nobody else
// can.
void give_way(unsigned one_in) {
  Random &random = machine().random;
  if (random.below(one_in) != 0) return;
  static const uint64_t turns[] = {1, 32, UINT64_MAX / 2};
  self().warp->held_until = machine().step + turns[random.below(3)];
  machine().gave_way = true;
  self().fiber.suspend();
}

static bool check_launch(const emulator_launch &launch) {
  const unsigned threads = count_of(launch.block);
  if (threads == 0 || threads > EMULATOR_THREADS_MAX)
    fail("%u threads a block; 1 to %d are possible", threads, EMULATOR_THREADS_MAX);
  if (launch.shared_bytes > EMULATOR_SHARED_BYTES_MAX)
    fail("%u bytes of shared memory; %d are possible", launch.shared_bytes, EMULATOR_SHARED_BYTES_MAX);
  return !machine().failed;
}

} // namespace emulator

const struct emulator_device_api *emulator_device(void) {
  static const struct emulator_device_api device = emulator::make_device();
  return &device;
}

int emulator_run(const struct emulator_launch *launch, char *error) {
  emulator::Machine machine;
  machine.launch = launch;
  machine.error = error;
  machine.random = emulator::Random(launch->seed);
  *error = '\0';
  emulator::Machine *const outer = emulator::current;
  emulator::current = &machine;
  if (emulator::check_launch(*launch)) emulator::run_grid();
  emulator::current = outer;
  return machine.failed ? -1 : 0;
}
