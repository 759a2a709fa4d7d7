/* The tuned tables that the library carries: cache/tuned, compressed and embedded at build time as the kernel sources
 * are. Pure functions; any thread. */
#include "family/tune/tune_shipped.h"

#include "base/files/frame.h"

struct tune_shipped tune_shipped_embedded(void) {
  return (struct tune_shipped){.files = tuned_sources,
                               .count = tuned_source_count,
                               .packed = tuned_texts,
                               .packed_bytes = tuned_texts_packed_bytes,
                               .bytes = tuned_texts_bytes};
}

char *tune_shipped_unpack(const struct tune_shipped *shipped, const struct mem *mem) {
  const struct frame_bytes packed = {shipped->packed, shipped->packed_bytes};
  char *texts = mem_alloc(mem, shipped->bytes);
  if (texts && frame_inflate(mem, packed, texts, shipped->bytes)) return texts;
  mem_free(mem, texts);
  return NULL;
}
