/* A wire whose other end has sent the fuzzer's input and then ended. */
#ifndef KJIT_TESTS_FUZZ_WIRE_INPUT_H
#define KJIT_TESTS_FUZZ_WIRE_INPUT_H

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/require.h"
#include "jit/remote/remote_clock.h"
#include "jit/remote/remote_wire.h"

/* What a socket pair holds without a reader. */
#define WIRE_INPUT_MAX 65536

static inline void wire_input_open(struct remote_wire *wire, const uint8_t *data, size_t size) {
  int ends[2];
  require(size <= WIRE_INPUT_MAX && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
  require(send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size);
  (void)close(ends[1]);
  wire->socket = ends[0];
  wire->begin = wire->end = 0;
  wire->deadline_ns = remote_deadline_ns(60000);
}

/* What a transfer has handed over; it is ended when that is more than `most`. */
struct wire_taken {
  size_t bytes, most;
};

static inline int wire_take(void *user, const void *data, size_t bytes) {
  struct wire_taken *const taken = user;
  volatile uint8_t seen = 0;
  require(bytes > 0);
  for (size_t i = 0; i < bytes; i++)
    seen = ((const uint8_t *)data)[i]; /* a sanitizer sees what is not ours */
  (void)seen;
  taken->bytes += bytes;
  return taken->bytes > taken->most;
}

#endif
