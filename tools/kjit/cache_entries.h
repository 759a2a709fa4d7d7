/* `kjit cache list`, `show` and `why`: the cache's entries, printed for people or as JSON. */
#ifndef KJIT_TOOLS_CACHE_ENTRIES_H
#define KJIT_TOOLS_CACHE_ENTRIES_H

#include "command.h"

/* Each returns an exit code. `key` is the first digits of a key, at least four; cache_entries_why() also takes "-" and
 * then reads a key text from standard input. */
int cache_entries_list(kjit_runtime *runtime, bool json);
int cache_entries_show(kjit_runtime *runtime, const char *key, bool json);
int cache_entries_why(kjit_runtime *runtime, const char *key, bool json);

#endif
