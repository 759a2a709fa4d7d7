/* Leases made of objects (object_lease.h).
 *
 * 1. The lease is put where none is. If that is refused, the one that is there is read; one that is over is removed,
 * and the lease is put once more.
 * 2. The first lease that a store takes is put again, to see whether the store heeds the condition.
 *
 * Each step gets the time that the steps before it have left; without any left the call has failed, and a lease that
 * was taken meanwhile runs out by itself. Any thread: the one state is an atomic of the store. */
#include "jit/remote/object_lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/remote/remote_clock.h"

#define LEASE_MAX_BYTES 160
#define LEASE_HEAD      "kjit-lease 1 "

struct lease_text {
  char data[LEASE_MAX_BYTES];
  size_t bytes;
  bool too_long; /* longer than any lease: `data` has only its beginning, or nothing of it */
};

static int receive(void *user, const void *data, size_t bytes) {
  struct lease_text *text = user;
  text->too_long |= bytes >= sizeof text->data - text->bytes;
  if (text->too_long) return 1;
  memcpy(text->data + text->bytes, data, bytes);
  text->bytes += bytes;
  return 0;
}

/* Read what is there. KJIT_REMOTE_DONE and an empty text if it is too long for a lease: the store answers then that it
 * failed, but only because receive() ended the transfer. */
static kjit_remote_answer get(const kjit_remote_store *store, const char *name, struct lease_text *text,
                              int64_t deadline_ns) {
  const uint32_t left_ms = remote_left_ms(deadline_ns);
  const kjit_remote_answer answer =
      left_ms ? store->get(store->user, name, left_ms, receive, text) : KJIT_REMOTE_FAILED;
  if (!text->too_long) return answer;
  *text = (struct lease_text){.too_long = true};
  return KJIT_REMOTE_DONE;
}

static kjit_remote_answer put(const kjit_remote_store *store, const char *name, const char *text, uint32_t seconds,
                              int64_t deadline_ns) {
  const uint32_t left_ms = remote_left_ms(deadline_ns);
  return left_ms ? store->put(store->user, name, text, strlen(text), seconds, left_ms) : KJIT_REMOTE_FAILED;
}

static kjit_remote_answer drop(const kjit_remote_store *store, const char *name, int64_t deadline_ns) {
  const uint32_t left_ms = remote_left_ms(deadline_ns);
  return left_ms ? store->remove(store->user, name, left_ms) : KJIT_REMOTE_FAILED;
}

/* What the lease that another put there says: KJIT_REMOTE_ABSENT: the other has it; KJIT_REMOTE_DONE: it is over, as
 * is what is no lease; KJIT_REMOTE_FAILED. KJIT_REMOTE_ABSENT also if the lease is gone by now: its owner put the entry
 * first and then gave it back, so the caller looks for the entry once more. A clock that is wrong costs a build, or a
 * wait within its bound. */
static kjit_remote_answer ask_whether_over(const kjit_remote_store *store, const char *name, uint32_t seconds,
                                           int64_t deadline_ns) {
  struct lease_text text = {.bytes = 0};
  const kjit_remote_answer answer = get(store, name, &text, deadline_ns);
  if (answer != KJIT_REMOTE_DONE) return answer;
  if (strncmp(text.data, LEASE_HEAD, sizeof LEASE_HEAD - 1) != 0) return KJIT_REMOTE_DONE;
  const long long expiry = strtoll(text.data + sizeof LEASE_HEAD - 1, NULL, 10), now = (long long)time(NULL);
  return expiry <= now || expiry - 2 * (long long)seconds > now ? KJIT_REMOTE_DONE : KJIT_REMOTE_ABSENT;
}

/* Does the store heed the condition? Asked by putting the lease that was just put once more. */
static kjit_remote_answer find_out(const kjit_remote_store *store, atomic_bool *works, const char *name,
                                   const char *text, uint32_t seconds, int64_t deadline_ns) {
  const kjit_remote_answer again = put(store, name, text, seconds, deadline_ns);
  if (again == KJIT_REMOTE_ABSENT) {
    atomic_store(works, true);
    return KJIT_REMOTE_DONE;
  }
  if (again == KJIT_REMOTE_FAILED) return again;
  (void)drop(store, name, deadline_ns);
  return KJIT_REMOTE_UNSUPPORTED;
}

kjit_remote_answer object_lease_take(const kjit_remote_store *store, atomic_bool *works, const char *name,
                                     const char *owner, uint32_t seconds, uint32_t timeout_ms) {
  const int64_t deadline_ns = remote_deadline_ns(timeout_ms);
  char text[LEASE_MAX_BYTES];
  snprintf(text, sizeof text, LEASE_HEAD "%lld %.80s\n", (long long)time(NULL) + (long long)seconds, owner);
  kjit_remote_answer answer = put(store, name, text, seconds, deadline_ns);
  if (answer == KJIT_REMOTE_ABSENT) {
    atomic_store(works, true);
    answer = ask_whether_over(store, name, seconds, deadline_ns);
    if (answer != KJIT_REMOTE_DONE) return answer;
    /* Two may remove it at the same time, and both build then, which costs time alone. */
    (void)drop(store, name, deadline_ns);
    answer = put(store, name, text, seconds, deadline_ns);
  }
  if (answer == KJIT_REMOTE_DONE && !atomic_load(works))
    answer = find_out(store, works, name, text, seconds, deadline_ns);
  return answer;
}

kjit_remote_answer object_lease_release(const kjit_remote_store *store, const char *name, const char *owner,
                                        uint32_t timeout_ms) {
  const int64_t deadline_ns = remote_deadline_ns(timeout_ms);
  struct lease_text text = {.bytes = 0};
  const kjit_remote_answer answer = get(store, name, &text, deadline_ns);
  if (answer != KJIT_REMOTE_DONE) return answer;
  return strstr(text.data, owner) ? drop(store, name, deadline_ns) : KJIT_REMOTE_ABSENT;
}
