/* The protocol of Redis and Valkey (RESP2), as far as GET, SET, EVAL, AUTH and SELECT need it.
 *
 * It is written here rather than taken from hiredis, because a store must be bounded in time and in memory: hiredis
 * limits the time of each read, not of an answer, and keeps a whole answer in memory before its length can be asked
 * for. No state but the wire's; one wire belongs to one thread at a time. */
#include "jit/remote/redis_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool redis_wire_send(struct remote_wire *wire, const struct redis_part *parts, size_t count) {
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
      sent = remote_wire_send(wire, gathered, held);
      held = 0;
    }
    memcpy(gathered + held, head, head_bytes);
    held += head_bytes;
    if (small) {
      memcpy(gathered + held, parts[i].data, parts[i].bytes);
      held += parts[i].bytes;
    } else {
      sent = sent && remote_wire_send(wire, gathered, held) && remote_wire_send(wire, parts[i].data, parts[i].bytes);
      held = 0;
    }
    memcpy(gathered + held, "\r\n", 2);
    held += 2;
  }
  return sent && remote_wire_send(wire, gathered, held);
}

/* Read one line without its CR LF; what is beyond the buffer's size is no answer. */
static bool read_line(struct remote_wire *wire, char *line, size_t capacity) {
  size_t bytes = 0;
  for (;;) {
    char byte;
    if (!remote_wire_receive_byte(wire, &byte)) return false;
    if (byte == '\n') break;
    if (bytes + 1 >= capacity) return false;
    line[bytes++] = byte;
  }
  if (!bytes || line[bytes - 1] != '\r') return false;
  line[bytes - 1] = '\0';
  return true;
}

static bool read_bulk(struct remote_wire *wire, size_t bytes, kjit_remote_write_fn write, void *write_user) {
  char end[2];
  if (!remote_wire_pass(wire, bytes, write, write_user)) return false;
  return remote_wire_receive(wire, end, sizeof end) && end[0] == '\r' && end[1] == '\n';
}

static bool read_integer(const char *text, long long *out) {
  char *end = NULL;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return (*text == '-' || (*text >= '0' && *text <= '9')) && !*end && !errno;
}

void redis_wire_receive(struct remote_wire *wire, struct redis_reply *reply, size_t most, kjit_remote_write_fn write,
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
