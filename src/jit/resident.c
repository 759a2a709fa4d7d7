/* What this process has in memory, and what it is making right now.
 *
 * One hash table maps the identity of a request to a slot. A slot has an artifact, or a flight, or both, or a note
 * that the driver refused the artifact. A flight is one artifact being made: its leader is the thread that makes it,
 * its followers are the threads that wait for it.
 *
 * Artifacts are in a list by the order of use. When they exceed the bounds, the least recently used one that only
 * the table holds goes; one that somebody else holds would free no memory. Remembered failures are bounded too.
 *
 * One mutex protects everything and is held for look-ups and list changes alone: never across a compile, a file or a
 * driver call. What the bounds push out is freed after it was released, because kernels are large; a remembered
 * failure, which is a message, is freed while it is held. Followers wait on one condition for all flights. After fork()
 * the child has no flights, because the threads that led them exist in the parent alone. */
#include "jit/resident.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "jit/artifact.h"

/* Keys are digests, so any four bytes of one are as good as a hash of it. */
#define HASH_FUNCTION(key, bytes, value) memcpy(&(value), (key), sizeof(value))
#include "base/table.h"

#include <utlist.h>

/* One failure more than this pushes the oldest out, so that a program that generates broken kernels does not grow. */
#define FAILURES_MAX 256

/* When something must go, artifacts that somebody holds are skipped. After this many the search ends until the next
 * addition, because a process that holds nearly everything must not look through all of it each time. */
#define PASSED_OVER_MAX 64

/* One artifact being made. */
struct flight {
  size_t references; /* by the leader and by each follower */
  struct digest key;
  bool landed; /* `artifact` and `error` are final */
  bool wanted_later;
  kjit_artifact *artifact;
  kjit_error error;
};

struct slot {
  UT_hash_handle hh;
  struct digest key;
  struct slot *prev, *next; /* in the order of use, when there is an artifact */
  kjit_artifact *artifact;  /* NULL while the first flight is under way */
  struct flight *flight;
  int64_t expires_ns; /* of a failure; INT64_MAX for a kernel */
  bool refused;
};

struct resident {
  const struct mem *mem;
  pthread_mutex_t mutex;
  pthread_cond_t landed;
  struct slot *slots;
  struct slot *least; /* recently used artifact; the head of the order of use */
  struct resident_bounds bounds;
  uint64_t bytes, entries; /* of artifacts */
  size_t failures;
};

static bool init_condition(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes)) return false;
  const bool made =
      !pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) && !pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
  return made;
}

struct resident *resident_create(const struct mem *mem, const struct resident_bounds *bounds) {
  struct resident *resident = mem_alloc(mem, sizeof *resident);
  if (!resident) return NULL;
  resident->mem = mem;
  resident->bounds = *bounds;
  if (init_condition(&resident->landed)) {
    if (!pthread_mutex_init(&resident->mutex, NULL)) return resident;
    pthread_cond_destroy(&resident->landed);
  }
  mem_free(mem, resident);
  return NULL;
}

static struct slot *find(struct resident *resident, const struct digest *key) {
  struct slot *slot = NULL;
  HASH_FIND(hh, resident->slots, key, sizeof *key, slot);
  return slot;
}

static struct slot *find_or_add(struct resident *resident, const struct digest *key) {
  const struct mem *mem = resident->mem;
  bool added = true;
  struct slot *slot = find(resident, key);
  if (slot) return slot;
  slot = mem_alloc(mem, sizeof *slot);
  if (!slot) return NULL;
  slot->key = *key;
  slot->expires_ns = INT64_MAX;
  HASH_ADD(hh, resident->slots, key, sizeof slot->key, slot);
  if (added) return slot;
  mem_free(mem, slot);
  return NULL;
}

static uint64_t bytes_of(const kjit_artifact *artifact) {
  return artifact_image(artifact)->bytes;
}

static void put_in(struct resident *resident, struct slot *slot, kjit_artifact *artifact, int64_t expires_ns) {
  slot->artifact = kjit_artifact_retain(artifact_as(artifact, KJIT_ORIGIN_MEMORY));
  slot->expires_ns = expires_ns;
  DL_APPEND(resident->least, slot);
  resident->bytes += bytes_of(artifact);
  resident->entries++;
  resident->failures += expires_ns != INT64_MAX;
}

/* Take the slot's artifact, which the caller releases; NULL when it has none. */
static kjit_artifact *take_out(struct resident *resident, struct slot *slot) {
  kjit_artifact *const artifact = slot->artifact;
  if (!artifact) return NULL;
  slot->artifact = NULL;
  DL_DELETE(resident->least, slot);
  resident->bytes -= bytes_of(artifact);
  resident->entries--;
  resident->failures -= slot->expires_ns != INT64_MAX;
  return artifact;
}

