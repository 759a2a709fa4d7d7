/* One store of the remote tier: its circuit, and one object read or written through it.
 *
 * A call is made when the circuit is closed, or when it has been open for PAUSE_NS, and then by one thread alone. It
 * gets the store's time limit or what is left until the caller's deadline. An object is refused as soon as its first
 * bytes are no entry's or it is longer than its header says, so that a store that sends a gigabyte costs no memory.
 *
 * Any thread; the circuit is made of atomics. */
#include <string.h>

#include "base/text.h"
#include "jit/remote/remote_internal.h"

#define WHY_BYTES 160

/* Failures in a row that open the circuit, and for how long. */
#define FAILURES_MAX 3
#define PAUSE_NS     ((int64_t)10 * 1000000000)

bool remote_tier_admits(struct remote *remote, struct remote_tier *tier, int64_t deadline_ns, uint32_t *timeout_ms) {
  const int64_t now_ns = remote_now_ns(remote);
  const int64_t left_ms = (deadline_ns - now_ns) / 1000000;
  if (left_ms < 1) return false;
  *timeout_ms = left_ms < tier->store.timeout_ms ? (uint32_t)left_ms : tier->store.timeout_ms;
  if (atomic_load(&tier->failures) < FAILURES_MAX) return true;
  int64_t until_ns = atomic_load(&tier->open_until_ns);
  return now_ns >= until_ns && atomic_compare_exchange_strong(&tier->open_until_ns, &until_ns, now_ns + PAUSE_NS);
}

void remote_tier_note(struct remote *remote, struct remote_tier *tier, kjit_remote_answer answer) {
  if (answer != KJIT_REMOTE_FAILED) {
    if (atomic_exchange(&tier->failures, 0) >= FAILURES_MAX)
      log_write(remote->log, KJIT_LOG_INFO, "remote: %s answers again", tier->title);
    return;
  }
  count_add(remote->counters, COUNT_remote_errors, 1);
  atomic_store(&tier->open_until_ns, remote_now_ns(remote) + PAUSE_NS);
  if (atomic_fetch_add(&tier->failures, 1) + 1 != FAILURES_MAX) return;
  char why[WHY_BYTES] = "";
  if (tier->store.why) tier->store.why(tier->store.user, why, sizeof why);
  why[sizeof why - 1] = '\0';
  log_write(remote->log, KJIT_LOG_WARNING,
            "remote: %s failed %d times in a row%s%s: it is left alone and tried every %d s", tier->title, FAILURES_MAX,
            *why ? ", the last time because " : "", why, (int)(PAUSE_NS / 1000000000));
}

/* An object under way. */
struct fetch {
  struct text text;
  bool refused; /* its bytes are no entry's, or too many */
};

static int fetch_write(void *user, const void *data, size_t bytes) {
  struct fetch *fetch = user;
  const size_t room = fetch->text.limit > fetch->text.bytes ? fetch->text.limit - fetch->text.bytes : 0;
  fetch->refused = bytes > room;
  if (fetch->refused) return 1;
  text_append_bytes(&fetch->text, data, bytes);
  if (fetch->text.failed || !fetch->text.bytes) return fetch->text.failed;
  const size_t announced = remote_object_announced(fetch->text.data, fetch->text.bytes);
  fetch->refused = announced && (announced == SIZE_MAX || fetch->text.bytes > announced + REMOTE_SIGNATURE_BYTES);
  return fetch->refused;
}

static kjit_status refuse(struct remote *remote, struct remote_tier *tier, const struct digest *key,
                          const char *damage) {
  char hex[DIGEST_HEX_BYTES];
  digest_to_hex(key, hex);
  count_add(remote->counters, COUNT_remote_refused, 1);
  /* One line of warning for each store, because a store of unsigned entries would otherwise fill the log. */
  const kjit_log_level level = atomic_exchange(&tier->told_refusal, 1) ? KJIT_LOG_DEBUG : KJIT_LOG_WARNING;
  log_write(remote->log, level, "remote: %s: entry %s is refused: %s", tier->title, hex, damage);
  return KJIT_ERR_CORRUPT;
}

/* Check what came, and hand it over as the image. */
static kjit_status take(struct remote *remote, struct remote_tier *tier, const struct digest *key, struct fetch *fetch,
                        struct entry_image *image) {
  size_t entry_bytes = 0;
  const size_t bytes = fetch->text.bytes;
  const char *damage = fetch->refused ? "no entry, or longer than its header says" : NULL;
  if (fetch->text.failed) return KJIT_ERR_NO_MEMORY;
  if (!damage && !bytes) damage = "empty";
  if (!damage) damage = remote_object_check(fetch->text.data, bytes, key, &remote->trust, &image->entry, &entry_bytes);
  if (damage) return refuse(remote, tier, key, damage);
  image->bytes = entry_bytes;
  image->data = text_take(&fetch->text);
  count_add(remote->counters, COUNT_bytes_read, bytes);
  return image->data ? KJIT_OK : KJIT_ERR_NO_MEMORY;
}

kjit_status remote_tier_get(struct remote *remote, struct remote_tier *tier, const struct digest *key,
                            int64_t deadline_ns, struct entry_image *image) {
  char name[DIGEST_HEX_BYTES];
  uint32_t timeout_ms;
  struct fetch fetch = {.refused = false};
  kjit_status status = KJIT_ERR_IO;
  if (tier->store.flags & KJIT_REMOTE_WRITE_ONLY) return KJIT_ERR_NOT_FOUND;
  if (!remote_tier_admits(remote, tier, deadline_ns, &timeout_ms)) return status;
  digest_to_hex(key, name);
  text_init(&fetch.text, remote->mem, REMOTE_OBJECT_MAX_BYTES + 1);
  kjit_remote_answer answer = tier->store.get(tier->store.user, name, timeout_ms, fetch_write, &fetch);
  /* The store did what it was asked for, when it was we who ended the transfer. */
  if (answer == KJIT_REMOTE_FAILED && (fetch.refused || fetch.text.failed)) answer = KJIT_REMOTE_DONE;
  remote_tier_note(remote, tier, answer);
  if (answer == KJIT_REMOTE_ABSENT) {
    count_add(remote->counters, COUNT_remote_misses, 1);
    status = KJIT_ERR_NOT_FOUND;
  } else if (answer == KJIT_REMOTE_DONE) {
    status = take(remote, tier, key, &fetch, image);
  }
  text_finish(&fetch.text);
  return status;
}

/* A put replaces what is there, because a put follows a miss: the store has nothing under this name, or what it has was
 * refused. */
bool remote_tier_put(struct remote *remote, struct remote_tier *tier, const struct digest *key, const void *data,
                     size_t bytes, int64_t deadline_ns) {
  char name[DIGEST_HEX_BYTES];
  uint32_t timeout_ms;
  if (remote->read_only || tier->store.flags & KJIT_REMOTE_READ_ONLY) return false;
  if (!remote_tier_admits(remote, tier, deadline_ns, &timeout_ms)) return false;
  digest_to_hex(key, name);
  const kjit_remote_answer answer = tier->store.put(tier->store.user, name, data, bytes, 0, timeout_ms);
  remote_tier_note(remote, tier, answer);
  if (answer == KJIT_REMOTE_DONE) count_add(remote->counters, COUNT_bytes_written, bytes);
  return answer == KJIT_REMOTE_DONE || answer == KJIT_REMOTE_ABSENT;
}
