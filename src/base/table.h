/* uthash as every hash table of the library uses it: memory comes from the caller's allocator, and running out of it is
 * an answer instead of the end of the process.
 *
 * uthash's macros name two variables of the function that uses them:
 *   mem     const struct mem *, in functions that add, delete or clear
 *   added   bool that is 1 before HASH_ADD; afterwards 0 says that the element is not in the table for want of memory
 *
 * A file may define HASH_FUNCTION before it includes this header. */
#ifndef KJIT_BASE_TABLE_H
#define KJIT_BASE_TABLE_H

#include "base/mem.h"

#define HASH_NONFATAL_OOM            1
#define uthash_malloc(bytes)         mem_alloc(mem, bytes)
#define uthash_free(memory, bytes)   mem_free(mem, memory)
#define uthash_nonfatal_oom(element) (added = 0)
#include <uthash.h>

#endif
