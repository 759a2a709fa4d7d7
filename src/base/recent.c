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
#include "base/recent.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

#define WORD sizeof(uint64_t)

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
  const size_t slot = hash_64(key, recent->key_words * WORD) & (recent->slots - 1);
  return recent->words + slot * (1 + recent->key_words + recent->value_words);
}

static uint64_t word_of(const void *data, size_t index) {
  uint64_t word;
  memcpy(&word, (const char *)data + index * WORD, WORD);
  return word;
}

bool recent_get(struct recent *recent, const void *key, void *value) {
  _Atomic(uint64_t) *const version = find_slot(recent, key), *const words = version + 1;
  const uint64_t before = atomic_load_explicit(version, memory_order_acquire);
  bool same = before != 0 && before % 2 == 0;
  for (size_t i = 0; i < recent->key_words && same; i++)
    same = atomic_load_explicit(&words[i], memory_order_acquire) == word_of(key, i);
  if (!same) return false;
  for (size_t i = 0; i < recent->value_words; i++) {
    const uint64_t word = atomic_load_explicit(&words[recent->key_words + i], memory_order_acquire);
    memcpy((char *)value + i * WORD, &word, WORD);
  }
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
