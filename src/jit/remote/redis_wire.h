/* One connection to a Redis or Valkey server: commands and answers, each within a time limit in all. */
#ifndef KJIT_JIT_REMOTE_REDIS_WIRE_H
#define KJIT_JIT_REMOTE_REDIS_WIRE_H

#include <stdbool.h>

#include <kjit/remote.h>

struct redis_wire {
  int socket;          /* -1: closed */
  int64_t deadline_ns; /* of the command under way, by CLOCK_MONOTONIC */
  size_t begin, end;   /* what of `buffer` was received and not yet read */
  char buffer[16384];
};

struct redis_part {
  const void *data;
  size_t bytes;
};

/* What a server answered. */
enum redis_kind { REDIS_STATUS, REDIS_ERROR, REDIS_INTEGER, REDIS_BULK, REDIS_NIL, REDIS_BROKEN };

struct redis_reply {
  enum redis_kind kind;
  long long number; /* of an integer */
  char line[128];   /* of a status or an error; cut */
};

/* Connect to a host and port, or with `port` NULL to a socket's path. False when it failed or took too long. */
bool redis_wire_open(struct redis_wire *wire, const char *host, const char *port, uint32_t timeout_ms);
void redis_wire_close(struct redis_wire *wire); /* accepts a closed one */

/* Has an idle connection ended, or something to say unasked? It cannot be used then. */
bool redis_wire_is_stale(const struct redis_wire *wire);

/* Begin a command's time. */
void redis_wire_limit(struct redis_wire *wire, uint32_t timeout_ms);

/* Send a command. False when it could not be sent. */
bool redis_wire_send(struct redis_wire *wire, const struct redis_part *parts, size_t count);

/* Receive the answer. The bytes of a bulk go to `write`; NULL forgets them. What is no answer, is longer than `most`,
 * or comes too late is REDIS_BROKEN: the connection cannot be used again. */
void redis_wire_receive(struct redis_wire *wire, struct redis_reply *reply, size_t most, kjit_remote_write_fn write,
                        void *write_user);

#endif