/* Make the slot the most recently used one. */
static void move_to_end(struct resident *resident, struct slot *slot) {
  if (!slot->next) return;
  DL_DELETE(resident->least, slot);
  DL_APPEND(resident->least, slot);
}

static void remove_slot(struct resident *resident, struct slot *slot) {
  const struct mem *mem = resident->mem;
  HASH_DEL(resident->slots, slot);
  kjit_artifact_release(take_out(resident, slot));
  mem_free(mem, slot);
}

static bool is_beyond(const struct resident *resident) {
  return resident->bytes > resident->bounds.max_bytes || resident->entries > resident->bounds.max_entries;
}

/* Take out of the table what is beyond the bounds. The caller passes the result to free_slots() after it has released
 * the mutex. While the mutex is held no thread can take a reference to an artifact that only the table holds. */
static struct slot *shrink(struct resident *resident) {
  const struct mem *mem = resident->mem;
  struct slot *gone = NULL;
  for (int passed_over = 0; is_beyond(resident) && passed_over < PASSED_OVER_MAX;) {
    struct slot *slot = resident->least;
    if (!slot || !resident->slots) break; /* nothing is left to take out */
    if (slot->flight || artifact_is_shared(slot->artifact)) {
      move_to_end(resident, slot);
      passed_over++;
      continue;
    }
    kjit_artifact *const artifact = take_out(resident, slot);
    HASH_DEL(resident->slots, slot);
    slot->artifact = artifact;
    LL_PREPEND(gone, slot);
  }
  return gone;
}

static void free_slots(const struct resident *resident, struct slot *slots) {
  struct slot *slot, *next;
  LL_FOREACH_SAFE(slots, slot, next) {
    kjit_artifact_release(slot->artifact);
    mem_free(resident->mem, slot);
  }
}

static void remove_oldest_failure(struct resident *resident) {
  struct slot *oldest = NULL, *slot, *next;
  HASH_ITER(hh, resident->slots, slot, next) {
    if (slot->artifact && slot->expires_ns != INT64_MAX && (!oldest || slot->expires_ns < oldest->expires_ns))
      oldest = slot;
  }
  if (oldest) remove_slot(resident, oldest);
}

static void flight_release(struct resident *resident, struct flight *flight) {
  if (--flight->references) return;
  kjit_artifact_release(flight->artifact);
  mem_free(resident->mem, flight);
}

void resident_destroy(struct resident *resident) {
  if (!resident) return;
  struct slot *slot, *next;
  HASH_ITER(hh, resident->slots, slot, next) {
    remove_slot(resident, slot);
  }
  pthread_cond_destroy(&resident->landed);
  pthread_mutex_destroy(&resident->mutex);
  mem_free(resident->mem, resident);
}

static enum resident_answer start_flight(struct resident *resident, const struct digest *key,
                                         struct resident_join *join) {
  struct flight *flight = mem_alloc(resident->mem, sizeof *flight);
  struct slot *slot = flight ? find_or_add(resident, key) : NULL;
  if (!slot) {
    mem_free(resident->mem, flight);
    return RESIDENT_NO_MEMORY;
  }
  flight->references = 1;
  flight->key = *key;
  slot->flight = flight;
  *join = (struct resident_join){NULL, flight, slot->refused};
  return RESIDENT_LEAD;
}

enum resident_answer resident_ask(struct resident *resident, const struct digest *key, int64_t now_ns, bool may_lead,
                                  struct resident_join *join) {
  enum resident_answer answer = RESIDENT_ABSENT;
  *join = (struct resident_join){0};
  pthread_mutex_lock(&resident->mutex);
  struct slot *slot = find(resident, key);
  if (slot && slot->artifact && now_ns >= slot->expires_ns && !slot->flight) {
    remove_slot(resident, slot);
    slot = NULL;
  }
  if (slot && slot->artifact) {
    move_to_end(resident, slot);
    join->artifact = kjit_artifact_retain(slot->artifact);
    answer = RESIDENT_FOUND;
  } else if (may_lead && slot && slot->flight) {
    slot->flight->references++;
    join->flight = slot->flight;
    answer = RESIDENT_FOLLOW;
  } else if (may_lead) {
    answer = start_flight(resident, key, join);
  }
  pthread_mutex_unlock(&resident->mutex);
  return answer;
}

