/* Any bytes as a message of a compile worker: what is read as sound is the same when it is written and read again. */
#include <string.h>

#include "base/text.h"
#include "fuzz/require.h"
#include "jit/server/protocol.h"

static void check_request(const struct mem *mem, const uint8_t *data, size_t size) {
  struct wire_request wire, again;
  struct text text;
  text_init(&text, mem, FRAME_MAX_BYTES);
  if (!wire_request_read(&wire, mem, data, size)) {
    input_is_taken();
    wire_request_put(&text, &wire.request, wire.identity, wire.work, wire.memory_bytes);
    require(!text.failed && !wire_request_read(&again, mem, text.data, text.bytes));
    require(again.sources.count == wire.sources.count && again.request.option_count == wire.request.option_count);
    require(again.request.name_count == wire.request.name_count && again.request.part_count == wire.request.part_count);
    require(text.bytes == size && !memcmp(text.data, data, size));
    wire_request_finish(&again, mem);
  }
  wire_request_finish(&wire, mem);
  text_finish(&text);
}

static void check_answer(const struct mem *mem, const uint8_t *data, size_t size) {
  struct compile_result result, again;
  kjit_error error, error_again;
  kjit_status status, status_again;
  struct text text;
  text_init(&text, mem, FRAME_MAX_BYTES);
  if (!wire_answer_read(&status, &result, &error, mem, data, size)) {
    wire_answer_put(&text, status, &result, &error);
    require(!wire_answer_read(&status_again, &again, &error_again, mem, text.data, text.bytes));
    require(status == status_again && result.cubin_bytes == again.cubin_bytes && !strcmp(result.log, again.log));
    require(!result.symbols == !again.symbols && (!result.symbols || !strcmp(result.symbols, again.symbols)));
    compile_result_finish(&again, mem);
  }
  compile_result_finish(&result, mem);
  text_finish(&text);
}

static void check_frame(const uint8_t *data, size_t size) {
  struct frame_head head;
  if (size >= FRAME_HEAD_BYTES && frame_read_head(&head, data)) require(head.bytes <= FRAME_MAX_BYTES);
  if (size >= FRAME_HEAD_BYTES && head.bytes == size - FRAME_HEAD_BYTES)
    (void)frame_is_intact(&head, data + FRAME_HEAD_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct wire_death death;
  struct mem mem;
  mem_init(&mem, NULL);
  check_frame(data, size);
  check_request(&mem, data, size);
  check_answer(&mem, data, size);
  if (!wire_death_read(&death, data, size)) require(strlen(death.said) < size);
  return 0;
}
