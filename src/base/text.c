/* Text that grows while it is appended to.
 *
 * Failure is sticky: after an append that found no memory or passed the limit, every further append does nothing and
 * text_take() gives NULL. So a caller appends freely and tests once at the end. A text over a fixed buffer never
 * allocates, because its limit is below the buffer's size.
 *
 * The room doubles each time, so appending is linear in the length of the text. A text belongs to one thread. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The first allocation, because most texts of the library are a path or a few lines. */
#define FIRST_CAPACITY 128

void text_init(struct text *text, const struct mem *mem, size_t limit) {
  *text = (struct text){.mem = mem, .limit = limit};
}

void text_init_fixed(struct text *text, char *buffer, size_t capacity) {
  /* The limit leaves room for the NUL, so that appending never asks for more than the buffer has. */
  *text =
      (struct text){.data = buffer, .capacity = capacity, .limit = capacity ? capacity - 1 : 0, .failed = !capacity};
  if (capacity) *buffer = '\0';
}

void text_finish(struct text *text) {
  mem_free(text->mem, text->data);
  text->data = NULL;
  text->bytes = text->capacity = 0;
}

/* Make room for `more` bytes and the NUL behind them. */
static bool reserve(struct text *text, size_t more) {
  if (text->failed) return false;
  if (text->bytes > text->limit || more > text->limit - text->bytes || text->limit == SIZE_MAX) return false;
  const size_t needed = text->bytes + more + 1;
  if (needed <= text->capacity) return true;
  size_t capacity = text->capacity ? text->capacity : FIRST_CAPACITY;
  while (capacity < needed)
    capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
  char *data = mem_alloc(text->mem, capacity);
  if (!data) return false;
  if (text->bytes) memcpy(data, text->data, text->bytes);
  mem_free(text->mem, text->data);
  text->data = data;
  text->capacity = capacity;
  return true;
}

void text_append_bytes(struct text *text, const void *data, size_t bytes) {
  if (!reserve(text, bytes)) {
    text->failed = 1;
    return;
  }
  if (bytes) memcpy(text->data + text->bytes, data, bytes);
  text->bytes += bytes;
  text->data[text->bytes] = '\0';
}

void text_append(struct text *text, const char *string) {
  text_append_bytes(text, string, strlen(string));
}

void text_appendf(struct text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0 || !reserve(text, (size_t)length)) {
    text->failed = 1;
    return;
  }
  va_start(arguments, format);
  vsnprintf(text->data + text->bytes, (size_t)length + 1, format, arguments);
  va_end(arguments);
  text->bytes += (size_t)length;
}

char *text_take(struct text *text) {
  if (text->failed) return NULL;
  char *taken = text->data ? text->data : mem_strdup(text->mem, "");
  text->data = NULL;
  text->bytes = text->capacity = 0;
  return taken;
}
