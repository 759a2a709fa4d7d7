/* Redis's protocol over a wire: commands and answers. */
#ifndef KJIT_JIT_REMOTE_REDIS_WIRE_H
#define KJIT_JIT_REMOTE_REDIS_WIRE_H

#include "jit/remote/remote_wire.h"

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

/* Send a command. False when it could not be sent. */
bool redis_wire_send(struct remote_wire *wire, const struct redis_part *parts, size_t count);

/* Receive the answer. The bytes of a bulk go to `write`; NULL forgets them. What is no answer, is longer than `most`,
 * or comes too late is REDIS_BROKEN: the connection cannot be used again. */
void redis_wire_receive(struct remote_wire *wire, struct redis_reply *reply, size_t most, kjit_remote_write_fn write,
                        void *write_user);

#endif
