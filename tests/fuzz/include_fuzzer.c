/* Any bytes as a source with headers in memory: "=name" at a line's start begins a header. Whatever it says, the walk
 * ends, every file that it gives has a name of its own and as many lines as before, and its record reads back. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "jit/source/include_closure.h"

#define HEADERS_MAX 8

static size_t count_lines(const char *text, size_t bytes) {
  size_t lines = 0;
  for (size_t i = 0; i < bytes; i++)
    lines += text[i] == '\n';
  return lines;
}

/* Cut the text at its header lines; returns how many there are. A name that comes again begins no header. */
static size_t cut(char *text, kjit_source *headers, kjit_source *source) {
  size_t count = 0;
  *source = (kjit_source){"main.cu", text, strlen(text)};
  for (char *at = text, *end; at && count < HEADERS_MAX; at = end ? end + 1 : NULL) {
    end = strchr(at, '\n');
    bool usable = *at == '=' && end && end > at + 1 && at[1] != '/' && !memchr(at, '"', (size_t)(end - at));
    for (size_t i = 0; i < count && usable; i++)
      usable = strncmp(headers[i].name, at + 1, (size_t)(end - at - 1)) != 0;
    if (!usable) continue;
    kjit_source *before = count ? &headers[count - 1] : source;
    *end = '\0';
    before->bytes = (size_t)(at - before->text);
    *at = '\0';
    headers[count++] = (kjit_source){at + 1, end + 1, strlen(end + 1)};
  }
  return count;
}

static void check(const struct mem *mem, const struct include_search *search, const kjit_source *source,
                  bool everything) {
  static const struct target target = {.name = "sm_90a", .capability = 90, .suffix = 'a'};
  const struct include_terms terms = {.prologue = "#define A 1\n", .target = &target, .everything = everything};
  struct include_closure closure;
  struct source_set set;
  struct source_file *files = NULL;
  kjit_error error = {0};
  kjit_status status = include_closure_collect(&closure, mem, search, &terms, source, &error);
  if (status == KJIT_OK) {
    input_is_taken();
    require(include_closure_seal(&closure, &set, &files, &error) == KJIT_OK);
    require(count_lines(files[0].text, files[0].bytes) == count_lines(source->text, source->bytes));
    for (size_t i = 2; i < set.count; i++)
      require(strcmp(files[i - 1].name, files[i].name) < 0);
    for (size_t i = 0; i < set.count; i++)
      require(strlen(files[i].text) == files[i].bytes);
  } else {
    require(error.status == (int32_t)status && error.message[0]);
  }
  mem_free(mem, files);
  include_closure_finish(&closure);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct mem mem;
  kjit_source headers[HEADERS_MAX], source;
  require(mem_init(&mem, NULL));
  if (size > 1 << 16 || memchr(data, '\0', size)) return 0;
  char *text = mem_duplicate(&mem, data, size);
  require(text != NULL);
  const size_t count = cut(text, headers, &source);
  const struct include_search search = {.headers = headers, .header_count = count};
  check(&mem, &search, &source, 0);
  check(&mem, &search, &source, 1);
  mem_free(&mem, text);
  return 0;
}
