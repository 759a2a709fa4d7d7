/* The remote tier: made from stores and URLs, asked level by level, and ended.
 *
 * 1. remote_get() asks the stores in order. What one has is handed out, and goes in the background to the folder and
 *    to the stores before it.
 * 2. After a miss everywhere, remote_lease() asks the first store that has leases whether this process may build.
 * 3. remote_publish() puts what was built into every store, in the background.
 *
 * Any thread; the stores' own state is atomic, and the line of writes has a mutex. */
#include "jit/remote/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/remote/object_lease.h"
#include "jit/remote/remote_internal.h"

#define STORE_OLDEST_BYTES (offsetof(kjit_remote_store, remove) + sizeof(void *))

static kjit_status add_store(struct remote *remote, const kjit_remote_store *given, kjit_error *error) {
  struct remote_tier *tier = &remote->tiers[remote->count];
  kjit_remote_store *const store = &tier->store;
  const kjit_status status = struct_intake(store, sizeof *store, given, STORE_OLDEST_BYTES, "remote_stores", error);
  if (status != KJIT_OK) return status;
  const bool reads = !(store->flags & KJIT_REMOTE_WRITE_ONLY), writes = !(store->flags & KJIT_REMOTE_READ_ONLY);
  if (store->flags & ~(KJIT_REMOTE_READ_ONLY | KJIT_REMOTE_WRITE_ONLY | KJIT_REMOTE_SIGNED))
    return error_set(error, KJIT_ERR_INVALID_ARG, "remote_stores[%zu].flags: 0x%x; only KJIT_REMOTE_* may be set",
                     remote->count, store->flags);
  if ((reads && !store->get) || (writes && !store->put))
    return error_set(error, KJIT_ERR_INVALID_ARG, "remote_stores[%zu]: lacks get or put", remote->count);
  snprintf(tier->title, sizeof tier->title, "%s", store->title ? store->title : "store");
  if (!store->timeout_ms) store->timeout_ms = REMOTE_TIMEOUT_MS;
  remote->count++;
  return KJIT_OK;
}

static kjit_status add_stores(struct remote *remote, const struct remote_settings *settings, kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (settings->store_count && !settings->stores)
    return error_invalid(error, "remote_stores", "must not be NULL, because its count is not 0");
  if (settings->store_count > REMOTE_STORES_MAX)
    return error_set(error, KJIT_ERR_INVALID_ARG, "remote_stores: %zu; at most %d", settings->store_count,
                     REMOTE_STORES_MAX);
  for (size_t i = 0; i < settings->store_count && status == KJIT_OK; i++)
    status = add_store(remote, &settings->stores[i], error);
  if (status == KJIT_OK && settings->urls) status = remote_urls_open(remote, settings->urls, error);
  return status;
}

/* A store whose entries must be signed is of no use to a runtime that trusts no key. */
static void leave_out_signed(struct remote *remote) {
  size_t kept = 0;
  if (remote->trust.count) return;
  for (size_t i = 0; i < remote->count; i++) {
    kjit_remote_store *const store = &remote->tiers[i].store;
    if (store->flags & KJIT_REMOTE_SIGNED && !(store->flags & KJIT_REMOTE_WRITE_ONLY)) {
      log_write(remote->log, KJIT_LOG_WARNING,
                "remote: %s: its entries must be signed, and no key is trusted (KJIT_CACHE_TRUSTED_KEYS): not asked",
                remote->tiers[i].title);
      if (store->close) store->close(store->user);
      continue;
    }
    if (kept != i) {
      remote->tiers[kept].store = *store;
      memcpy(remote->tiers[kept].title, remote->tiers[i].title, REMOTE_TITLE_BYTES);
    }
    kept++;
  }
  remote->count = kept;
}

/* Read public keys out of one text, separated by ",". */
static kjit_status trust_list(struct remote *remote, const char *list, kjit_error *error) {
  char *text = mem_strdup(remote->mem, list), *rest = text;
  const char **keys = mem_alloc_array(remote->mem, strlen(list) / 2 + 1, sizeof *keys);
  size_t count = 0;
  kjit_status status = KJIT_OK;
  if (!text || !keys) {
    status = error_no_memory(error);
    goto done;
  }
  for (char *key; (key = strsep(&rest, ","));)
    if (*key) keys[count++] = key;
  status = trust_init(&remote->trust, remote->mem, keys, count, error);

done:
  mem_free(remote->mem, (void *)keys);
  mem_free(remote->mem, text);
  return status;
}

/* A process that signs what it stores trusts the keys that were given, or else its own alone. Otherwise what a stranger
 * put into one store would be copied to another one with our signature. */
static kjit_status trust_own(struct remote *remote, kjit_error *error) {
  if (remote->trust.count) return KJIT_OK;
  remote->trust.keys = mem_alloc(remote->mem, sizeof *remote->trust.keys);
  if (!remote->trust.keys) return error_no_memory(error);
  remote_object_public_key(&remote->seed, remote->trust.keys);
  remote->trust.count = 1;
  return KJIT_OK;
}

