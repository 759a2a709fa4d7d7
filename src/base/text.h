/* Text that grows. A failed append is remembered, so that a caller appends freely and tests `failed` once at the end. A
 * struct text belongs to one thread.
 *
 * Life cycle: text_init(), any number of appends, then text_take() to keep the text, and text_finish() in every case.
 */
#ifndef KJIT_BASE_TEXT_H
#define KJIT_BASE_TEXT_H

#include <stdbool.h>

#include "base/mem.h"

struct text {
  const struct mem *mem;
  char *data;   /* NUL-terminated once anything was appended */
  size_t bytes; /* without the NUL */
  size_t capacity;
  size_t limit; /* largest size allowed; appends beyond it fail */
  bool failed;  /* out of memory, or past the limit */
};

void text_init(struct text *text, const struct mem *mem, size_t limit);
/* Write into the caller's buffer of `capacity` bytes, the NUL included. Never allocates, and needs no finishing. */
void text_init_fixed(struct text *text, char *buffer, size_t capacity);
void text_finish(struct text *text); /* frees */
void text_append(struct text *text, const char *string);
void text_append_bytes(struct text *text, const void *data, size_t bytes);
void text_appendf(struct text *text, const char *format, ...) KJIT_PRINTF(2, 3);
/* Hand the buffer over to the caller (mem_free); "" when empty; NULL when failed. */
char *text_take(struct text *text);

#endif
