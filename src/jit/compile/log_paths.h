/* In a compiler's log, replaces the names under which headers were given to the compiler by the paths of their files.
 */
#ifndef KJIT_JIT_COMPILE_LOG_PATHS_H
#define KJIT_JIT_COMPILE_LOG_PATHS_H

#include "base/mem.h"
#include "jit/source/source_set.h"

/* `*log` (mem_free) is replaced where a line begins with "name(line)" or ends in "of name" for a file whose path is
 * another. Out of memory: it stays as it is. */
void log_paths_show(char **log, const struct source_set *sources, const struct mem *mem);

#endif
