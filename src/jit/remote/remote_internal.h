/* What the files of the remote tier share: its stores, their circuits, and the line of writes. */
#ifndef KJIT_JIT_REMOTE_REMOTE_INTERNAL_H
#define KJIT_JIT_REMOTE_REMOTE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include <kjit/remote.h>

#include "jit/cache/disk_cache.h"
#include "jit/remote/remote_object.h"

/* Each store that is asked in vain costs a round trip, so there is no use for many. */
#define REMOTE_STORES_MAX 4

#define REMOTE_TITLE_BYTES 128
#define REMOTE_OWNER_BYTES 48

#define REMOTE_TIMEOUT_MS 2000
#define REMOTE_CONNECT_MS 500
#define REMOTE_END_MS     2000

/* One store. Its circuit opens after several failures in a row; the store is then left alone for a while, after which
 * one call tries it again. */
struct remote_tier {
  kjit_remote_store store;
  char title[REMOTE_TITLE_BYTES];
  atomic_uint failures; /* in a row */
  _Atomic int64_t open_until_ns;
  atomic_bool told_refusal;
  atomic_bool leases_work;         /* found out by the first lease, as object_lease.h says */
  _Atomic int64_t leases_after_ns; /* its leases are not asked for before; INT64_MAX: it has none */
};

struct remote_job {
  struct remote_job *next;
  struct digest key;
  size_t bytes, entry_bytes; /* of `data`, and without the signature */
  unsigned stores;           /* a bit for each store that is to have it */
  bool fill, lease;
  uint8_t data[];
};

/* The line of writes (remote_queue.c). */
struct remote_queue {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t thread;
  struct remote_job *first, **last;
  size_t count, bytes;
  bool started, ending;
  int64_t end_ns; /* once `ending`: nothing is begun after it */
};

struct remote {
  const struct mem *mem;
  const struct log *log;
  const struct file_ops *ops;
  struct cache_counters *counters;
  struct disk_cache *folder;
  struct trust trust;
  struct trust_key seed;
  bool signs, read_only;
  uint32_t end_ms;
  char owner[REMOTE_OWNER_BYTES];
  struct remote_tier tiers[REMOTE_STORES_MAX];
  size_t count;
  struct remote_queue queue;
};

static inline int64_t remote_now_ns(const struct remote *remote) {
  return remote->ops->monotonic_ns(remote->ops->user);
}

/* The circuit. May the store be asked now, within `deadline_ns`? `*timeout_ms` is then the limit of the call, which is
 * followed by remote_tier_note(). */
bool remote_tier_admits(struct remote *remote, struct remote_tier *tier, int64_t deadline_ns, uint32_t *timeout_ms);
void remote_tier_note(struct remote *remote, struct remote_tier *tier, kjit_remote_answer answer);

/* Fetch an object and check it. KJIT_OK; KJIT_ERR_NOT_FOUND: not there; KJIT_ERR_CORRUPT: refused; KJIT_ERR_IO: no
 * answer; KJIT_ERR_NO_MEMORY. */
kjit_status remote_tier_get(struct remote *remote, struct remote_tier *tier, const struct digest *key,
                            int64_t deadline_ns, struct entry_image *image);

/* Write an object to one store; true when it is there afterwards. */
bool remote_tier_put(struct remote *remote, struct remote_tier *tier, const struct digest *key, const void *data,
                     size_t bytes, int64_t deadline_ns);

/* Give the lease of a key back to every store that has leases. */
void remote_lease_return(struct remote *remote, const struct digest *key, int64_t deadline_ns);

/* The copy of an entry that a job writes, signed when the tier signs. NULL when out of memory. */
struct remote_job *remote_job_create(const struct remote *remote, const struct digest *key, const void *image,
                                     size_t bytes);

bool remote_queue_init(struct remote_queue *queue);
/* Put a job into the line, which owns it from now on; it is dropped and counted when the line is full. */
void remote_queue_add(struct remote *remote, struct remote_job *job);
void remote_queue_finish(struct remote *remote);

/* Make the stores that a list of URLs names. What is wrong with one is told to the log, and it is left out. */
kjit_status remote_urls_open(struct remote *remote, const char *urls, kjit_error *error);
/* Read "kjit-secret-key 1 <64 hex digits>". */
kjit_status remote_signing_key_read(const struct mem *mem, const char *path, struct trust_key *seed, kjit_error *error);

#endif
