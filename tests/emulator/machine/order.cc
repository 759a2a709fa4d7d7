// Which accesses to shared memory are ordered: a race is found whether or not it did harm in this run.
//
// Vector clocks. A thread's clock says how much it knows of every thread: it grows by one where the thread lets others
// know (arrives at a barrier), and takes over what others knew where it waits for them. Each word keeps who wrote it
// last and who read it since, with their own clocks then; whoever touches it next must know of these.
//
// What TMA writes counts as the asking thread's write, known to those who wait for the mbarrier that counts
// its bytes. A product's reading ends with a wait for it. The waits of a warpgroup's four warps count as one: products
// are performed for all four together, so that one thread may let the tile go for all.
#include <algorithm>

#include "machine/state.h"

namespace emulator {
namespace {

constexpr unsigned kWordBytes = 4;

bool knows(const Thread &thread, size_t other, uint32_t clock) {
  return thread.clock[other] >= clock;
}

Word &word_at(Block &block, uint32_t address) {
  Word &word = block.words[(address - block.shared_base) / kWordBytes];
  if (word.era != block.era) {
    word.era = block.era;
    word.written_at = 0;
    word.readings.clear();
  }
  return word;
}

void check_writer(const Word &word, const Thread &by, uint32_t address, const char *what) {
  if (!knows(by, word.writer, word.written_at))
    fail("%s at shared 0x%x: thread %u wrote there, and no barrier orders the two", what, address, word.writer);
}

void check_readers(const Word &word, const Thread &by, uint32_t address, const char *what) {
  for (const Reading &reading : word.readings)
    if (!knows(by, reading.thread, reading.at))
      fail("%s at shared 0x%x: thread %u read there, and no barrier orders the two", what, address, reading.thread);
}

void note_reading(Word &word, const Thread &by) {
  const uint16_t index = static_cast<uint16_t>(by.index);
  if (!word.readings.empty() && word.readings.back().thread == index) word.readings.pop_back();
  // Readings that this one follows need not be remembered; looked for now and then, as it takes long.
  const auto is_known = [&](const Reading &reading) { return knows(by, reading.thread, reading.at); };
  if (word.readings.size() == word.readings.capacity())
    word.readings.erase(std::remove_if(word.readings.begin(), word.readings.end(), is_known), word.readings.end());
  word.readings.push_back({index, by.clock[index]});
}

void set_writer(Word &word, int by, uint32_t by_clock) {
  word.writer = static_cast<uint16_t>(by);
  word.written_at = by_clock;
  word.readings.clear();
}

template <typename Visit> void for_words(Block &block, uint32_t address, unsigned bytes, Visit visit) {
  for (uint32_t at = address / kWordBytes * kWordBytes; at < address + bytes; at += kWordBytes)
    visit(word_at(block, at));
}

// The place of a warp in clocks, behind the threads: how many waits for products it has passed.
size_t waits_of(const Block &block, size_t warp) {
  return block.threads.size() + warp;
}

} // namespace

// Behind these: how many of a warp's stores have reached global memory. Its lanes' stores are counted together.
size_t stores_of(const Warp &warp) {
  const Block &block = *warp.block;
  return block.threads.size() + block.warps.size() + static_cast<size_t>(warp.index);
}

void reset_order(Block &block) {
  block.words.resize(machine().launch->shared_bytes / kWordBytes + 1);
  block.era++;
  block.product_readings.assign(block.chunks.size() * block.groups.size(), ProductReading{});
  for (auto &thread : block.threads) {
    thread->clock.assign(block.threads.size() + 2 * block.warps.size(), 0);
    thread->clock[static_cast<size_t>(thread->index)] = 1;
  }
}

void order_access(Thread &by, uint32_t address, unsigned bytes, Access access, const char *what) {
  for_words(*by.block, address, bytes, [&](Word &word) {
    check_writer(word, by, address, what);
    if (access == Access::kRead) {
      note_reading(word, by);
      return;
    }
    check_readers(word, by, address, what);
    set_writer(word, by.index, by.clock[static_cast<size_t>(by.index)]);
  });
}

void order_seen(const Thread &by, uint32_t address, unsigned bytes, const char *what) {
  for_words(*by.block, address, bytes, [&](const Word &word) { check_writer(word, by, address, what); });
}

// Did `by` know of the last write to these bytes when it passed a fence.proxy.async?
bool order_is_fenced(const Thread &by, uint32_t address) {
  bool fenced = true;
  for_words(*by.block, address, kChunkBytes, [&](const Word &word) {
    fenced = fenced && word.writer < by.fenced.size() && by.fenced[word.writer] >= word.written_at;
  });
  return fenced;
}

void order_landed(Block &block, int by, uint32_t by_clock, uint32_t address) {
  for_words(block, address, kChunkBytes, [&](Word &word) { set_writer(word, by, by_clock); });
}

void join(Clock &to, const Clock &from) {
  if (to.size() < from.size()) to.resize(from.size()); // an empty clock knows nothing
  uint32_t *const into = to.data();
  const uint32_t *const other = from.data();
  for (size_t i = 0, count = from.size(); i < count; i++)
    into[i] = std::max(into[i], other[i]);
}

void let_know(Clock &to, Thread &by) {
  join(to, by.clock);
  by.clock[static_cast<size_t>(by.index)]++;
}

void note_product_reading(Warp &warp, uint64_t product, uint32_t address) {
  Block &block = *warp.block;
  const size_t chunk = (address - block.shared_base) / kChunkBytes, group = static_cast<size_t>(warp.index / 4);
  ProductReading &reading = block.product_readings[chunk * block.groups.size() + group];
  if (product < reading.product) return; // a later one of the group read there too: its waits are what counts
  if (reading.product != product) reading = ProductReading{};
  reading.product = product;
  reading.waits[static_cast<size_t>(warp.index % 4)] = warp.product_waits;
}

void count_product_wait(Warp &warp) {
  warp.product_waits++;
  for (int lane = 0; lane < warp.size; lane++)
    warp.lanes[static_cast<size_t>(lane)]->clock[waits_of(*warp.block, static_cast<size_t>(warp.index))] =
        warp.product_waits;
}

void order_after_products(Thread &by, uint32_t address, const char *what) {
  Block &block = *by.block;
  const size_t chunk = (address - block.shared_base) / kChunkBytes;
  for (size_t group = 0; group < block.groups.size(); group++) {
    const ProductReading &reading = block.product_readings[chunk * block.groups.size() + group];
    bool ordered = reading.product == 0;
    for (size_t i = 0; i < 4; i++)
      ordered = ordered || (reading.waits[i] && knows(by, waits_of(block, group * 4 + i), reading.waits[i]));
    if (!ordered)
      fail("%s at shared 0x%x: a product of warpgroup %zu read there, and no barrier orders the two", what, address,
           group);
  }
}

} // namespace emulator