/* Give the flight's slot its result, or remove the slot when there is none to keep. */
static void settle(struct resident *resident, struct slot *slot, kjit_artifact *artifact, int64_t expires_ns) {
  slot->flight = NULL;
  if (!artifact && !slot->artifact && !slot->refused) {
    remove_slot(resident, slot);
    return;
  }
  if (!artifact || slot->artifact) return;
  put_in(resident, slot, artifact, expires_ns);
  slot->refused = 0;
  if (resident->failures > FAILURES_MAX) remove_oldest_failure(resident);
}

void resident_land(struct resident *resident, struct flight *flight, kjit_artifact *artifact, int64_t expires_ns,
                   const kjit_error *error) {
  pthread_mutex_lock(&resident->mutex);
  struct slot *slot = find(resident, &flight->key);
  /* After a fork in the middle of the flight the slot may belong to another flight, or be gone. */
  if (slot && slot->flight == flight) settle(resident, slot, artifact, expires_ns);
  flight->landed = 1;
  flight->error = *error;
  flight->artifact = kjit_artifact_retain(artifact);
  flight_release(resident, flight);
  struct slot *const gone = shrink(resident);
  pthread_cond_broadcast(&resident->landed);
  pthread_mutex_unlock(&resident->mutex);
  free_slots(resident, gone);
}

void resident_follow(struct resident *resident, struct flight *flight) {
  pthread_mutex_lock(&resident->mutex);
  flight->references++;
  pthread_mutex_unlock(&resident->mutex);
}

static struct timespec to_timespec(int64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

kjit_status resident_wait(struct resident *resident, struct flight *flight, int64_t until_ns, kjit_artifact **artifact,
                          kjit_error *error) {
  const struct timespec until = to_timespec(until_ns);
  int waited = 0;
  *artifact = NULL;
  pthread_mutex_lock(&resident->mutex);
  while (!flight->landed && waited != ETIMEDOUT)
    waited = until_ns == INT64_MAX ? pthread_cond_wait(&resident->landed, &resident->mutex)
                                   : pthread_cond_timedwait(&resident->landed, &resident->mutex, &until);
  const bool landed = flight->landed;
  if (landed) {
    *error = flight->error;
    *artifact = kjit_artifact_retain(flight->artifact);
  }
  pthread_mutex_unlock(&resident->mutex);
  return landed ? (kjit_status)error->status : KJIT_ERR_TIMEOUT;
}

void resident_want_later(struct resident *resident, struct flight *flight) {
  pthread_mutex_lock(&resident->mutex);
  flight->wanted_later = true;
  pthread_mutex_unlock(&resident->mutex);
}

bool resident_is_wanted(struct resident *resident, const struct flight *flight) {
  pthread_mutex_lock(&resident->mutex);
  const bool wanted = flight->wanted_later || flight->references > 1;
  pthread_mutex_unlock(&resident->mutex);
  return wanted;
}

void resident_leave(struct resident *resident, struct flight *flight) {
  pthread_mutex_lock(&resident->mutex);
  flight_release(resident, flight);
  pthread_mutex_unlock(&resident->mutex);
}

void resident_keep(struct resident *resident, const struct digest *key, kjit_artifact *artifact) {
  pthread_mutex_lock(&resident->mutex);
  struct slot *slot = find_or_add(resident, key);
  if (slot && !slot->artifact && !slot->refused) put_in(resident, slot, artifact, INT64_MAX);
  struct slot *const gone = shrink(resident);
  pthread_mutex_unlock(&resident->mutex);
  free_slots(resident, gone);
}

void resident_refuse(struct resident *resident, const struct digest *key, const kjit_artifact *artifact) {
  pthread_mutex_lock(&resident->mutex);
  struct slot *slot = find(resident, key);
  if (slot && slot->artifact && artifact_same(slot->artifact, artifact)) {
    kjit_artifact_release(take_out(resident, slot)); /* not the last reference, because the caller has one */
    slot->refused = 1;
  }
  pthread_mutex_unlock(&resident->mutex);
}

void resident_fork_prepare(struct resident *resident) {
  pthread_mutex_lock(&resident->mutex);
}

void resident_fork_parent(struct resident *resident) {
  pthread_mutex_unlock(&resident->mutex);
}

/* The leading and following threads exist in the parent alone, so no slot has a flight here. The structs of the flights
 * are not freed, because the thread that forked may be inside one of them, in a callback. */
void resident_fork_child(struct resident *resident) {
  struct slot *slot, *next;
  HASH_ITER(hh, resident->slots, slot, next) {
    slot->flight = NULL;
  }
  (void)init_condition(&resident->landed);
  pthread_mutex_unlock(&resident->mutex);
}