static kjit_status read_keys(struct remote *remote, const struct remote_settings *settings, kjit_error *error) {
  kjit_status status =
      trust_init(&remote->trust, remote->mem, settings->trusted_keys, settings->trusted_key_count, error);
  if (status == KJIT_OK && !remote->trust.count && settings->trusted_list)
    status = trust_list(remote, settings->trusted_list, error);
  if (status != KJIT_OK || !settings->signing_key_path) return status;
  remote->signs = true;
  status = remote_signing_key_read(remote->mem, settings->signing_key_path, &remote->seed, error);
  return status == KJIT_OK ? trust_own(remote, error) : status;
}

static void make_owner(struct remote *remote) {
  uint64_t random[2] = {0, 0};
  (void)remote->ops->random(remote->ops->user, random, sizeof random);
  snprintf(remote->owner, sizeof remote->owner, "%016llx%016llx", (unsigned long long)random[0],
           (unsigned long long)random[1]);
}

kjit_status remote_create(struct remote **out, const struct remote_settings *settings, kjit_error *error) {
  *out = NULL;
  if (!settings->store_count && !settings->urls) return KJIT_OK;
  struct remote *remote = mem_alloc(settings->mem, sizeof *remote);
  if (!remote) return error_no_memory(error);
  remote->mem = settings->mem;
  remote->log = settings->log;
  remote->ops = settings->ops;
  remote->counters = settings->counters;
  remote->folder = settings->folder;
  remote->read_only = settings->read_only;
  remote->end_ms = settings->end_ms ? settings->end_ms : REMOTE_END_MS;
  if (!remote_queue_init(&remote->queue)) {
    mem_free(settings->mem, remote);
    return error_no_memory(error);
  }
  make_owner(remote);
  kjit_status status = read_keys(remote, settings, error);
  if (status == KJIT_OK) status = add_stores(remote, settings, error);
  if (status == KJIT_OK) leave_out_signed(remote);
  if (status == KJIT_OK && remote->count)
    *out = remote;
  else
    remote_destroy(remote);
  return status;
}

void remote_destroy(struct remote *remote) {
  if (!remote) return;
  remote_queue_finish(remote);
  for (size_t i = 0; i < remote->count; i++)
    if (remote->tiers[i].store.close) remote->tiers[i].store.close(remote->tiers[i].store.user);
  trust_finish(&remote->trust, remote->mem);
  explicit_bzero(&remote->seed, sizeof remote->seed);
  mem_free(remote->mem, remote);
}

/* Which stores may be written, of the first `count`. */
static unsigned writable(const struct remote *remote, size_t count) {
  unsigned stores = 0;
  for (size_t i = 0; i < count && !remote->read_only; i++)
    if (!(remote->tiers[i].store.flags & KJIT_REMOTE_READ_ONLY)) stores |= 1u << i;
  return stores;
}

/* What the store at `index` has goes to the folder, and to the stores before it. Their readers may ask for signatures
 * that only a signer can make, so nothing goes there when this process trusts keys and does not sign. */
static void fill_back(struct remote *remote, const struct digest *key, const struct entry_image *image, size_t index) {
  struct remote_job *job = remote_job_create(remote, key, image->data, image->bytes);
  if (!job) return;
  job->fill = true;
  job->stores = remote->trust.count && !remote->signs ? 0 : writable(remote, index);
  remote_queue_add(remote, job);
}

kjit_status remote_get(struct remote *remote, const struct key *key, int64_t deadline_ns, struct entry_image *image) {
  *image = (struct entry_image){0};
  if (!remote || !key->complete) return KJIT_ERR_NOT_FOUND;
  for (size_t i = 0; i < remote->count; i++) {
    const kjit_status status = remote_tier_get(remote, &remote->tiers[i], &key->digest, deadline_ns, image);
    if (status == KJIT_ERR_NO_MEMORY) return status;
    if (status != KJIT_OK) continue;
    count_add(remote->counters, COUNT_remote_hits, 1);
    fill_back(remote, &key->digest, image, i);
    return KJIT_OK;
  }
  return KJIT_ERR_NOT_FOUND;
}

void remote_publish(struct remote *remote, const struct digest *key, const void *image, size_t bytes, bool lease) {
  if (!remote) return;
  const unsigned stores = image ? writable(remote, remote->count) : 0;
  if (!stores && !lease) return;
  struct remote_job *job = remote_job_create(remote, key, stores ? image : NULL, stores ? bytes : 0);
  if (!job) {
    count_add(remote->counters, COUNT_remote_dropped, 1);
    return;
  }
  job->stores = stores;
  job->lease = lease;
  remote_queue_add(remote, job);
}

/* A lease has a name of its own, which no key's digest can be. */
static void lease_name(const struct digest *key, char name[DIGEST_HEX_BYTES]) {
  static const char prefix[] = "kjit-lease 1\n";
  struct digest_state state;
  struct digest digest;
  digest_begin(&state);
  digest_add(&state, prefix, sizeof prefix - 1);
  digest_add(&state, key->bytes, DIGEST_BYTES);
  digest_end(&state, &digest);
  digest_to_hex(&digest, name);
}

