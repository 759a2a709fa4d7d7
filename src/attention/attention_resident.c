#include "attention/attention_resident.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* uthash's own memory comes from the table's allocator; running out of it is an answer, not the end of the process. */
#define HASH_NONFATAL_OOM          1
#define uthash_malloc(bytes)       mem_alloc(resident->mem, bytes)
#define uthash_free(memory, bytes) mem_free(resident->mem, memory)
#define uthash_nonfatal_oom(entry) (added = 0)
#include <uthash.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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
#define CONFIG_BYTES_MAX 60

/* Without padding: hashed and compared as bytes, as many as the family's configs have. */
struct key {
  int32_t device;
  unsigned char config[CONFIG_BYTES_MAX];
};

_Static_assert(sizeof(struct key) == sizeof(int32_t) + CONFIG_BYTES_MAX, "a key has no padding");

struct entry {
  UT_hash_handle hh;
  struct key key;
  max_align_t value[];
};

struct attention_resident {
  const struct mem *mem;
  size_t key_bytes, value_bytes;
  struct entry *entries;
  uint32_t lanes_made;
  struct lane lanes[LANE_COUNT];
};

/* Threads take lanes in turn; 0 until a thread's first look-up. */
static struct lane *own_lane(struct attention_resident *resident) {
  static atomic_uint next;
  static _Thread_local unsigned taken;
  if (taken == 0) taken = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % LANE_COUNT;
  return &resident->lanes[taken - 1];
}

struct attention_resident *attention_resident_create(const struct mem *mem, size_t config_bytes, size_t value_bytes) {
  assert(config_bytes <= CONFIG_BYTES_MAX);
  struct attention_resident *resident = mem_alloc(mem, sizeof *resident);
  if (!resident) return NULL;
  resident->mem = mem;
  resident->key_bytes = offsetof(struct key, config) + config_bytes;
  resident->value_bytes = value_bytes;
  while (resident->lanes_made < LANE_COUNT) {
    if (pthread_rwlock_init(&resident->lanes[resident->lanes_made].lock, NULL) != 0) {
      attention_resident_destroy(resident);
      return NULL;
    }
    resident->lanes_made++;
  }
  return resident;
}

void attention_resident_destroy(struct attention_resident *resident) {
  struct entry *entry, *next;
  if (!resident) return;
  HASH_ITER(hh, resident->entries, entry, next) {
    HASH_DEL(resident->entries, entry);
    mem_free(resident->mem, entry);
  }
  while (resident->lanes_made > 0)
    pthread_rwlock_destroy(&resident->lanes[--resident->lanes_made].lock);
  mem_free(resident->mem, resident);
}

static void make_key(const struct attention_resident *resident, const void *config, int32_t device, struct key *key) {
  key->device = device;
  memcpy(key->config, config, resident->key_bytes - offsetof(struct key, config));
}

static unsigned hash(const struct attention_resident *resident, const struct key *key) {
  return (unsigned)XXH3_64bits(key, resident->key_bytes);
}

/* With a lane locked. */
static struct entry *find(const struct attention_resident *resident, const struct key *key, unsigned hashed) {
  struct entry *entry;
  HASH_FIND_BYHASHVALUE(hh, resident->entries, key, (unsigned)resident->key_bytes, hashed, entry);
  return entry;
}

/* With every lane locked. */
static _Bool add(struct attention_resident *resident, struct entry *entry, unsigned hashed) {
  _Bool added = 1;
  HASH_ADD_BYHASHVALUE(hh, resident->entries, key, (unsigned)resident->key_bytes, hashed, entry);
  return added;
}

const void *attention_resident_find(struct attention_resident *resident, const void *config, int32_t device) {
  struct key key;
  make_key(resident, config, device, &key);
  const unsigned hashed = hash(resident, &key);
  struct lane *lane = own_lane(resident);
  pthread_rwlock_rdlock(&lane->lock);
  const struct entry *entry = find(resident, &key, hashed);
  pthread_rwlock_unlock(&lane->lock);
  return entry ? entry->value : NULL;
}

static void lock_all(struct attention_resident *resident) {
  for (size_t i = 0; i < LANE_COUNT; i++)
    pthread_rwlock_wrlock(&resident->lanes[i].lock);
}

static void unlock_all(struct attention_resident *resident) {
  for (size_t i = 0; i < LANE_COUNT; i++)
    pthread_rwlock_unlock(&resident->lanes[i].lock);
}

const void *attention_resident_add(struct attention_resident *resident, const void *config, int32_t device,
                                   const void *value) {
  struct entry *entry = mem_alloc(resident->mem, sizeof *entry + resident->value_bytes);
  if (!entry) return NULL;
  make_key(resident, config, device, &entry->key);
  memcpy(entry->value, value, resident->value_bytes);
  const unsigned hashed = hash(resident, &entry->key);
  lock_all(resident);
  struct entry *kept = find(resident, &entry->key, hashed);
  if (!kept && add(resident, entry, hashed)) kept = entry;
  unlock_all(resident);
  if (kept != entry) mem_free(resident->mem, entry);
  return kept ? kept->value : NULL;
}
