/* The protocol of Redis and Valkey (RESP2), as far as GET, SET, EVAL, AUTH and SELECT need it.
 *
 * It is written here rather than taken from hiredis, because a store must be bounded in time and in memory: hiredis
 * limits the time of each read, not of an answer, and keeps a whole answer in memory before its length can be asked
 * for. Sockets do not block; each wait is for what is left until the deadline. One wire belongs to one thread at a
 * time. */
#include "jit/remote/redis_wire.h"

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
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

void redis_wire_limit(struct redis_wire *wire, uint32_t timeout_ms) {
  wire->deadline_ns = now_ns() + timeout_ms * (int64_t)1000000;
}

/* Wait until the socket can be read or written. False when the time is over. */
static bool wait_for(const struct redis_wire *wire, short events) {
  for (;;) {
    const int64_t left_ms = (wire->deadline_ns - now_ns() + 999999) / 1000000;
    if (left_ms <= 0) return false;
    struct pollfd one = {.fd = wire->socket, .events = events};
    const int ready = poll(&one, 1, left_ms < 1000000 ? (int)left_ms : 1000000);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

static bool connect_to(struct redis_wire *wire, const struct sockaddr *address, socklen_t bytes) {
  int failed = 0;
  socklen_t size = sizeof failed;
  wire->socket = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (wire->socket < 0) return false;
  const int done = connect(wire->socket, address, bytes);
  bool connected = done == 0;
  if (done < 0 && errno == EINPROGRESS && wait_for(wire, POLLOUT))
    connected = getsockopt(wire->socket, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && !failed;
  if (!connected) redis_wire_close(wire);
  return connected;
}

/* Look a name up, which has no time limit of its own, in a thread of the C library. When the time is over the request
 * is left to that thread, with its memory, because it cannot be taken back. */
static struct addrinfo *look_up(const struct redis_wire *wire, const char *host, const char *port) {
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
    const int64_t left_ns = wire->deadline_ns - now_ns();
    const struct timespec wait = {.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    const struct gaicb *const waited[1] = {&request->gai};
    while (left_ns > 0 && gai_suspend(waited, 1, &wait) == EAI_INTR)
      ;
    const int state = gai_error(&request->gai);
    if (state == EAI_INPROGRESS && gai_cancel(&request->gai) != EAI_CANCELED) return NULL;
    if (state == 0) found = request->gai.ar_result;
  }
  free(request);
  return found;
}

static bool open_network(struct redis_wire *wire, const char *host, const char *port) {
  struct addrinfo numeric = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
  const int on = 1;
  if (getaddrinfo(host, port, &numeric, &found) != 0) found = look_up(wire, host, port);
  for (const struct addrinfo *at = found; at && wire->socket < 0; at = at->ai_next)
    if (connect_to(wire, at->ai_addr, at->ai_addrlen))
      (void)setsockopt(wire->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (found) freeaddrinfo(found);
  return wire->socket >= 0;
}

bool redis_wire_open(struct redis_wire *wire, const char *host, const char *port, uint32_t timeout_ms) {
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  wire->socket = -1;
  wire->begin = wire->end = 0;
  redis_wire_limit(wire, timeout_ms);
  if (port) return open_network(wire, host, port);
  if (strlen(host) >= sizeof local.sun_path) return false;
  memcpy(local.sun_path, host, strlen(host) + 1);
  return connect_to(wire, (const struct sockaddr *)&local, sizeof local);
}

void redis_wire_close(struct redis_wire *wire) {
  if (wire->socket >= 0) (void)close(wire->socket);
  wire->socket = -1;
}

bool redis_wire_is_stale(const struct redis_wire *wire) {
  struct pollfd one = {.fd = wire->socket, .events = POLLIN};
  return wire->begin != wire->end || poll(&one, 1, 0) != 0;
}

static bool send_all(const struct redis_wire *wire, const void *data, size_t bytes) {
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

bool redis_wire_send(struct redis_wire *wire, const struct redis_part *parts, size_t count) {
  char head[32];
  bool sent = true;
  /* What is small goes out in one piece, since a server answers a whole command only. */
  char gathered[1024];
  size_t held = (size_t)snprintf(gathered, sizeof gathered, "*%zu\r\n", count);
  for (size_t i = 0; i < count && sent; i++) {
    const size_t head_bytes = (size_t)snprintf(head, sizeof head, "$%zu\r\n", parts[i].bytes);
    const size_t needed = head_bytes + parts[i].bytes + 2;
    const bool small = parts[i].bytes <= sizeof gathered / 2;
    if (!small || held + needed > sizeof gathered) {
      sent = send_all(wire, gathered, held);
      held = 0;
    }
    memcpy(gathered + held, head, head_bytes);
    held += head_bytes;
    if (small) {
      memcpy(gathered + held, parts[i].data, parts[i].bytes);
      held += parts[i].bytes;
    } else {
      sent = sent && send_all(wire, gathered, held) && send_all(wire, parts[i].data, parts[i].bytes);
      held = 0;
    }
    memcpy(gathered + held, "\r\n", 2);
    held += 2;
  }
  return sent && send_all(wire, gathered, held);
}

/* Receive more into the empty buffer. False at the end, or when the time is over. */
static bool fill(struct redis_wire *wire) {
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

/* Read one line without its CR LF; what is beyond the buffer's size is no answer. */
static bool read_line(struct redis_wire *wire, char *line, size_t capacity) {
  size_t bytes = 0;
  for (;;) {
    if (wire->begin == wire->end && !fill(wire)) return false;
    const char byte = wire->buffer[wire->begin++];
    if (byte == '\n') break;
    if (bytes + 1 >= capacity) return false;
    line[bytes++] = byte;
  }
  if (!bytes || line[bytes - 1] != '\r') return false;
  line[bytes - 1] = '\0';
  return true;
}

static bool read_bulk(struct redis_wire *wire, size_t bytes, kjit_remote_write_fn write, void *write_user) {
  char end[2];
  size_t seen = 0;
  for (size_t left = bytes; left;) {
    if (wire->begin == wire->end && !fill(wire)) return false;
    const size_t here = wire->end - wire->begin, taken = here < left ? here : left;
    if (write && write(write_user, wire->buffer + wire->begin, taken)) return false;
    wire->begin += taken;
    left -= taken;
  }
  while (seen < sizeof end) {
    if (wire->begin == wire->end && !fill(wire)) return false;
    end[seen++] = wire->buffer[wire->begin++];
  }
  return end[0] == '\r' && end[1] == '\n';
}

static bool read_integer(const char *text, long long *out) {
  char *end = NULL;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return (*text == '-' || (*text >= '0' && *text <= '9')) && !*end && !errno;
}

void redis_wire_receive(struct redis_wire *wire, struct redis_reply *reply, size_t most, kjit_remote_write_fn write,
                        void *write_user) {
  char line[512] = {0}; /* of an empty line the byte behind its end is read too */
  *reply = (struct redis_reply){.kind = REDIS_BROKEN};
  if (!read_line(wire, line, sizeof line)) return;
  const bool counts = read_integer(line + 1, &reply->number);
  switch (line[0]) {
  case '+':
  case '-':
    reply->kind = line[0] == '+' ? REDIS_STATUS : REDIS_ERROR;
    snprintf(reply->line, sizeof reply->line, "%.*s", (int)sizeof reply->line - 1, line + 1);
    break;
  case ':':
    if (counts) reply->kind = REDIS_INTEGER;
    break;
  case '$':
    if (counts && reply->number == -1) reply->kind = REDIS_NIL;
    if (!counts || reply->number < 0 || (unsigned long long)reply->number > most) break;
    if (read_bulk(wire, (size_t)reply->number, write, write_user)) reply->kind = REDIS_BULK;
    break;
  default:
    break;
  }
}
