/* Choosing entries of the cache by a text of the form "name=value[,name=value…]". */
#ifndef KJIT_JIT_ADMIN_ENTRY_FILTER_H
#define KJIT_JIT_ADMIN_ENTRY_FILTER_H

#include <stdbool.h>

#include "jit/cache/entry.h"
#include "jit/cache/entry_name.h"

enum entry_filter_name { FILTER_FAMILY, FILTER_ARCH, FILTER_ENTRY, FILTER_LABEL, FILTER_KEY, FILTER_NAMES };

/* The wanted value of each name, as a slice of the filter's text; data is NULL where the text does not ask for the
 * name. */
struct entry_filter {
  struct entry_text wanted[FILTER_NAMES];
};

/* Read a filter. NULL and "" accept everything. A comma begins the next condition only in front of a name and "=", so
 * that a label may have commas in it. KJIT_ERR_INVALID_ARG names what is wrong. */
kjit_status entry_filter_parse(struct entry_filter *filter, const char *text, kjit_error *error);

bool entry_filter_accepts(const struct entry_filter *filter, const struct entry_name *name, const struct entry *entry);

#endif
