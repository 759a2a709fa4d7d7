/* The C source that `--c-source` asks for, which holds a file's bytes as an array. One thread. */
#include "bundle.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool bundle_symbol_is_sound(const char *symbol) {
  if (!isalpha((unsigned char)*symbol) && *symbol != '_') return false;
  for (; *symbol != '\0'; symbol++)
    if (!isalnum((unsigned char)*symbol) && *symbol != '_') return false;
  return true;
}

/* Bytes that bundle_c_source() needs at most: 4 for each byte (",255"), a newline after every 32 bytes, and the lines
 * around the array, which name the symbol four times. */
static size_t source_capacity(const char *symbol, const struct output_piece *pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += pieces[i].bytes;
  return 5 * bytes + 4 * strlen(symbol) + 512;
}

char *bundle_c_source(const char *origin, const char *symbol, const struct output_piece *pieces, size_t count) {
  const size_t capacity = source_capacity(symbol, pieces, count) + strlen(origin);
  char *text = malloc(capacity);
  if (text == NULL) return NULL;
  size_t total = 0;
  int at = snprintf(text, capacity,
                    "/* Written by %s. */\n"
                    "#include <stddef.h>\n\n"
                    "extern const unsigned char %s[];\nextern const size_t %s_bytes;\n\nconst unsigned char %s[] = {\n",
                    origin, symbol, symbol, symbol);
  char *end = text + at;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < pieces[i].bytes; j++)
      end += sprintf(end, ++total % 32 == 0 ? "%u,\n" : "%u,", ((const unsigned char *)pieces[i].data)[j]);
  snprintf(end, capacity - (size_t)(end - text), "\n};\n\nconst size_t %s_bytes = %zu;\n", symbol, total);
  return text;
}
