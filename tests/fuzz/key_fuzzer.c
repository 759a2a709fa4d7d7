/* Any bytes as a key text: a sound one is exactly its fields written out again; what is taken apart for comparing
 * differs from itself in nothing. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fuzz/require.h"
#include "jit/key/key_items.h"
#include "jit/key/key_reader.h"

static void check_fields(const struct mem *mem, const char *text, size_t bytes) {
  struct key_reader reader;
  struct key_field field;
  struct text again;
  text_init(&again, mem, bytes + 1);
  text_append(&again, KEY_HEAD);
  key_reader_init(&reader, text, bytes);
  while (key_reader_next(&reader, &field)) {
    text_append_bytes(&again, field.tag, field.tag_bytes);
    text_appendf(&again, " %zu:", field.value_bytes);
    text_append_bytes(&again, field.value, field.value_bytes);
    text_append(&again, "\n");
  }
  input_is_taken();
  require(reader.sound && !again.failed);
  require(again.bytes == bytes && !memcmp(again.data, text, bytes));
  text_finish(&again);
  require(key_request_part(text, bytes) < bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  struct key_items items;
  struct mem mem;
  mem_init(&mem, NULL);
  if (key_is_sound(text, size)) check_fields(&mem, text, size);
  if (key_items_make(&items, &mem, text, size) == KJIT_OK) require(key_items_compare(&items, &items, NULL, NULL) == 0);
  key_items_finish(&items, &mem);
  return 0;
}
