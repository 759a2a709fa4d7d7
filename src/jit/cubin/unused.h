/* Variables that nothing uses, dropped from a finished cubin.
 *
 * ptxas keeps every variable of a module compiled as a whole, so a kernel of 400 bytes that includes libcu++ becomes a
 * cubin of 139 KB: a thousand `static constexpr` members, each with its name, its address in a table and a relocation
 * of that. */
#ifndef KJIT_JIT_CUBIN_UNUSED_H
#define KJIT_JIT_CUBIN_UNUSED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

/* Names whose variables stay, one after the other: NULL at the end. */
typedef const char *(*unused_keep)(void *user, size_t *bytes);

/* Whether a cubin has enough variables for unused_drop() to be worth its while. A look at the sections' names. */
bool unused_is_likely(const void *cubin, size_t bytes);

/* Rewrite a cubin without the variables with a mangled name that stand in `ptx` (what ptxas made the cubin of) only
 * where they are declared, and are not among those to keep. Returns the new size; the old one when nothing was dropped,
 * because there is little to drop, the cubin has a part that this reader does not know, or memory is short. Machine
 * code and the places of all that stays in memory are the same as before. Thread-safe. */
size_t unused_drop(const struct mem *mem, void *cubin, size_t bytes, const char *ptx, size_t ptx_bytes,
                   unused_keep keep, void *user);

#endif
