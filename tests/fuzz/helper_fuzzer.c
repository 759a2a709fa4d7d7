/* Any bytes as what a storage helper of ccache's says: a greeting, then answers to gets and puts in turn. Each is read
 * whole, or the connection is given up. */
#include "jit/remote/helper_wire.h"
#include "wire_input.h"

#define MOST_BYTES 4096 /* of one value */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct remote_wire wire;
  if (size > WIRE_INPUT_MAX) return 0;
  wire_input_open(&wire, data, size);
  enum helper_answer answer = helper_wire_greet(&wire) ? HELPER_OK : HELPER_BROKEN;
  if (answer == HELPER_OK) require(size >= 3 && data[0] == 1 && size >= 2 + (size_t)data[1]);
  for (size_t asked = 0; answer != HELPER_BROKEN; asked++) {
    struct wire_taken taken = {.most = MOST_BYTES / 2};
    const enum helper_request request = asked % 2 ? HELPER_PUT : HELPER_GET;
    answer = helper_wire_receive(&wire, request, MOST_BYTES, wire_take, &taken);
    require(asked <= size && taken.bytes <= MOST_BYTES);
    if (answer == HELPER_OK) require(taken.bytes <= taken.most);
    if (answer == HELPER_OK && taken.bytes) input_is_taken();
    if (request != HELPER_GET || answer == HELPER_NOOP || answer == HELPER_ERROR) require(!taken.bytes);
  }
  remote_wire_close(&wire);
  return 0;
}
