/* Symbols that relocatable code defines: a name that two inputs define must be found before nvJitLink is, since its
 * version 13.0 crashes on it or prints to the standard output and goes on. */
#ifndef KJIT_JIT_COMPILE_LINK_SYMBOLS_H
#define KJIT_JIT_COMPILE_LINK_SYMBOLS_H

#include "base/mem.h"

struct link_input {
  const char *name;
  uint32_t kind; /* a kjit_part_kind */
  const void *data;
  size_t bytes;
};

/* KJIT_ERR_COMPILE names the symbol and both inputs; KJIT_ERR_NO_MEMORY. Cubins and PTX are looked at: nvJitLink itself
 * refuses what LTO-IR defines twice. */
kjit_status link_symbols_check(const struct mem *mem, const struct link_input *inputs, size_t count, kjit_error *error);

#endif
