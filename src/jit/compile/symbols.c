/* Reading and writing the lines of symbols. Takes any bytes: nothing is believed before it is checked. Pure
 * functions, thread-safe. */
#include "jit/compile/symbols.h"

#include <string.h>

void symbols_init(struct symbols *symbols, const char *text, size_t bytes) {
  *symbols = (struct symbols){text, text + bytes, 1};
}

static bool take_word(const char **at, const char *end, const char *word) {
  const size_t bytes = strlen(word);
  if ((size_t)(end - *at) < bytes || memcmp(*at, word, bytes) != 0) return false;
  *at += bytes;
  return true;
}

/* Read a decimal number without leading zeros, ended by a blank. */
static bool take_number(const char **at, const char *end, uint32_t *out) {
  const char *const start = *at;
  uint64_t value = 0;
  for (; *at < end && **at >= '0' && **at <= '9' && *at - start < 10; ++*at)
    value = 10 * value + (uint64_t)(**at - '0');
  if (*at == start || (*start == '0' && *at - start > 1) || value > UINT32_MAX) return false;
  *out = (uint32_t)value;
  return take_word(at, end, " ");
}

/* Read a name, up to a blank or the end of the line; printable and not empty. */
static bool take_linkage(const char **at, const char *end, struct symbol *symbol) {
  symbol->linkage = *at;
  while (*at < end && (unsigned char)**at > ' ' && **at != 0x7F)
    ++*at;
  symbol->linkage_bytes = (size_t)(*at - symbol->linkage);
  return symbol->linkage_bytes != 0;
}

static bool read_kernel(const char *at, const char *end, struct symbol *symbol) {
  struct kernel_figures *const figures = &symbol->figures;
  return take_number(&at, end, &figures->registers) && take_number(&at, end, &figures->spill_bytes) &&
         take_number(&at, end, &figures->local_bytes) && take_number(&at, end, &figures->shared_bytes) &&
         take_number(&at, end, &figures->max_threads) && take_linkage(&at, end, symbol) && at == end;
}

static bool read_name(const char *at, const char *end, struct symbol *symbol) {
  if (!take_linkage(&at, end, symbol) || !take_word(&at, end, " ") || at == end) return false;
  symbol->expression = at;
  symbol->expression_bytes = (size_t)(end - at);
  return true;
}

bool symbols_next(struct symbols *symbols, struct symbol *symbol) {
  if (!symbols->sound || symbols->at == symbols->end) return false;
  const char *at = symbols->at;
  const char *const stop = memchr(at, '\n', (size_t)(symbols->end - at));
  *symbol = (struct symbol){0};
  symbols->sound = 0;
  if (!stop) return false;
  symbol->is_kernel = take_word(&at, stop, "kernel ");
  symbols->sound =
      symbol->is_kernel ? read_kernel(at, stop, symbol) : take_word(&at, stop, "name ") && read_name(at, stop, symbol);
  symbols->at = stop + 1;
  return symbols->sound;
}

bool symbols_are_sound(const char *text, size_t bytes) {
  struct symbols symbols;
  struct symbol symbol;
  symbols_init(&symbols, text, bytes);
  while (symbols_next(&symbols, &symbol))
    ;
  return symbols.sound;
}

void symbols_put_kernel(struct text *text, const char *linkage, size_t bytes, const struct kernel_figures *figures) {
  text_appendf(text, "kernel %u %u %u %u %u ", figures->registers, figures->spill_bytes, figures->local_bytes,
               figures->shared_bytes, figures->max_threads);
  text_append_bytes(text, linkage, bytes);
  text_append(text, "\n");
}

void symbols_put_name(struct text *text, const char *linkage, const char *expression) {
  text_appendf(text, "name %s %s\n", linkage, expression);
}
