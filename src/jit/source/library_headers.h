/* The headers that kjit gives to every kernel: <kjit/ptx/wgmma.cuh> and the like, from the embedded kernel sources. A
 * user's source finds them without an include folder and without a file; what the user names himself comes first. */
#ifndef KJIT_JIT_SOURCE_LIBRARY_HEADERS_H
#define KJIT_JIT_SOURCE_LIBRARY_HEADERS_H

#include <kjit/build.h>

#include "base/mem.h"

/* Zero-initialise it. The texts are unpacked by the first header that is found, and live until the end. */
struct library_headers {
  char *texts;
};

/* The header of that name as written in #include; `header` points into `headers` and static memory.
 * KJIT_ERR_NOT_FOUND    there is none: nothing under "kjit/" has that name
 * KJIT_ERR_UNSUPPORTED  there is, but this library was built without its text (KJIT_EMBED_SOURCES=OFF)
 * KJIT_ERR_NO_MEMORY
 * No message is written, because the caller knows the file and the line. */
kjit_status library_header_find(struct library_headers *headers, const struct mem *mem, const char *name,
                                kjit_source *header);

void library_headers_finish(struct library_headers *headers, const struct mem *mem);

#endif
