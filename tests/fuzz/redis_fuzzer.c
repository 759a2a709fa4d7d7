/* Any bytes as the answers of a Redis server: each is read whole, or the connection is given up. */
#include <string.h>

#include "jit/remote/redis_wire.h"
#include "wire_input.h"

#define MOST_BYTES 4096 /* of one answer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct remote_wire wire;
  struct redis_reply reply;
  if (size > WIRE_INPUT_MAX) return 0;
  wire_input_open(&wire, data, size);
  size_t read = 0;
  do {
    struct wire_taken taken = {.most = MOST_BYTES / 2};
    redis_wire_receive(&wire, &reply, MOST_BYTES, wire_take, &taken);
    require(taken.bytes <= MOST_BYTES && strnlen(reply.line, sizeof reply.line) < sizeof reply.line);
    if (reply.kind == REDIS_BULK)
      require(reply.number >= 0 && taken.bytes == (size_t)reply.number && taken.bytes <= taken.most);
    else if (reply.kind != REDIS_BROKEN)
      require(!taken.bytes);
    if (reply.kind == REDIS_BULK) input_is_taken();
    read++;
  } while (reply.kind != REDIS_BROKEN);
  require(read <= size / 3 + 1); /* the shortest answer has three bytes */
  remote_wire_close(&wire);
  return 0;
}