static void lease_owner(const struct remote *remote, char owner[REMOTE_OWNER_BYTES + 16]) {
  /* With the process's number, because a forked child has its parent's random part. */
  snprintf(owner, REMOTE_OWNER_BYTES + 16, "%s-%ld", remote->owner, (long)getpid());
}

/* Is this store asked for leases? One that nobody may write into has none. */
static bool has_leases(const struct remote *remote, struct remote_tier *tier) {
  return !remote->read_only && !(tier->store.flags & KJIT_REMOTE_READ_ONLY) && tier->store.get && tier->store.remove &&
         atomic_load(&tier->leases_after_ns) <= remote_now_ns(remote);
}

enum remote_turn remote_lease(struct remote *remote, const struct digest *key, int64_t deadline_ns) {
  char name[DIGEST_HEX_BYTES], owner[REMOTE_OWNER_BYTES + 16];
  if (!remote) return REMOTE_TURN_FREE;
  lease_name(key, name);
  lease_owner(remote, owner);
  for (size_t i = 0; i < remote->count; i++) {
    struct remote_tier *const tier = &remote->tiers[i];
    uint32_t timeout_ms;
    if (!has_leases(remote, tier) || !remote_tier_admits(remote, tier, deadline_ns, &timeout_ms)) continue;
    const kjit_remote_answer answer =
        object_lease_take(&tier->store, &tier->leases_work, name, owner, REMOTE_LEASE_S, timeout_ms);
    remote_tier_note(remote, tier, answer);
    if (answer == KJIT_REMOTE_ABSENT) return REMOTE_TURN_OTHERS;
    if (answer == KJIT_REMOTE_DONE) {
      count_add(remote->counters, COUNT_remote_leases, 1);
      return REMOTE_TURN_OURS;
    }
    if (answer == KJIT_REMOTE_UNSUPPORTED && atomic_exchange(&tier->leases_after_ns, INT64_MAX) != INT64_MAX)
      log_write(remote->log, KJIT_LOG_INFO, "remote: %s has no leases: everybody who misses builds", tier->title);
  }
  return REMOTE_TURN_FREE;
}

void remote_lease_return(struct remote *remote, const struct digest *key, int64_t deadline_ns) {
  char name[DIGEST_HEX_BYTES], owner[REMOTE_OWNER_BYTES + 16];
  lease_name(key, name);
  lease_owner(remote, owner);
  for (size_t i = 0; i < remote->count; i++) {
    struct remote_tier *const tier = &remote->tiers[i];
    uint32_t timeout_ms;
    if (!has_leases(remote, tier) || !remote_tier_admits(remote, tier, deadline_ns, &timeout_ms)) continue;
    remote_tier_note(remote, tier, object_lease_release(&tier->store, name, owner, timeout_ms));
    return; /* remote_lease() took it from the first store that has leases */
  }
}

void remote_lease_in_vain(struct remote *remote) {
  for (size_t i = 0; i < remote->count; i++) {
    struct remote_tier *const tier = &remote->tiers[i];
    if (!has_leases(remote, tier)) continue;
    atomic_store(&tier->leases_after_ns, remote_now_ns(remote) + REMOTE_LEASE_PAUSE_S * (int64_t)1000000000);
    log_write(remote->log, KJIT_LOG_WARNING,
              "remote: %s: a lease was held for %d s and no entry came: its leases are not asked for in the next %d s",
              tier->title, REMOTE_LEASE_S, REMOTE_LEASE_PAUSE_S);
    return; /* remote_lease() asked the first store that has leases */
  }
}

/* How one entry stands in one store. */
static kjit_status compare_in(struct remote *remote, size_t index, const struct digest *key) {
  struct entry_image there = {0};
  const kjit_status status = remote_tier_get(remote, &remote->tiers[index], key, INT64_MAX, &there);
  entry_image_finish(&there, remote->mem);
  return status;
}

void remote_compare(struct remote *remote, const struct digest *key, const void *image, size_t bytes, bool push,
                    kjit_remote_report *report) {
  struct remote_job *job = push ? remote_job_create(remote, key, image, bytes) : NULL;
  bool present = false, refused = false, answered = false, written = false;
  for (size_t i = 0; i < remote->count; i++) {
    const kjit_status status = compare_in(remote, i, key);
    present |= status == KJIT_OK;
    refused |= status == KJIT_ERR_CORRUPT;
    answered |= status != KJIT_ERR_IO && status != KJIT_ERR_NO_MEMORY;
    if (job && status != KJIT_OK)
      written |= remote_tier_put(remote, &remote->tiers[i], key, job->data, job->bytes, INT64_MAX);
  }
  mem_free(remote->mem, job);
  count_add(remote->counters, COUNT_remote_puts, written);
  report->entries++;
  report->written += written;
  report->present += present;
  report->refused += refused && !present;
  report->failed += !answered;
  report->missing += answered && !present && !refused;
}
