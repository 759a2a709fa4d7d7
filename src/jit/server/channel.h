/* One end of a stream socket between a library and a compile worker: whole frames in and out, never past the moment
 * at which its user wants to stop. Raises no SIGPIPE. */
#ifndef KJIT_JIT_SERVER_CHANNEL_H
#define KJIT_JIT_SERVER_CHANNEL_H

#include <stdbool.h>

#include "jit/server/protocol.h"

struct channel {
  const struct mem *mem;
  int socket;
  compile_stop stop; /* asked every few milliseconds; NULL: never */
  void *stop_user;
  int64_t until_ns; /* monotonic time after which the other end counts as dead; INT64_MAX: never */
};

enum channel_end {
  CHANNEL_OK,
  CHANNEL_STOPPED, /* `stop` returned true */
  CHANNEL_LATE,    /* `until_ns` passed */
  CHANNEL_CLOSED,  /* the other end is gone, or the system refused the call */
  CHANNEL_DAMAGED, /* what came is no frame of this protocol */
  CHANNEL_NO_MEMORY
};

int64_t channel_now_ns(void); /* monotonic */

/* Write all bytes. */
enum channel_end channel_write(const struct channel *channel, const void *data, size_t bytes);

/* Read one frame. Its payload, with a NUL behind it, is the caller's (mem_free). */
enum channel_end channel_read(const struct channel *channel, struct frame_head *head, void **payload);

/* True when there is something to read, or the other end is closed. Does not wait. */
bool channel_has_news(const struct channel *channel);

/* A packet of one number with up to two open sockets beside it, over a SOCK_SEQPACKET socket. */
#define PACKET_SOCKETS_MAX 2

/* Send a packet without waiting. CHANNEL_LATE when the other end's queue is full: try again. */
enum channel_end packet_send(int socket, uint32_t number, const int *sockets, size_t count);

/* Receive a packet. Returns how many sockets came with it (they are close-on-exec), or -1 when the other end is gone or
 * sent something else. */
int packet_receive(int socket, uint32_t *number, int sockets[PACKET_SOCKETS_MAX]);

#endif
