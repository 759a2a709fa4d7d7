/* Any text as the main file of a kernel: what is written with its preamble in front holds the rest of the file to the
 * letter, and the preamble is nothing but directives. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fuzz/require.h"
#include "jit/compile/preamble.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct mem mem;
  struct text whole, alone;
  mem_init(&mem, NULL);
  char *text = mem_duplicate(&mem, data, size);
  if (!text) abort();
  struct source_file file = {.name = "k.cu", .text = text, .bytes = strlen(text)};
  const struct source_set set = {.files = &file, .count = 1};
  const struct jit_request request = {.prologue = "#define A 1\n#line 1 \"k.cu\"\n", .sources = &set};
  text_init(&whole, &mem, (size_t)1 << 24);
  text_init(&alone, &mem, (size_t)1 << 24);
  if (preamble_write(&request, 0, &whole)) {
    input_is_taken();
    require(preamble_write(&request, 1, &alone));
    require(whole.bytes > alone.bytes && !memcmp(whole.data, alone.data, alone.bytes));
    const char *rest = strchr(whole.data + alone.bytes, '\n');
    require(rest != NULL);
    const size_t rest_bytes = strlen(rest + 1);
    require(rest_bytes <= file.bytes && !strcmp(rest + 1, text + file.bytes - rest_bytes));
    for (const char *line = alone.data; *line; line += strcspn(line, "\n") + 1)
      require(*line == '#');
  }
  (void)preamble_take_note(text);
  text_finish(&whole);
  text_finish(&alone);
  mem_free(&mem, text);
  return 0;
}
