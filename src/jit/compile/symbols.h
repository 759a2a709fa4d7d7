/* What is known of a compile's kernels and names, as text of lines that a cache entry keeps:
 *
 *   kernel <registers> <spill bytes> <local bytes> <shared bytes> <max threads> <name in the cubin>
 *   name <name in the cubin> <name expression>
 *
 * Names in a cubin have no blanks; an expression is the rest of its line. */
#ifndef KJIT_JIT_COMPILE_SYMBOLS_H
#define KJIT_JIT_COMPILE_SYMBOLS_H

#include <stdbool.h>

#include "base/text.h"

/* A thousand kernels with names of a thousand characters fit twice. */
#define SYMBOLS_MAX_BYTES ((size_t)2 << 20)

/* What ptxas said of a kernel, and its cubin. */
struct kernel_figures {
  uint32_t registers, spill_bytes, local_bytes, shared_bytes, max_threads;
};

struct symbol {
  bool is_kernel;
  const char *linkage; /* name in the cubin */
  size_t linkage_bytes;
  const char *expression; /* of a name */
  size_t expression_bytes;
  struct kernel_figures figures; /* of a kernel */
};

struct symbols {
  const char *at, *end;
  bool sound; /* false once a line was malformed */
};

void symbols_init(struct symbols *symbols, const char *text, size_t bytes);

/* False at the end, and at a malformed line (then `sound` is false too). */
bool symbols_next(struct symbols *symbols, struct symbol *symbol);

bool symbols_are_sound(const char *text, size_t bytes);

void symbols_put_kernel(struct text *text, const char *linkage, size_t bytes, const struct kernel_figures *figures);
void symbols_put_name(struct text *text, const char *linkage, const char *expression);

#endif
