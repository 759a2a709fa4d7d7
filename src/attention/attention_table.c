#include "attention/attention_table.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* uthash's own memory comes from the table's allocator; running out of it is an answer, not the end of the process. */
#define HASH_NONFATAL_OOM          1
#define uthash_malloc(bytes)       mem_alloc(table->mem, bytes)
#define uthash_free(memory, bytes) mem_free(table->mem, memory)
#define uthash_nonfatal_oom(entry) (added = 0)
#include <uthash.h>

#include "base/hash.h"

/* A reader locks one lane, its thread's own; a writer locks all. So that a look-up, which every launch makes, writes to
 * no cache line that another thread's look-up writes to, up to this many threads; beyond, they share fairly. */
#define LANE_COUNT 32

/* Apart by two cache lines: the processor fetches them in pairs. */
#define LANE_BYTES 128

struct lane {
  pthread_rwlock_t lock;
  char apart[LANE_BYTES - sizeof(pthread_rwlock_t)];
};

/* Larger than any family's config: a key lies on the stack of each look-up. */
#define KEY_BYTES_MAX 76

/* Without padding: hashed and compared as bytes, as many as the table's keys have. */
struct key {
  int32_t device;
  unsigned char bytes[KEY_BYTES_MAX];
};

_Static_assert(sizeof(struct key) == sizeof(int32_t) + KEY_BYTES_MAX, "a key has no padding");

struct entry {
  UT_hash_handle hh;
  struct key key;
  max_align_t value[];
};

struct attention_table {
  const struct mem *mem;
  size_t key_bytes, value_bytes;
  struct entry *entries;
  uint32_t lanes_made;
  struct lane lanes[LANE_COUNT];
};

/* Threads take lanes in turn; 0 until a thread's first look-up. */
static struct lane *own_lane(struct attention_table *table) {
  static atomic_uint next;
  static _Thread_local unsigned taken;
  if (taken == 0) taken = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % LANE_COUNT;
  return &table->lanes[taken - 1];
}

struct attention_table *attention_table_create(const struct mem *mem, size_t key_bytes, size_t value_bytes) {
  assert(key_bytes <= KEY_BYTES_MAX);
  struct attention_table *table = mem_alloc(mem, sizeof *table);
  if (!table) return NULL;
  table->mem = mem;
  table->key_bytes = offsetof(struct key, bytes) + key_bytes;
  table->value_bytes = value_bytes;
  while (table->lanes_made < LANE_COUNT) {
    if (pthread_rwlock_init(&table->lanes[table->lanes_made].lock, NULL) != 0) {
      attention_table_destroy(table);
      return NULL;
    }
    table->lanes_made++;
  }
  return table;
}

void attention_table_destroy(struct attention_table *table) {
  struct entry *entry, *next;
  if (!table) return;
  HASH_ITER(hh, table->entries, entry, next) {
    HASH_DEL(table->entries, entry);
    mem_free(table->mem, entry);
  }
  while (table->lanes_made > 0)
    pthread_rwlock_destroy(&table->lanes[--table->lanes_made].lock);
  mem_free(table->mem, table);
}

static void make_key(const struct attention_table *table, const void *bytes, int32_t device, struct key *key) {
  key->device = device;
  memcpy(key->bytes, bytes, table->key_bytes - offsetof(struct key, bytes));
}

static unsigned hash(const struct attention_table *table, const struct key *key) {
  return (unsigned)hash_64(key, table->key_bytes);
}

/* With a lane locked. */
static struct entry *find(const struct attention_table *table, const struct key *key, unsigned hashed) {
  struct entry *entry;
  HASH_FIND_BYHASHVALUE(hh, table->entries, key, (unsigned)table->key_bytes, hashed, entry);
  return entry;
}

/* With every lane locked. */
static _Bool add(struct attention_table *table, struct entry *entry, unsigned hashed) {
  _Bool added = 1;
  HASH_ADD_BYHASHVALUE(hh, table->entries, key, (unsigned)table->key_bytes, hashed, entry);
  return added;
}

const void *attention_table_find(struct attention_table *table, const void *bytes, int32_t device) {
  struct key key;
  make_key(table, bytes, device, &key);
  const unsigned hashed = hash(table, &key);
  struct lane *lane = own_lane(table);
  pthread_rwlock_rdlock(&lane->lock);
  const struct entry *entry = find(table, &key, hashed);
  pthread_rwlock_unlock(&lane->lock);
  return entry ? entry->value : NULL;
}

static void lock_all(struct attention_table *table) {
  for (size_t i = 0; i < LANE_COUNT; i++)
    pthread_rwlock_wrlock(&table->lanes[i].lock);
}

static void unlock_all(struct attention_table *table) {
  for (size_t i = 0; i < LANE_COUNT; i++)
    pthread_rwlock_unlock(&table->lanes[i].lock);
}

const void *attention_table_add(struct attention_table *table, const void *bytes, int32_t device, const void *value) {
  struct entry *entry = mem_alloc(table->mem, sizeof *entry + table->value_bytes);
  if (!entry) return NULL;
  make_key(table, bytes, device, &entry->key);
  memcpy(entry->value, value, table->value_bytes);
  const unsigned hashed = hash(table, &entry->key);
  lock_all(table);
  struct entry *kept = find(table, &entry->key, hashed);
  if (!kept && add(table, entry, hashed)) kept = entry;
  unlock_all(table);
  if (kept != entry) mem_free(table->mem, entry);
  return kept ? kept->value : NULL;
}
