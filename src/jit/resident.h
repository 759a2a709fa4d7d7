/* The artifacts that this process has in memory, by the identity of their requests, and the ones that it is making.
 *
 * How a thread gets an artifact:
 *
 *   resident_ask()
 *     RESIDENT_FOUND   -> the artifact, retained
 *     RESIDENT_LEAD    -> the thread makes the artifact, then calls resident_land() exactly once, also after a failure
 *     RESIDENT_FOLLOW  -> resident_wait(), as often as the thread likes, then resident_leave() exactly once
 *     RESIDENT_ABSENT  -> the thread did not want to lead; if it finds the artifact elsewhere: resident_keep()
 *
 * A leader that was cancelled or ran out of its own time lands with that error; its followers then ask again, and one
 * of them leads. If the driver refuses an artifact, resident_refuse() drops it, and the next leader is told (`refused`)
 * to build anew.
 *
 * No lock is held while a leader works, and followers of one key never delay an answer for another. */
#ifndef KJIT_JIT_RESIDENT_H
#define KJIT_JIT_RESIDENT_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/digest.h"
#include "base/mem.h"

struct resident; /* the table */
struct flight;   /* one artifact being made: a leader and its followers */

enum resident_answer {
  RESIDENT_FOUND,  /* `artifact` is set and retained; it may be that of a failed compile */
  RESIDENT_ABSENT, /* not there, and the caller does not want to make it */
  RESIDENT_LEAD,   /* the caller makes it, and must end with resident_land() */
  RESIDENT_FOLLOW, /* another thread makes it: resident_wait(), then resident_leave() */
  RESIDENT_NO_MEMORY
};

struct resident_join {
  kjit_artifact *artifact;
  struct flight *flight;
  bool refused; /* the driver refused the artifact that the cache folders hold, so only a new build will do */
};

/* When either is exceeded, the least recently used artifacts that only the table holds are freed. */
struct resident_bounds {
  uint64_t max_bytes; /* of entry images */
  uint64_t max_entries;
};

struct resident *resident_create(const struct mem *mem, const struct resident_bounds *bounds);
void resident_destroy(struct resident *resident); /* accepts NULL; no flight may be under way */

/* Look for an artifact. A failure that expired before `now_ns` (monotonic clock) is forgotten. Without `may_lead` an
 * absent key, and one that is being made, are RESIDENT_ABSENT. Thread-safe, as are all functions below. */
enum resident_answer resident_ask(struct resident *resident, const struct digest *key, int64_t now_ns, bool may_lead,
                                  struct resident_join *join);

/* End a flight. `artifact` (may be NULL) is retained and answers from now on, for a failure until `expires_ns`;
 * `error` is what the followers get. The leader's reference to the flight is consumed. */
void resident_land(struct resident *resident, struct flight *flight, kjit_artifact *artifact, int64_t expires_ns,
                   const kjit_error *error);

/* One more who waits for a flight that the caller leads, and hands to another thread to land. */
void resident_follow(struct resident *resident, struct flight *flight);

/* Wait for the leader until `until_ns` (monotonic clock). KJIT_ERR_TIMEOUT, or what the leader landed with: then
 * `artifact` is retained if there is one, in the form in which the leader has it. */
kjit_status resident_wait(struct resident *resident, struct flight *flight, int64_t until_ns, kjit_artifact **artifact,
                          kjit_error *error);
/* Somebody will ask for the flight's artifact later, so it is wanted even when nobody waits for it. */
void resident_want_later(struct resident *resident, struct flight *flight);

/* Whether anybody but the leader, who asks, waits for the flight or will ask later. */
bool resident_is_wanted(struct resident *resident, const struct flight *flight);

/* Give up a follower's reference to the flight. */
void resident_leave(struct resident *resident, struct flight *flight);

/* Keep an artifact that was found without a flight. Without memory for a slot it is not kept. */
void resident_keep(struct resident *resident, const struct digest *key, kjit_artifact *artifact);

/* The driver refused this artifact: drop it, and tell the key's next leader that the cache folders hold a bad one. */
void resident_refuse(struct resident *resident, const struct digest *key, const kjit_artifact *artifact);

/* Around fork(): they hold the mutex, so that no thread is inside while the process is copied. The child starts without
 * flights. */
void resident_fork_prepare(struct resident *resident);
void resident_fork_parent(struct resident *resident);
void resident_fork_child(struct resident *resident);

#endif
