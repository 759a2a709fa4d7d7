// What the machine says when a kernel makes a mistake: the first mistake is kept, in words, with thread, block and
// place.
#include <cstdarg>
#include <cstdio>
#include <string>

#include "machine/state.h"

namespace emulator {
namespace {

std::string index_text(const char *name, const emulator_index &index) {
  char text[64];
  snprintf(text, sizeof text, ", %s (%u, %u, %u)", name, index.x, index.y, index.z);
  return text;
}

std::string place_text() {
  std::string text = machine().launch->name ? machine().launch->name : "kernel";
  const Thread *const thread = machine().running;
  if (thread) text += index_text("block", thread->place.block) + index_text("thread", thread->place.thread);
  return text + ": ";
}

std::string mbarrier_text(const Block &block, const Wait &wait) {
  char text[160];
  const auto found = block.mbarriers.find(wait.number);
  if (found == block.mbarriers.end()) return "";
  const Mbarrier &barrier = found->second;
  snprintf(text, sizeof text, " at shared 0x%x for parity %u (in phase %u: %d of %d arrivals and %lld bytes missing)",
           wait.number, wait.detail, barrier.phase, barrier.missing, barrier.arrivals,
           static_cast<long long>(barrier.bytes));
  return text;
}

std::string barrier_text(const Block &block, const Wait &wait) {
  char text[96];
  const Barrier &barrier = block.barriers[wait.number];
  const int alive = block.threads_alive;
  snprintf(text, sizeof text, " %u (%d of %d threads came)", wait.number, barrier.came,
           barrier.expected < 0 ? alive : barrier.expected);
  return text;
}

std::string wait_text(const Thread &thread) {
  const Wait &wait = thread.wait;
  switch (wait.kind) {
  case Wait::kNothing:
    return "can run";
  case Wait::kEnded:
    return "ended";
  case Wait::kBarrier:
    return wait.what + barrier_text(*thread.block, wait);
  case Wait::kMbarrier:
    return wait.what + mbarrier_text(*thread.block, wait);
  case Wait::kRegisters:
    return std::string(wait.what) + " for " + std::to_string(wait.number);
  case Wait::kWarp:
  case Wait::kWarpgroup:
    return std::string(wait.what) + " for the others";
  }
  return "";
}

// Lanes that wait alike, in one line.
std::string warp_text(const Warp &warp) {
  std::string text;
  uint32_t told = 0;
  for (int i = 0; i < warp.size; i++) {
    if (told >> i & 1) continue;
    const std::string where = wait_text(*warp.lanes[static_cast<size_t>(i)]);
    uint32_t alike = 0;
    for (int j = i; j < warp.size; j++)
      if (wait_text(*warp.lanes[static_cast<size_t>(j)]) == where) alike |= 1u << j;
    told |= alike;
    char lanes[64];
    snprintf(lanes, sizeof lanes, "\n  warp %d, lanes %08x: ", warp.index, alike);
    text += lanes + where;
  }
  return text;
}

} // namespace

void fail(const char *rule, ...) {
  if (!machine().failed) {
    machine().failed = true;
    const std::string place = place_text();
    const int used = snprintf(machine().error, EMULATOR_ERROR_BYTES, "%s", place.c_str());
    va_list arguments;
    va_start(arguments, rule);
    if (used >= 0 && used < EMULATOR_ERROR_BYTES)
      vsnprintf(machine().error + used, static_cast<size_t>(EMULATOR_ERROR_BYTES - used), rule, arguments);
    va_end(arguments);
  }
  while (machine().running)
    self().fiber.suspend();
}

void report_deadlock() {
  std::string text = "no thread can go on";
  for (const auto &block : machine().blocks) {
    if (!block->threads_alive) continue;
    text += index_text("\n block", block->index).substr(1);
    for (const Warp &warp : block->warps)
      text += warp_text(warp);
  }
  fail("%s", text.c_str());
}

} // namespace emulator
