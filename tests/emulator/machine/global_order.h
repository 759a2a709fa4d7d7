// Which accesses of different blocks to global memory are ordered (global_order.cc).
#ifndef KJIT_TESTS_EMULATOR_MACHINE_GLOBAL_ORDER_H
#define KJIT_TESTS_EMULATOR_MACHINE_GLOBAL_ORDER_H

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace emulator {

struct Thread;

// What a thread knows of all threads of its block, and of the waits of all warps (order.cc).
using Clock = std::vector<uint32_t>;

// By the number of a block: what is known of its threads.
using Knowledge = std::map<uint32_t, Clock>;

// From a thread's clock on, it knows what other blocks had let know.
struct Acquisition {
  size_t thread;
  uint32_t at;
  std::shared_ptr<const Knowledge> known;
};

// What a block's threads know of other blocks, and what of their own has been made visible to others.
struct BlockKnowledge {
  uint32_t number = 0; // of the block in the grid, from 1
  Clock fenced;        // accesses up to these clocks came before a fence of somebody who knew of them
  std::vector<Acquisition> acquired;
};

// Adding to a number in memory, without reading the sum: additions are in no order among each other.
enum class GlobalAccess : uint8_t { kRead, kAdd, kWrite };

// An access: by whom, and that one's clock then.
struct GlobalTouch {
  uint32_t block = 0; // nobody
  uint32_t at = 0;
  uint16_t index = 0; // in the block's clocks
  GlobalAccess access = GlobalAccess::kRead;
  uint8_t bytes = 0; // of a word: a bit for each
};

// Four bytes of global memory: the last write; what read or added to them since, and who wrote those bytes that the
// last write left.
struct GlobalWord {
  GlobalTouch writer;
  std::vector<GlobalTouch> since;
};

// What a launch has done to global memory. Words that nobody wrote or added to are not kept.
struct GlobalOrder {
  static constexpr uintptr_t kPageBytes = 4096, kWordBytes = 4;
  using Page = std::array<GlobalWord, kPageBytes / kWordBytes>;

  bool has_one_block = false; // then nothing is kept
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  // Words that are accessed atomically: what who reads them may get to know.
  std::unordered_map<uintptr_t, std::shared_ptr<const Knowledge>> words;
};

// A thread's own access.
void order_global(Thread &by, const void *address, unsigned bytes, GlobalAccess access, const char *what);
// One that TMA makes for the thread, which knows what it knew at its last fence.proxy.async of global memory. `index`
// and `at`: what others have to know when they are to be ordered behind it.
void order_global_copy(Thread &by, size_t index, uint32_t at, const void *address, unsigned bytes, GlobalAccess access,
                       const char *what);
// An atomic access to a word: before it is read, and before it is written.
void observe_word(Thread &by, const void *address, bool acquires);
void publish_word(Thread &by, const void *address, bool releases);
// fence.acq_rel.gpu, or a stronger one.
void fence_global(Thread &by);

} // namespace emulator

#endif
