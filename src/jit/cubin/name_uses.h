/* How often each of a set of names stands in a text. Of unused.c. */
#ifndef KJIT_JIT_CUBIN_NAME_USES_H
#define KJIT_JIT_CUBIN_NAME_USES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

struct name_use {
  const char *name; /* NULL: a free place */
  size_t bytes;
  uint32_t count;
};

struct name_uses {
  struct name_use *places; /* a hash table with open addressing */
  size_t mask;
};

/* Room for `count` names, which are borrowed. False when out of memory; finish it in either case. */
bool name_uses_init(struct name_uses *uses, const struct mem *mem, size_t count);
void name_uses_finish(struct name_uses *uses, const struct mem *mem);

/* Add a name if it is not there. At most as many as were announced. */
struct name_use *name_uses_add(struct name_uses *uses, const char *name, size_t bytes);

/* NULL when it was not added. */
struct name_use *name_uses_find(const struct name_uses *uses, const char *name, size_t bytes);

/* Count the names in a text of PTX: whole identifiers, wherever they stand, in comments too. One that is declared for
 * others to find (.visible and the like) counts twice there. */
void name_uses_count(struct name_uses *uses, const char *text, size_t bytes);

#endif
