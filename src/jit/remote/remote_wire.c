/* Connections within time limits (remote_wire.h).
 *
 * Sockets do not block; each wait is for what is left until the deadline, which is that of the whole call. So a server
 * that sends a byte now and then costs no more than one that sends none. */
#include "jit/remote/remote_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "jit/remote/remote_clock.h"

/* Wait until the socket can be read or written. False when the time is over. */
static bool wait_for(const struct remote_wire *wire, short events) {
  for (;;) {
    const uint32_t left_ms = remote_left_ms(wire->deadline_ns);
    if (!left_ms) return false;
    struct pollfd one = {.fd = wire->socket, .events = events};
    const int ready = poll(&one, 1, left_ms < 1000000 ? (int)left_ms : 1000000);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

static bool connect_to(struct remote_wire *wire, const struct sockaddr *address, socklen_t bytes) {
  int failed = 0;
  socklen_t size = sizeof failed;
  wire->socket = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (wire->socket < 0) return false;
  const int done = connect(wire->socket, address, bytes);
  bool connected = done == 0;
  if (done < 0 && errno == EINPROGRESS && wait_for(wire, POLLOUT))
    connected = getsockopt(wire->socket, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && !failed;
  if (!connected) remote_wire_close(wire);
  return connected;
}

/* Look a name up, which has no time limit of its own, in a thread of the C library. When the time is over the request
 * is left to that thread, with its memory, because it cannot be taken back. */
static struct addrinfo *look_up(const struct remote_wire *wire, const char *host, const char *port) {
  static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct request {
    struct gaicb gai;
    char host[256], port[16];
  } *request = calloc(1, sizeof *request);
  if (!request) return NULL;
  snprintf(request->host, sizeof request->host, "%s", host);
  snprintf(request->port, sizeof request->port, "%s", port);
  request->gai = (struct gaicb){.ar_name = request->host, .ar_service = request->port, .ar_request = &hints};
  struct gaicb *list[1] = {&request->gai};
  struct addrinfo *found = NULL;
  if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) == 0) {
    const struct gaicb *const waited[1] = {&request->gai};
    for (uint32_t left_ms; (left_ms = remote_left_ms(wire->deadline_ns));) {
      const struct timespec wait = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000L};
      if (gai_suspend(waited, 1, &wait) != EAI_INTR) break;
    }
    const int state = gai_error(&request->gai);
    if (state == EAI_INPROGRESS && gai_cancel(&request->gai) != EAI_CANCELED) return NULL;
    if (state == 0) found = request->gai.ar_result;
  }
  free(request);
  return found;
}

static bool open_network(struct remote_wire *wire, const char *host, const char *port) {
  struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
  const int on = 1;
  if (getaddrinfo(host, port, &numeric, &found) != 0) found = look_up(wire, host, port);
  for (const struct addrinfo *at = found; at && wire->socket < 0; at = at->ai_next)
    if (connect_to(wire, at->ai_addr, at->ai_addrlen))
      (void)setsockopt(wire->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (found) freeaddrinfo(found);
  return wire->socket >= 0;
}

bool remote_wire_open(struct remote_wire *wire, const char *host, const char *port, int64_t deadline_ns) {
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  wire->socket = -1;
  wire->begin = wire->end = 0;
  wire->deadline_ns = deadline_ns;
  if (port) return open_network(wire, host, port);
  if (strlen(host) >= sizeof local.sun_path) return false;
  memcpy(local.sun_path, host, strlen(host) + 1);
  return connect_to(wire, (const struct sockaddr *)&local, sizeof local);
}

void remote_wire_close(struct remote_wire *wire) {
  if (wire->socket >= 0) (void)close(wire->socket);
  wire->socket = -1;
}

bool remote_wire_send(struct remote_wire *wire, const void *data, size_t bytes) {
  const char *at = data;
  while (bytes) {
    const ssize_t sent = send(wire->socket, at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= (size_t)sent;
    } else if ((sent < 0 && errno != EAGAIN && errno != EINTR) || !wait_for(wire, POLLOUT)) {
      return false;
    }
  }
  return true;
}

/* Receive more into the empty buffer. False at the end, or when the time is over. */
static bool fill(struct remote_wire *wire) {
  for (;;) {
    if (!wait_for(wire, POLLIN)) return false;
    const ssize_t got = recv(wire->socket, wire->buffer, sizeof wire->buffer, 0);
    if (got > 0) {
      wire->begin = 0;
      wire->end = (size_t)got;
      return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
  }
}

bool remote_wire_receive_byte(struct remote_wire *wire, char *byte) {
  if (wire->begin == wire->end && !fill(wire)) return false;
  *byte = wire->buffer[wire->begin++];
  return true;
}

bool remote_wire_pass(struct remote_wire *wire, size_t bytes, kjit_remote_write_fn write, void *user) {
  for (size_t left = bytes; left;) {
    if (wire->begin == wire->end && !fill(wire)) return false;
    const size_t here = wire->end - wire->begin, taken = here < left ? here : left;
    if (write && write(user, wire->buffer + wire->begin, taken)) return false;
    wire->begin += taken;
    left -= taken;
  }
  return true;
}

static int copy_out(void *user, const void *data, size_t bytes) {
  char **const at = user;
  memcpy(*at, data, bytes);
  *at += bytes;
  return 0;
}

bool remote_wire_receive(struct remote_wire *wire, void *data, size_t bytes) {
  char *at = data;
  return remote_wire_pass(wire, bytes, copy_out, &at);
}

/* Has an idle connection ended, or something to say unasked? */
static bool is_stale(const struct remote_wire *wire) {
  struct pollfd one = {.fd = wire->socket, .events = POLLIN};
  return wire->begin != wire->end || poll(&one, 1, 0) != 0;
}

struct remote_wire *remote_wire_take(struct remote_pool *pool, const struct mem *mem) {
  struct remote_wire *wire = remote_pool_take(pool);
  if (!wire || !is_stale(wire)) return wire;
  remote_wire_put_back(pool, mem, wire, true);
  return NULL;
}

void remote_wire_put_back(struct remote_pool *pool, const struct mem *mem, struct remote_wire *wire, bool broken) {
  if (!broken) wire = remote_pool_give(pool, wire);
  if (!wire) return;
  remote_wire_close(wire);
  mem_free(mem, wire);
}

void remote_wire_close_all(struct remote_pool *pool, const struct mem *mem) {
  for (struct remote_wire *wire; (wire = remote_pool_take(pool));)
    remote_wire_put_back(pool, mem, wire, true);
}
