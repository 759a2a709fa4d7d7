/* `kjit cache list`, `show` and `why`: the cache's entries, printed for people or as JSON. */
#ifndef KJIT_TOOLS_CACHE_ENTRIES_H
#define KJIT_TOOLS_CACHE_ENTRIES_H

#include <stdbool.h>

#include "command.h"

/* Each returns an exit code. `key` is the first digits of a key, at least four; cache_entries_why() also takes "-" and
 * then reads a key text from standard input. */
int cache_entries_list(kjit_runtime *runtime, bool json);
int cache_entries_show(kjit_runtime *runtime, const char *key, bool json);
/* The machine code of an entry: into a file, or as text on stdout by the toolkit's nvdisasm. */
int cache_entries_cubin(kjit_runtime *runtime, const char *key, const char *path);
int cache_entries_sass(kjit_runtime *runtime, const char *key);

/* Print the PTX that a compile under KJIT_DUMP left of it. */
int cache_entries_ptx(kjit_runtime *runtime, const char *key);
/* The lines in front of the source, and the names and digests of what was compiled. */
int cache_entries_source(kjit_runtime *runtime, const char *key);
int cache_entries_why(kjit_runtime *runtime, const char *key, bool json);

#endif
