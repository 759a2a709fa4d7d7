/* Redis and Valkey as a store: GET, SET, SET NX EX for leases, and a script that gives a lease back.
 *
 * "redis://[[user:]password@]host[:port][/database]" or "redis+unix:///path". An object is the string "kjit:<64 hex
 * digits>". Connections are kept in a pool; one that broke, or that the server has closed meanwhile, is
 * not used again. Any thread: after opening, only the pool and the last fault change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "jit/remote/redis_wire.h"
#include "jit/remote/remote_clock.h"
#include "jit/remote/remote_object.h"
#include "jit/remote/remote_url.h"

#define DEFAULT_PORT "6379"
#define NAME_BYTES   80

struct redis_store {
  const struct mem *mem;
  struct remote_pool pool;
  uint32_t connect_ms;
  uint64_t ttl_s;
  char *text;                             /* holds the strings below */
  const char *host, *port;                /* port NULL: `host` is a socket's path */
  const char *user, *password, *database; /* NULL: none */
  _Atomic(const char *) fault;            /* of the last call that failed */
};

static struct redis_part part(const char *text) {
  return (struct redis_part){text, strlen(text)};
}

/* Send a command and receive its answer. */
static void command(struct remote_wire *wire, const struct redis_part *parts, size_t count, struct redis_reply *reply,
                    kjit_remote_write_fn write, void *user) {
  *reply = (struct redis_reply){.kind = REDIS_BROKEN};
  if (redis_wire_send(wire, parts, count)) redis_wire_receive(wire, reply, REMOTE_OBJECT_MAX_BYTES, write, user);
}

/* AUTH and SELECT, which a connection remembers; without password and database there is nothing to say. */
static bool introduce(const struct redis_store *store, struct remote_wire *wire) {
  struct redis_reply reply = {.kind = REDIS_STATUS};
  if (store->password) {
    struct redis_part parts[3] = {part("AUTH")};
    size_t count = 1;
    if (store->user) parts[count++] = part(store->user);
    parts[count++] = part(store->password);
    command(wire, parts, count, &reply, NULL, NULL);
  }
  if (reply.kind == REDIS_STATUS && store->database) {
    const struct redis_part parts[] = {part("SELECT"), part(store->database)};
    command(wire, parts, 2, &reply, NULL, NULL);
  }
  return reply.kind == REDIS_STATUS;
}

/* Connecting and the introduction may take `connect_ms` together, and no more than the call has left. */
static struct remote_wire *connect_new(struct redis_store *store, int64_t deadline_ns) {
  struct remote_wire *wire = mem_alloc(store->mem, sizeof *wire);
  const int64_t connect_ns = remote_deadline_ns(store->connect_ms);
  if (!wire) return NULL;
  const bool connected =
      remote_wire_open(wire, store->host, store->port, connect_ns < deadline_ns ? connect_ns : deadline_ns);
  if (connected && introduce(store, wire)) return wire;
  atomic_store(&store->fault, connected ? "the password or the database was refused, or the server said nothing"
                                        : "there was no connection to the server");
  remote_wire_close(wire);
  mem_free(store->mem, wire);
  return NULL;
}

/* Do a command on a connection that was idle, or on a new one, within `timeout_ms` in all. */
static void run(struct redis_store *store, const struct redis_part *parts, size_t count, uint32_t timeout_ms,
                struct redis_reply *reply, kjit_remote_write_fn write, void *user) {
  const int64_t deadline_ns = remote_deadline_ns(timeout_ms);
  *reply = (struct redis_reply){.kind = REDIS_BROKEN};
  struct remote_wire *wire = remote_wire_take(&store->pool, store->mem);
  if (!wire) wire = connect_new(store, deadline_ns);
  if (!wire) return;
  wire->deadline_ns = deadline_ns;
  command(wire, parts, count, reply, write, user);
  remote_wire_put_back(&store->pool, store->mem, wire, reply->kind == REDIS_BROKEN);
  if (reply->kind == REDIS_BROKEN)
    atomic_store(&store->fault, "its answer was cut off, too late or not of Redis's protocol");
  else if (reply->kind == REDIS_ERROR)
    atomic_store(&store->fault, "the server answered with an error");
}

static void make_name(const char *name, char out[NAME_BYTES]) {
  snprintf(out, NAME_BYTES, "kjit:%.64s", name);
}

static kjit_remote_answer store_get(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                                    void *write_user) {
  char full[NAME_BYTES];
  struct redis_reply reply;
  make_name(name, full);
  const struct redis_part parts[] = {part("GET"), part(full)};
  run(user, parts, 2, timeout_ms, &reply, write, write_user);
  if (reply.kind == REDIS_NIL) return KJIT_REMOTE_ABSENT;
  return reply.kind == REDIS_BULK ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
}

/* The answer of a SET, with or without NX. */
static kjit_remote_answer set_answer(const struct redis_reply *reply) {
  if (reply->kind == REDIS_NIL) return KJIT_REMOTE_ABSENT;
  return reply->kind == REDIS_STATUS && !strcmp(reply->line, "OK") ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
}

