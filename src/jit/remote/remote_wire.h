/* One connection to a server: bytes sent and received, each step until a deadline. Redis's protocol (redis_wire.h) and
 * that of ccache's storage helpers (helper_wire.h) are spoken over it. One wire belongs to one thread at a time. */
#ifndef KJIT_JIT_REMOTE_REMOTE_WIRE_H
#define KJIT_JIT_REMOTE_REMOTE_WIRE_H

#include <stdbool.h>

#include <kjit/remote.h>

#include "base/mem.h"
#include "jit/remote/remote_pool.h"

struct remote_wire {
  int socket;          /* -1: closed */
  int64_t deadline_ns; /* of the call under way, by remote_clock_ns() */
  size_t begin, end;   /* what of `buffer` was received and not yet read */
  char buffer[16384];
};

/* Connect to a host and port, or with `port` NULL to a socket's path. False when it failed or took too long. */
bool remote_wire_open(struct remote_wire *wire, const char *host, const char *port, int64_t deadline_ns);
void remote_wire_close(struct remote_wire *wire); /* accepts a closed one */

/* Send all of it. False when that failed or took too long. */
bool remote_wire_send(struct remote_wire *wire, const void *data, size_t bytes);

/* Receive exactly so many bytes, or one; false at the end, or when the time is over. */
bool remote_wire_receive(struct remote_wire *wire, void *data, size_t bytes);
bool remote_wire_receive_byte(struct remote_wire *wire, char *byte);

/* Receive so many bytes and give them to `write`; NULL forgets them. False also when `write` ends the transfer. */
bool remote_wire_pass(struct remote_wire *wire, size_t bytes, kjit_remote_write_fn write, void *user);

/* An idle connection of the pool that the server has not ended, or NULL. One that has something to say unasked is
 * closed, because what it says would be taken for the next answer. */
struct remote_wire *remote_wire_take(struct remote_pool *pool, const struct mem *mem);

/* Keep a connection for the next call, or close it and free its memory when it is `broken` or there is no room. */
void remote_wire_put_back(struct remote_pool *pool, const struct mem *mem, struct remote_wire *wire, bool broken);

/* Close what the pool holds. */
void remote_wire_close_all(struct remote_pool *pool, const struct mem *mem);

#endif
