/* Looks up the headers under kernel_src/kjit in the embedded kernel sources.
 *
 * All embedded texts are one compressed stream, so the first header that is found unpacks them all, into memory that
 * the caller's struct owns. Nothing is shared between threads: every request has a struct of its own. */
#include "jit/source/library_headers.h"

#include <string.h>

#include "jit/source/embedded_sources.h"

#define LIBRARY_FOLDER "kjit/"

kjit_status library_header_find(struct library_headers *headers, const struct mem *mem, const char *name,
                                kjit_source *header) {
  if (strncmp(name, LIBRARY_FOLDER, strlen(LIBRARY_FOLDER)) != 0) return KJIT_ERR_NOT_FOUND;
  const struct embedded_source *source = embedded_source_find(name, strlen(name));
  if (!source) return KJIT_ERR_NOT_FOUND;
  if (source->digest) return KJIT_ERR_UNSUPPORTED; /* the text was left out of the library, its digest was not */
  if (!headers->texts) {
    headers->texts = mem_alloc(mem, embedded_texts_bytes);
    if (!headers->texts || !embedded_texts_unpack(mem, headers->texts)) return KJIT_ERR_NO_MEMORY;
  }
  *header = (kjit_source){source->name, headers->texts + source->offset, source->bytes};
  return KJIT_OK;
}

void library_headers_finish(struct library_headers *headers, const struct mem *mem) {
  mem_free(mem, headers->texts);
  headers->texts = NULL;
}
