/* A cache of values that were computed last, read and written without a lock (a table of seqlocks).
 *
 * A key's hash selects one slot. A slot is an array of words: a version, the key, the value. The version is 0 before
 * anything was written, odd while a thread writes, and even otherwise.
 *
 * A writer changes the version from even to odd by compare-and-swap; if that fails, another thread is writing and
 * the value is dropped, which costs that thread's next reader a computation. It then stores the words and makes the
 * version even again.
 *
 * A reader takes the version, compares the key, copies the value and takes the version again. It believes the value
 * only if the version was even and is the same as before. Every word is stored with release and loaded with acquire
 * order, so a reader who sees one word of a write also sees the odd version that was stored before it, and so
 * notices. */
#include "base/threads/recent.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

#define WORD sizeof(uint64_t)

/* Of a long key this much selects the slot, because a hash of all of it costs as much as the rest of a look-up. Keys
 * that begin alike take one slot in turns. */
#define HASHED_BYTES 128

/* Words of a long key that are compared before the others. */
#define COMPARED_FIRST 32

struct recent {
  size_t slots, key_words, value_words;
  _Atomic(uint64_t) words[];
};

struct recent *recent_create(const struct mem *mem, size_t slots, size_t key_bytes, size_t value_bytes) {
  const size_t key_words = key_bytes / WORD, value_words = value_bytes / WORD;
  struct recent *recent = mem_alloc(mem, sizeof *recent + slots * (1 + key_words + value_words) * WORD);
  if (!recent) return NULL;
  recent->slots = slots;
  recent->key_words = key_words;
  recent->value_words = value_words;
  return recent;
}

void recent_destroy(const struct mem *mem, struct recent *recent) {
  mem_free(mem, recent);
}

static _Atomic(uint64_t) *find_slot(struct recent *recent, const void *key) {
  const size_t bytes = recent->key_words * WORD;
  const size_t slot = hash_64(key, bytes < HASHED_BYTES ? bytes : HASHED_BYTES) & (recent->slots - 1);
  return recent->words + slot * (1 + recent->key_words + recent->value_words);
}

static uint64_t word_of(const void *data, size_t index) {
  uint64_t word;
  memcpy(&word, (const char *)data + index * WORD, WORD);
  return word;
}

/* This loop and the next run on every launch by arguments, over a hundred words: unrolled, and without a branch for
 * each word, they take half the instructions. */
static bool is_same(const _Atomic(uint64_t) *words, const void *key, size_t from, size_t end) {
  uint64_t differs = 0;
#pragma GCC unroll 8
  for (size_t i = from; i < end; i++)
    differs |= atomic_load_explicit(&words[i], memory_order_acquire) ^ word_of(key, i);
  return differs == 0;
}

/* Of a long key the beginning is compared first, because most keys that differ do so there. */
static bool is_key(const _Atomic(uint64_t) *words, const void *key, size_t count) {
  const size_t first = count < COMPARED_FIRST ? count : COMPARED_FIRST;
  return is_same(words, key, 0, first) && (first == count || is_same(words, key, first, count));
}

static void copy_value(void *value, const _Atomic(uint64_t) *words, size_t count) {
#pragma GCC unroll 8
  for (size_t i = 0; i < count; i++) {
    const uint64_t word = atomic_load_explicit(&words[i], memory_order_acquire);
    memcpy((char *)value + i * WORD, &word, WORD);
  }
}

bool recent_get(struct recent *recent, const void *key, void *value) {
  const _Atomic(uint64_t) *const version = find_slot(recent, key), *const words = version + 1;
  const uint64_t before = atomic_load_explicit(version, memory_order_acquire);
  if (before == 0 || before % 2 != 0 || !is_key(words, key, recent->key_words)) return false;
  copy_value(value, words + recent->key_words, recent->value_words);
  return atomic_load_explicit(version, memory_order_relaxed) == before;
}

void recent_put(struct recent *recent, const void *key, const void *value) {
  _Atomic(uint64_t) *const version = find_slot(recent, key), *const words = version + 1;
  uint64_t before = atomic_load_explicit(version, memory_order_relaxed);
  if (before % 2 != 0 || !atomic_compare_exchange_strong_explicit(version, &before, before + 1, memory_order_acquire,
                                                                  memory_order_relaxed))
    return;
  for (size_t i = 0; i < recent->key_words; i++)
    atomic_store_explicit(&words[i], word_of(key, i), memory_order_release);
  for (size_t i = 0; i < recent->value_words; i++)
    atomic_store_explicit(&words[recent->key_words + i], word_of(value, i), memory_order_release);
  atomic_store_explicit(version, before + 2, memory_order_release);
}
