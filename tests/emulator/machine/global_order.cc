// Which accesses to global memory of different blocks are ordered, as the PTX memory model has it: a race is found
// whether or not it did harm in this run. The order of one block's own accesses is not judged here.
//
//   - A fence makes visible what its thread knows of its block: its own accesses, and those of others that a barrier
//     has told it of. An atomic access behind it lets others know of that; one that releases has the fence in it.
//   - Who reads the word knows of it behind its own next fence; at once where the access acquires. What it knows of
//     other blocks it passes on with what it knows of its own.
//   - Threads of its block know of it once a barrier has told them of the reader's clock.
//   - TMA's accesses to global memory come behind what the asking thread knew at its last fence.proxy.async. What TMA
//     has written is known to who waits for the group without .read, and to those whom that thread tells.
//
// A word that is accessed atomically is no data: plain accesses to it, as of a volatile int or of the one that sets a
// counter to zero, count as relaxed ones.
#include "machine/global_order.h"

#include <algorithm>

#include "machine/state.h"

namespace emulator {
namespace {

size_t own_index(const Thread &thread) {
  return static_cast<size_t>(thread.index);
}

uint32_t &own_clock(Thread &thread) {
  return thread.clock[own_index(thread)];
}

bool covers(const Clock &clock, size_t index, uint32_t at) {
  return index < clock.size() && clock[index] >= at;
}

// Does a thread of `block` that has this clock know of the access?
bool knows(const Block &block, const Clock &clock, const GlobalTouch &touch) {
  if (touch.block == 0 || touch.block == block.known.number) return true;
  return std::any_of(block.known.acquired.begin(), block.known.acquired.end(), [&](const Acquisition &acquired) {
    if (!covers(clock, acquired.thread, acquired.at)) return false;
    const auto found = acquired.known->find(touch.block);
    return found != acquired.known->end() && covers(found->second, touch.index, touch.at);
  });
}

// An access under way.
struct Asked {
  const Block &block;
  const Clock &clock; // what who makes it knows
  GlobalTouch touch;
  const char *what;
};

void check(const Asked &asked, const GlobalTouch &other, uintptr_t address) {
  static const char *const done[] = {"read", "added to it", "wrote"};
  if (!(asked.touch.bytes & other.bytes) || knows(asked.block, asked.clock, other)) return;
  fail("%s at global 0x%llx: block %u, counted from 0, %s there, and nothing orders the two", asked.what,
       static_cast<unsigned long long>(address), other.block - 1, done[static_cast<size_t>(other.access)]);
}

void note(const Asked &asked, GlobalWord &word) {
  const GlobalTouch &touch = asked.touch;
  for (GlobalTouch &other : word.since)
    if (other.block == touch.block && other.index == touch.index && other.access == touch.access &&
        other.bytes == touch.bytes) {
      other.at = touch.at;
      return;
    }
  // What this access follows need not be remembered; looked for now and then, as it takes long.
  const auto is_known = [&](const GlobalTouch &other) {
    return other.block != touch.block && knows(asked.block, asked.clock, other);
  };
  if (word.since.size() == word.since.capacity())
    word.since.erase(std::remove_if(word.since.begin(), word.since.end(), is_known), word.since.end());
  word.since.push_back(touch);
}

void touch_word(const Asked &asked, GlobalWord &word, uintptr_t address) {
  const GlobalAccess access = asked.touch.access;
  check(asked, word.writer, address);
  for (const GlobalTouch &other : word.since)
    if (access == GlobalAccess::kWrite || other.access != access) check(asked, other, address);
  if (access != GlobalAccess::kWrite) {
    note(asked, word);
    return;
  }
  const auto is_gone = [&](const GlobalTouch &other) { return !(other.bytes & ~asked.touch.bytes); };
  if (word.writer.block) word.since.push_back(word.writer);
  word.since.erase(std::remove_if(word.since.begin(), word.since.end(), is_gone), word.since.end());
  word.writer = asked.touch;
}

// Which bytes of the word at `word` lie from `first` on and before `end`.
uint8_t bytes_of_word(uintptr_t word, uintptr_t first, uintptr_t end) {
  unsigned bytes = 0;
  for (uintptr_t i = 0; i < GlobalOrder::kWordBytes; i++)
    if (word + i >= first && word + i < end) bytes |= 1u << i;
  return static_cast<uint8_t>(bytes);
}

GlobalOrder::Page *page_at(uintptr_t address, bool make) {
  auto &pages = machine().global.pages;
  const uintptr_t number = address / GlobalOrder::kPageBytes;
  const auto found = pages.find(number);
  if (found != pages.end()) return found->second.get();
  return make ? (pages[number] = std::make_unique<GlobalOrder::Page>()).get() : nullptr;
}

bool is_untouched(const GlobalWord &word) {
  return word.writer.block == 0 && word.since.empty();
}

void touch_bytes(Asked asked, const void *address, unsigned bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes;
  const uintptr_t first = begin / GlobalOrder::kWordBytes * GlobalOrder::kWordBytes;
  const bool reads = asked.touch.access == GlobalAccess::kRead;
  for (uintptr_t at = first; at < end;) {
    const uintptr_t page_end = (at / GlobalOrder::kPageBytes + 1) * GlobalOrder::kPageBytes;
    GlobalOrder::Page *const page = page_at(at, !reads);
    for (; page && at < std::min(end, page_end); at += GlobalOrder::kWordBytes) {
      GlobalWord &word = (*page)[at % GlobalOrder::kPageBytes / GlobalOrder::kWordBytes];
      if (reads && is_untouched(word)) continue;
      asked.touch.bytes = bytes_of_word(at, begin, end);
      touch_word(asked, word, at);
    }
    at = std::max(at, page_end);
  }
}

// Is it a word that is accessed atomically? Then a plain read sees what one that does not acquire sees, and a write
// ends what others had let know by it.
bool is_atomic(Thread &by, const void *address, unsigned bytes, GlobalAccess access) {
  auto &words = machine().global.words;
  if (words.empty() || bytes > sizeof(uint64_t)) return false;
  const auto found = words.find(reinterpret_cast<uintptr_t>(address));
  if (found == words.end()) return false;
  if (access == GlobalAccess::kRead)
    observe_word(by, address, false);
  else
    found->second = nullptr;
  return true;
}

void acquire(Thread &by, const std::shared_ptr<const Knowledge> &known) {
  if (by.last_acquired == known) return;
  by.last_acquired = known;
  own_clock(by)++; // who knew the clock before does not know this
  by.block->known.acquired.push_back({own_index(by), own_clock(by), known});
}

void make_visible(Thread &by) {
  join(by.block->known.fenced, by.clock);
  own_clock(by)++; // what comes now is not visible yet
}

// What the thread knows, as far as it is visible.
Clock visible_to_others(const Thread &by) {
  const Clock &fenced = by.block->known.fenced;
  Clock visible(std::min(fenced.size(), by.clock.size()));
  for (size_t i = 0; i < visible.size(); i++)
    visible[i] = std::min(fenced[i], by.clock[i]);
  return visible;
}

} // namespace

void order_global(Thread &by, const void *address, unsigned bytes, GlobalAccess access, const char *what) {
  if (machine().global.has_one_block || is_atomic(by, address, bytes, access)) return;
  const GlobalTouch touch = {by.block->known.number, own_clock(by), static_cast<uint16_t>(by.index), access, 0};
  touch_bytes({*by.block, by.clock, touch, what}, address, bytes);
}

void order_global_copy(Thread &by, size_t index, uint32_t at, const void *address, unsigned bytes, GlobalAccess access,
                       const char *what) {
  if (machine().global.has_one_block) return;
  const GlobalTouch touch = {by.block->known.number, at, static_cast<uint16_t>(index), access, 0};
  touch_bytes({*by.block, by.fenced_global, touch, what}, address, bytes);
}

void observe_word(Thread &by, const void *address, bool acquires) {
  if (machine().global.has_one_block) return;
  const std::shared_ptr<const Knowledge> &known = machine().global.words[reinterpret_cast<uintptr_t>(address)];
  if (!known) return;
  if (acquires)
    acquire(by, known);
  else if (by.observed.empty() || by.observed.back() != known)
    by.observed.push_back(known);
}

// An addition to a word goes on with what others had let know by it.
void publish_word(Thread &by, const void *address, bool releases) {
  if (machine().global.has_one_block) return;
  if (releases) make_visible(by);
  if (by.block->known.fenced.empty()) return;
  std::shared_ptr<const Knowledge> &known = machine().global.words[reinterpret_cast<uintptr_t>(address)];
  const auto more = known ? std::make_shared<Knowledge>(*known) : std::make_shared<Knowledge>();
  join((*more)[by.block->known.number], visible_to_others(by));
  for (const Acquisition &acquired : by.block->known.acquired)
    if (covers(by.clock, acquired.thread, acquired.at))
      for (const auto &[block, clock] : *acquired.known)
        join((*more)[block], clock);
  known = more;
}

void fence_global(Thread &by) {
  if (machine().global.has_one_block) return;
  make_visible(by);
  for (const auto &known : by.observed)
    acquire(by, known);
  by.observed.clear();
}

} // namespace emulator
