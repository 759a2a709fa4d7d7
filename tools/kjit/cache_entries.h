/* Showing what the cache holds. */
#ifndef KJIT_TOOLS_CACHE_ENTRIES_H
#define KJIT_TOOLS_CACHE_ENTRIES_H

#include "command.h"

/* Each returns an exit code; `key` is a key's first digits, at least four. For `why` also "-": a key text on stdin. */
int cache_entries_list(kjit_runtime *runtime, bool json);
int cache_entries_show(kjit_runtime *runtime, const char *key, bool json);
int cache_entries_why(kjit_runtime *runtime, const char *key, bool json);

#endif
