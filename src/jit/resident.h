/* What is in this process: artifacts by key, and who is making which one right now. No lock is held while a leader
 * works; followers of one key never delay an answer for another. */
#ifndef KJIT_JIT_RESIDENT_H
#define KJIT_JIT_RESIDENT_H

#include <kjit/build.h>

#include "base/digest.h"
#include "base/mem.h"

struct resident; /* the table */
struct flight;   /* one artifact being made */

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
  _Bool refused; /* the driver refused what the tiers hold: only a new build will do */
};

/* Beyond either, the least recently used artifacts that nobody else holds are let go of. */
struct resident_bounds {
  uint64_t max_bytes; /* of entry images */
  uint64_t max_entries;
};

struct resident *resident_create(const struct mem *mem, const struct resident_bounds *bounds);
void resident_destroy(struct resident *resident); /* accepts NULL; no flight may be under way */

/* `now_ns`: failures that expired before are forgotten. `may_lead`: else an absent key, and one that is being made, are
 * RESIDENT_ABSENT. */
enum resident_answer resident_ask(struct resident *resident, const struct digest *key, int64_t now_ns, _Bool may_lead,
                                  struct resident_join *join);

/* End of a flight. `artifact` (may be NULL) is retained and answers from now on, for a failure until `expires_ns`;
 * `error` is what the followers get. Consumes the leader's hold on the flight. */
void resident_land(struct resident *resident, struct flight *flight, kjit_artifact *artifact, int64_t expires_ns,
                   const kjit_error *error);

/* Wait for the leader until `until_ns` (monotonic clock). KJIT_ERR_TIMEOUT, or what the leader landed with: then
 * `artifact` is retained if there is one. */
kjit_status resident_wait(struct resident *resident, struct flight *flight, int64_t until_ns, kjit_artifact **artifact,
                          kjit_error *error);
void resident_leave(struct resident *resident, struct flight *flight);

/* Keep an artifact that was found without a flight. Out of memory: it is simply not kept. */
void resident_keep(struct resident *resident, const struct digest *key, kjit_artifact *artifact);

/* The driver refused it: forget this artifact, and that the tiers are worth asking for its key. */
void resident_refuse(struct resident *resident, const struct digest *key, const kjit_artifact *artifact);

/* Around fork(): nobody is inside while the process is copied, and the child starts without flights. */
void resident_fork_prepare(struct resident *resident);
void resident_fork_parent(struct resident *resident);
void resident_fork_child(struct resident *resident);

#endif
