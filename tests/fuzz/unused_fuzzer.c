/* Any bytes as a cubin whose unused variables are dropped (jit/cubin/unused.h). The cubin itself stands in for the
 * PTX: each name is in it once, so that all that may go does. What comes out must be readable, and no larger. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "jit/cubin/cubin_image.h"
#include "jit/cubin/unused.h"

static const char *keep_nothing(void *user, size_t *bytes) {
  (void)user, (void)bytes;
  return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const kjit_allocator usual = {0};
  struct cubin_image image;
  struct mem mem;
  unsigned char *const cubin = malloc(size + 1);
  if (!cubin || !mem_init(&mem, &usual)) abort();
  memcpy(cubin, data, size);
  (void)unused_is_likely(cubin, size);
  const size_t after = unused_drop(&mem, cubin, size, (const char *)data, size, keep_nothing, NULL);
  if (after > size) abort();
  if (after < size) input_is_taken();
  const kjit_status status = cubin_image_open(&image, &mem, cubin, after);
  cubin_image_finish(&image);
  if (after < size && status == KJIT_ERR_UNSUPPORTED) abort();
  free(cubin);
  return 0;
}
