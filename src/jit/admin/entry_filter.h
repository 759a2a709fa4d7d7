/* Choosing entries: "name=value[,name=value…]". */
#ifndef KJIT_JIT_ADMIN_ENTRY_FILTER_H
#define KJIT_JIT_ADMIN_ENTRY_FILTER_H

#include "jit/cache/entry.h"
#include "jit/cache/entry_name.h"

enum entry_filter_name { FILTER_FAMILY, FILTER_ARCH, FILTER_ENTRY, FILTER_LABEL, FILTER_KEY, FILTER_NAMES };

/* Values point into the filter's text; NULL data: not asked for. */
struct entry_filter {
  struct entry_text wanted[FILTER_NAMES];
};

/* `text` NULL or "": everything. A comma begins the next condition only in front of a name and "=", so that a label may
 * have commas in it. KJIT_ERR_INVALID_ARG names what is wrong. */
kjit_status entry_filter_parse(struct entry_filter *filter, const char *text, kjit_error *error);

_Bool entry_filter_accepts(const struct entry_filter *filter, const struct entry_name *name, const struct entry *entry);

#endif
