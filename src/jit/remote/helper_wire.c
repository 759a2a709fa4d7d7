/* Messages of ccache's storage helpers (helper_wire.h). Integers are in the machine's own order, since both ends are on
 * one machine.
 *
 *   greeting: version (1 byte), number of capabilities (1 byte), capabilities (1 byte each)
 *   request:  what (1 byte), length of the key (1 byte), key; of a put: flags (1 byte), length (8 bytes), value
 *   answer:   0 and, of a get, length (8 bytes) and value; 1; or 2, length of a message (1 byte), message
 *
 * No state but the wire's; one wire belongs to one thread at a time. */
#include "jit/remote/helper_wire.h"

#include <string.h>

#define VERSION            1
#define CAPABILITY_OBJECTS 0 /* get, put and remove */
#define FLAG_OVERWRITE     1

bool helper_wire_greet(struct remote_wire *wire) {
  unsigned char head[2], capabilities[255];
  if (!remote_wire_receive(wire, head, sizeof head) || head[0] != VERSION) return false;
  return remote_wire_receive(wire, capabilities, head[1]) && memchr(capabilities, CAPABILITY_OBJECTS, head[1]) != NULL;
}

bool helper_wire_send(struct remote_wire *wire, enum helper_request request, const struct digest *key, const void *data,
                      size_t bytes, bool overwrite) {
  /* What is small goes out in one piece. */
  unsigned char head[2 + DIGEST_BYTES + 1 + sizeof(uint64_t)] = {(unsigned char)request, DIGEST_BYTES};
  const uint64_t length = bytes;
  size_t head_bytes = 2 + DIGEST_BYTES;
  memcpy(head + 2, key->bytes, DIGEST_BYTES);
  if (request == HELPER_PUT) {
    head[head_bytes++] = overwrite ? FLAG_OVERWRITE : 0;
    memcpy(head + head_bytes, &length, sizeof length);
    head_bytes += sizeof length;
  }
  return remote_wire_send(wire, head, head_bytes) && (request != HELPER_PUT || remote_wire_send(wire, data, bytes));
}

/* Read a message of an error and forget it, so that the next answer is where it is expected. */
static enum helper_answer receive_error(struct remote_wire *wire) {
  unsigned char length;
  const bool whole = remote_wire_receive(wire, &length, 1) && remote_wire_pass(wire, length, NULL, NULL);
  return whole ? HELPER_ERROR : HELPER_BROKEN;
}

static enum helper_answer receive_value(struct remote_wire *wire, size_t most, kjit_remote_write_fn write, void *user) {
  uint64_t length;
  if (!remote_wire_receive(wire, &length, sizeof length) || length > most) return HELPER_BROKEN;
  return remote_wire_pass(wire, (size_t)length, write, user) ? HELPER_OK : HELPER_BROKEN;
}

enum helper_answer helper_wire_receive(struct remote_wire *wire, enum helper_request request, size_t most,
                                       kjit_remote_write_fn write, void *user) {
  unsigned char answer;
  if (!remote_wire_receive(wire, &answer, 1)) return HELPER_BROKEN;
  switch (answer) {
  case 0:
    return request == HELPER_GET ? receive_value(wire, most, write, user) : HELPER_OK;
  case 1:
    return HELPER_NOOP;
  case 2:
    return receive_error(wire);
  default:
    return HELPER_BROKEN;
  }
}
