/* The remote tier: stores that many machines share, asked after the folders and filled back into them.
 *
 * An object of a store is an entry, with or without a signature behind it (remote_object.h), under the digest of its
 * key. What a store answers is checked as a file of a folder is. A failure is counted and told, and means a miss.
 *
 * Any thread. Reading happens in the caller's thread within the time limits of each store; writing in one thread of
 * the remote tier (remote_queue.h). No lock is held while a store works. */
#ifndef KJIT_JIT_REMOTE_REMOTE_H
#define KJIT_JIT_REMOTE_REMOTE_H

#include <stdbool.h>

#include <kjit/remote.h>

#include "jit/cache/disk_cache.h"

/* How long a lease lasts, and how long anybody waits for another's. A builder that needs longer is no longer alone:
 * somebody else then builds too, which costs time and nothing else. */
#define REMOTE_LEASE_S       30
#define REMOTE_LEASE_PAUSE_S 600

struct remote;

/* What a remote tier is made of. Texts are copied. */
struct remote_settings {
  const struct mem *mem; /* these five outlive the tier */
  const struct log *log;
  const struct file_ops *ops;
  struct cache_counters *counters;
  struct disk_cache *folder; /* is filled with what a store answers; may have no folder */
  const char *urls;          /* NULL: none */
  const kjit_remote_store *stores;
  size_t store_count;
  const char *const *trusted_keys; /* 64 hex digits each */
  size_t trusted_key_count;
  const char *trusted_list; /* the same as one text, separated by ","; asked where there are no trusted_keys */
  const char *signing_key_path;
  uint32_t end_ms;
  bool read_only; /* nothing is put */
};

/* Make the tier. `*out` is NULL when no store is named. KJIT_ERR_INVALID_ARG, KJIT_ERR_PARSE, KJIT_ERR_IO and
 * KJIT_ERR_NOT_FOUND for a malformed table, public key or signing key; KJIT_ERR_NO_MEMORY. */
kjit_status remote_create(struct remote **out, const struct remote_settings *settings, kjit_error *error);
/* Write what is in line, for `end_ms` at most, and close the stores. Accepts NULL, as all functions below do. */
void remote_destroy(struct remote *remote);

/* Ask the stores in order, until `deadline_ns` (INT64_MAX: none) at most. KJIT_OK; KJIT_ERR_NOT_FOUND, whatever the
 * reason; KJIT_ERR_NO_MEMORY. What is found is written to the folder, and to the stores before, in the background. */
kjit_status remote_get(struct remote *remote, const struct key *key, int64_t deadline_ns, struct entry_image *image);

/* Put an entry into the stores, in the background. `lease` says that remote_lease() gave this process the key's lease;
 * it is given back afterwards. A NULL `image` gives back the lease alone. */
void remote_publish(struct remote *remote, const struct digest *key, const void *image, size_t bytes, bool lease);

/* May this process build the key? A store's lease decides where there is one. */
enum remote_turn {
  REMOTE_TURN_FREE,  /* no store has leases: build */
  REMOTE_TURN_OURS,  /* build, and give the lease back by remote_publish() */
  REMOTE_TURN_OTHERS /* another builds: look again after a pause */
};
enum remote_turn remote_lease(struct remote *remote, const struct digest *key, int64_t deadline_ns);

/* Another's lease was waited for in vain, for as long as any lease lasts. The store's leases are left alone for
 * REMOTE_LEASE_PAUSE_S, because a store that says of every key that another holds it would otherwise cost that wait
 * for each. */
void remote_lease_in_vain(struct remote *remote);

/* One entry against the stores: what kjit_remote_check() counts, and with `push` kjit_remote_push(). */
void remote_compare(struct remote *remote, const struct digest *key, const void *image, size_t bytes, bool push,
                    kjit_remote_report *report);

/* Around fork(), as for struct fork_guard. The child has no thread, and nothing in line. */
void remote_fork_prepare(struct remote *remote);
void remote_fork_parent(struct remote *remote);
void remote_fork_child(struct remote *remote);

#endif
