/* Frames and packets over the sockets between a library and its compile workers.
 *
 * The sockets are never waited on longer than STOP_EVERY_NS without asking `stop`, so that a caller's deadline holds
 * whatever the other end does. No state is kept: each end of a job uses its channel from one thread. */
#include "jit/server/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How long the other end is waited for before `stop` is asked again. */
#define STOP_EVERY_MS 5

int64_t channel_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Wait until the socket is ready for `events`, or until something ends the wait. */
static enum channel_end wait_for(const struct channel *channel, short events) {
  for (;;) {
    struct pollfd waiting = {.fd = channel->socket, .events = events};
    if (channel->stop && channel->stop(channel->stop_user)) return CHANNEL_STOPPED;
    const bool bounded = channel->until_ns != INT64_MAX;
    if (bounded && channel_now_ns() >= channel->until_ns) return CHANNEL_LATE;
    const int ready = poll(&waiting, 1, channel->stop || bounded ? STOP_EVERY_MS : -1);
    if (ready > 0) return CHANNEL_OK;
    if (ready < 0 && errno != EINTR) return CHANNEL_CLOSED;
  }
}

static bool would_block(void) {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* MSG_NOSIGNAL, because a peer that has died is an answer here and no reason for SIGPIPE to end the user's program. */
enum channel_end channel_write(const struct channel *channel, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t sent = send(channel->socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += (size_t)sent;
      continue;
    }
    if (sent < 0 && !would_block()) return CHANNEL_CLOSED;
    const enum channel_end end = wait_for(channel, POLLOUT);
    if (end != CHANNEL_OK) return end;
  }
  return CHANNEL_OK;
}

/* The socket is tried before it is waited for, since what was asked for has often arrived, and a try costs one call. */
static enum channel_end read_all(const struct channel *channel, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = recv(channel->socket, (char *)data + done, bytes - done, MSG_DONTWAIT);
    if (got > 0) {
      done += (size_t)got;
      continue;
    }
    if (got == 0 || !would_block()) return CHANNEL_CLOSED;
    const enum channel_end end = wait_for(channel, POLLIN);
    if (end != CHANNEL_OK) return end;
  }
  return CHANNEL_OK;
}

/* The payload gets a byte more, so that one that ends in a string can be printed; its size is checked against
 * FRAME_MAX_BYTES by frame_read_head() before anything is allocated. */
enum channel_end channel_read(const struct channel *channel, struct frame_head *head, void **payload) {
  uint8_t bytes[FRAME_HEAD_BYTES];
  *payload = NULL;
  enum channel_end end = read_all(channel, bytes, sizeof bytes);
  if (end != CHANNEL_OK) return end;
  if (!frame_read_head(head, bytes)) return CHANNEL_DAMAGED;
  char *data = mem_alloc(channel->mem, head->bytes + 1);
  if (!data) return CHANNEL_NO_MEMORY;
  end = read_all(channel, data, head->bytes);
  if (end == CHANNEL_OK && !frame_is_intact(head, data)) end = CHANNEL_DAMAGED;
  if (end == CHANNEL_OK)
    *payload = data;
  else
    mem_free(channel->mem, data);
  return end;
}

bool channel_has_news(const struct channel *channel) {
  struct pollfd now = {.fd = channel->socket, .events = POLLIN};
  return poll(&now, 1, 0) > 0;
}

/* The kernel writes a cmsghdr into the buffer, which has to be aligned as one. */
union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(PACKET_SOCKETS_MAX * sizeof(int))];
};

/* The sockets of a job travel with its number. A full queue is told from a closed socket, because the first passes. */
enum channel_end packet_send(int socket, uint32_t number, const int *sockets, size_t count) {
  union control control = {0};
  struct iovec data = {&number, sizeof number};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(count * sizeof *sockets);
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(count * sizeof *sockets);
  memcpy(CMSG_DATA(head), sockets, count * sizeof *sockets);
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == (ssize_t)sizeof number) return CHANNEL_OK;
  return sent < 0 && would_block() ? CHANNEL_LATE : CHANNEL_CLOSED;
}

/* Sockets that came with a packet of the wrong shape are closed here: once received they are this process's, and nobody
 * else would close them. */
int packet_receive(int socket, uint32_t *number, int sockets[PACKET_SOCKETS_MAX]) {
  union control control = {0};
  struct iovec data = {number, sizeof *number};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return -1;
  const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  memcpy(sockets, CMSG_DATA(head), count * sizeof(int));
  if (got == (ssize_t)sizeof *number && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return (int)count;
  for (size_t i = 0; i < count; i++)
    (void)close(sockets[i]);
  return -1;
}
