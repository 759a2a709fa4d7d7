/* Stores behind a storage helper of ccache's: a local program that knows how to talk to some store, and serves it to
 * many processes over a socket.
 *
 * "crsh:/path" is the socket of a helper that somebody else runs. "ccache+SCHEME://…" is the URL that the program
 * ccache-storage-SCHEME is started with (helper_start.c). An object's key is the 32 bytes that its name spells in hex.
 * Leases are put without the flag that overwrites: how exact they are is the helper's matter.
 *
 * Any thread. After helper_store_open() the struct changes by its atomics alone. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/remote/helper_start.h"
#include "jit/remote/helper_wire.h"
#include "jit/remote/remote_clock.h"
#include "jit/remote/remote_object.h"

struct helper_store {
  const struct mem *mem;
  struct remote_pool pool;
  struct helper helper;
  uint32_t connect_ms;
  _Atomic(const char *) fault; /* of the last call that failed */
};

/* One request and what it needs. */
struct errand {
  enum helper_request request;
  const void *data; /* of a put */
  size_t bytes;
  bool overwrite;
  kjit_remote_write_fn write; /* of a get */
  void *write_user;
};

static struct remote_wire *connect_new(struct helper_store *store, int64_t deadline_ns) {
  struct remote_wire *wire = mem_alloc(store->mem, sizeof *wire);
  const int64_t connect_ns = remote_deadline_ns(store->connect_ms);
  if (!wire) return NULL;
  if (helper_connect(&store->helper, wire, connect_ns < deadline_ns ? connect_ns : deadline_ns) &&
      helper_wire_greet(wire))
    return wire;
  remote_wire_close(wire);
  mem_free(store->mem, wire);
  return NULL;
}

/* Do a request on a connection that was idle, or on a new one, within `timeout_ms` in all. */
static enum helper_answer run(struct helper_store *store, const struct errand *errand, const char *name,
                              uint32_t timeout_ms) {
  const int64_t deadline_ns = remote_deadline_ns(timeout_ms);
  enum helper_answer answer = HELPER_BROKEN;
  struct digest key;
  if (!digest_from_hex(&key, name, strlen(name))) return answer;
  struct remote_wire *wire = remote_wire_take(&store->pool, store->mem);
  if (!wire) wire = connect_new(store, deadline_ns);
  if (!wire) {
    atomic_store(&store->fault, "there was no connection to the helper");
    return answer;
  }
  wire->deadline_ns = deadline_ns;
  if (helper_wire_send(wire, errand->request, &key, errand->data, errand->bytes, errand->overwrite))
    answer = helper_wire_receive(wire, errand->request, REMOTE_OBJECT_MAX_BYTES, errand->write, errand->write_user);
  remote_wire_put_back(&store->pool, store->mem, wire, answer == HELPER_BROKEN);
  if (answer == HELPER_BROKEN) atomic_store(&store->fault, "the helper's answer was cut off, too late or damaged");
  return answer;
}

static kjit_remote_answer store_get(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                                    void *write_user) {
  const struct errand errand = {.request = HELPER_GET, .write = write, .write_user = write_user};
  const enum helper_answer answer = run(user, &errand, name, timeout_ms);
  if (answer == HELPER_NOOP) return KJIT_REMOTE_ABSENT;
  return answer == HELPER_OK ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
}

static kjit_remote_answer store_put(void *user, const char *name, const void *data, size_t bytes,
                                    uint32_t lease_seconds, uint32_t timeout_ms) {
  const struct errand errand = {.request = HELPER_PUT, .data = data, .bytes = bytes, .overwrite = !lease_seconds};
  const enum helper_answer answer = run(user, &errand, name, timeout_ms);
  if (answer == HELPER_NOOP && lease_seconds) return KJIT_REMOTE_ABSENT;
  return answer == HELPER_OK ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
}

static kjit_remote_answer store_remove(void *user, const char *name, uint32_t timeout_ms) {
  const struct errand errand = {.request = HELPER_REMOVE};
  const enum helper_answer answer = run(user, &errand, name, timeout_ms);
  if (answer == HELPER_NOOP) return KJIT_REMOTE_ABSENT;
  return answer == HELPER_OK ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
}

static void store_why(void *user, char *text, size_t bytes) {
  struct helper_store *const store = user;
  const char *const fault = atomic_load(&store->fault);
  snprintf(text, bytes, "%s", fault ? fault : "the helper could not do it");
}

static void store_close(void *user) {
  struct helper_store *store = user;
  remote_wire_close_all(&store->pool, store->mem);
  helper_finish(&store->helper, store->mem);
  mem_free(store->mem, store);
}

static kjit_status set_up(struct helper_store *store, const struct remote_url *url, kjit_error *error) {
  static const char scheme[] = "crsh:";
  if (strncmp(url->address, scheme, sizeof scheme - 1) != 0) return helper_name(&store->helper, store->mem, url, error);
  const char *const path = url->address + sizeof scheme - 1;
  if (*path != '/' || strlen(path) >= HELPER_PATH_BYTES)
    return error_set(error, KJIT_ERR_INVALID_ARG, "must be crsh:/PATH, of at most %d bytes", HELPER_PATH_BYTES - 1);
  memcpy(store->helper.socket, path, strlen(path) + 1);
  return KJIT_OK;
}

kjit_status helper_store_open(kjit_remote_store *out, const struct mem *mem, const struct remote_url *url,
                              kjit_error *error) {
  struct helper_store *store = mem_alloc(mem, sizeof *store);
  if (!store) return error_no_memory(error);
  store->mem = mem;
  store->connect_ms = (uint32_t)url->connect_ms;
  const kjit_status status = set_up(store, url, error);
  if (status != KJIT_OK) {
    store_close(store);
    return status;
  }
  out->user = store;
  out->get = store_get;
  out->put = store_put;
  out->remove = store_remove;
  out->why = store_why;
  out->close = store_close;
  return KJIT_OK;
}