/* EX lets the server forget the object, a lease when it is over and any other after the store's time to live. NX makes
 * it keep one that is there. */
static kjit_remote_answer store_put(void *user, const char *name, const void *data, size_t bytes,
                                    uint32_t lease_seconds, uint32_t timeout_ms) {
  struct redis_store *store = user;
  char full[NAME_BYTES], seconds[24];
  struct redis_reply reply;
  make_name(name, full);
  struct redis_part parts[6] = {part("SET"), part(full), {data, bytes}};
  size_t count = 3;
  const uint64_t life_s = lease_seconds ? lease_seconds : store->ttl_s;
  if (life_s) {
    snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)life_s);
    parts[count++] = part("EX");
    parts[count++] = part(seconds);
  }
  if (lease_seconds) parts[count++] = part("NX");
  run(store, parts, count, timeout_ms, &reply, NULL, NULL);
  return set_answer(&reply);
}

static kjit_remote_answer store_exists(void *user, const char *name, uint32_t timeout_ms) {
  char full[NAME_BYTES];
  struct redis_reply reply;
  make_name(name, full);
  const struct redis_part parts[] = {part("EXISTS"), part(full)};
  run(user, parts, 2, timeout_ms, &reply, NULL, NULL);
  if (reply.kind != REDIS_INTEGER) return KJIT_REMOTE_FAILED;
  return reply.number ? KJIT_REMOTE_DONE : KJIT_REMOTE_ABSENT;
}

static kjit_remote_answer store_remove(void *user, const char *name, uint32_t timeout_ms) {
  char full[NAME_BYTES];
  struct redis_reply reply;
  make_name(name, full);
  const struct redis_part parts[] = {part("DEL"), part(full)};
  run(user, parts, 2, timeout_ms, &reply, NULL, NULL);
  if (reply.kind != REDIS_INTEGER) return KJIT_REMOTE_FAILED;
  return reply.number ? KJIT_REMOTE_DONE : KJIT_REMOTE_ABSENT;
}

static void store_why(void *user, char *text, size_t bytes) {
  struct redis_store *const store = user;
  const char *const fault = atomic_load(&store->fault);
  snprintf(text, bytes, "%s", fault ? fault : "of an answer that was not expected");
}

/* The password is wiped before its memory is given back. */
static void store_close(void *user) {
  struct redis_store *store = user;
  remote_wire_close_all(&store->pool, store->mem);
  if (store->password) explicit_bzero((char *)store->text + (store->password - store->text), strlen(store->password));
  mem_free(store->mem, store->text);
  mem_free(store->mem, store);
}

/* Cut "[[user:]password@]host[:port][/database]" into its parts, in place. */
static bool parse(struct redis_store *store, char *text) {
  char *const slash = strchr(text, '/');
  if (slash) *slash = '\0';
  if (slash && slash[1]) store->database = slash + 1;
  char *const at = strrchr(text, '@');
  char *host = at ? at + 1 : text;
  if (at) {
    *at = '\0';
    char *const colon = strchr(text, ':');
    if (colon) *colon = '\0';
    if (colon && *text) store->user = text;
    store->password = colon ? colon + 1 : text;
  }
  char *end = host;
  if (*host == '[') {
    end = strchr(++host, ']');
    if (!end) return false;
    *end++ = '\0';
  }
  char *const colon = strchr(end, ':');
  if (colon) *colon = '\0';
  store->host = host;
  store->port = colon && colon[1] ? colon + 1 : DEFAULT_PORT;
  return *host && strlen(host) < 256 && strlen(store->port) <= 5 &&
         (!store->database || strspn(store->database, "0123456789") == strlen(store->database));
}

kjit_status redis_store_open(kjit_remote_store *out, const struct mem *mem, const struct remote_url *url,
                             kjit_error *error) {
  static const char local[] = "redis+unix://";
  struct redis_store *store = mem_alloc(mem, sizeof *store);
  if (!store) return error_no_memory(error);
  const bool is_local = !strncmp(url->address, local, sizeof local - 1);
  store->mem = mem;
  store->connect_ms = (uint32_t)url->connect_ms;
  store->ttl_s = url->ttl_s;
  store->text = mem_strdup(mem, strstr(url->address, "://") + 3);
  if (store->text && is_local) store->host = store->text;
  kjit_status status = KJIT_OK;
  if (!store->text)
    status = error_no_memory(error);
  else if (is_local ? *store->text != '/' : !parse(store, store->text))
    status = error_set(error, KJIT_ERR_INVALID_ARG,
                       "must be redis://[[USER:]PASSWORD@]HOST[:PORT][/NUMBER] or redis+unix:///PATH");
  if (status != KJIT_OK) {
    store_close(store);
    return status;
  }
  out->user = store;
  out->get = store_get;
  out->put = store_put;
  out->exists = store_exists;
  out->remove = store_remove;
  out->why = store_why;
  out->close = store_close;
  return KJIT_OK;
}
