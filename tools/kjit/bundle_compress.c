/* zstd compression for `kjit bundle create`. The library's bundle writer calls bundle_compress() for one kernel after
 * the other and passes the dictionary that they share.
 *
 * zstd spends most of its set-up on the dictionary, so the prepared form is kept from call to call and made again only
 * when the dictionary's bytes change. One compressor serves one thread. */
#include "bundle.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* Level 19 of zstd. A bundle is compressed once and read by every user, so time is no argument; above this level
 * kernels take longer and get no smaller. */
#define LEVEL 19

/* One zstd context, and the dictionary that was prepared last. */
struct compressor {
  ZSTD_CCtx *state;
  ZSTD_CDict *prepared;
  void *dictionary; /* copy of the bytes that `prepared` was made of */
  size_t dictionary_bytes;
};

static void dictionary_drop(struct compressor *compressor) {
  ZSTD_freeCDict(compressor->prepared);
  free(compressor->dictionary);
  compressor->prepared = NULL;
  compressor->dictionary = NULL;
  compressor->dictionary_bytes = 0;
}

void *bundle_compressor_create(void) {
  struct compressor *compressor = calloc(1, sizeof *compressor);
  if (compressor != NULL) compressor->state = ZSTD_createCCtx();
  if (compressor != NULL && compressor->state != NULL) return compressor;
  bundle_compressor_free(compressor);
  return NULL;
}

void bundle_compressor_free(void *user) {
  struct compressor *compressor = user;
  if (compressor == NULL) return;
  dictionary_drop(compressor);
  ZSTD_freeCCtx(compressor->state);
  free(compressor);
}

static bool dictionary_prepare(struct compressor *compressor, const void *dictionary, size_t bytes) {
  if (compressor->prepared != NULL && compressor->dictionary_bytes == bytes &&
      memcmp(compressor->dictionary, dictionary, bytes) == 0)
    return true;
  dictionary_drop(compressor);
  compressor->dictionary = malloc(bytes);
  if (compressor->dictionary == NULL) return false;
  memcpy(compressor->dictionary, dictionary, bytes);
  compressor->dictionary_bytes = bytes;
  compressor->prepared = ZSTD_createCDict(dictionary, bytes, LEVEL);
  return compressor->prepared != NULL;
}

size_t bundle_compress(void *user, const void *dictionary, size_t dictionary_bytes, const void *data, size_t bytes,
                       void *out, size_t capacity) {
  struct compressor *compressor = user;
  ZSTD_CCtx *const state = compressor->state;
  ZSTD_CCtx_reset(state, ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(state, ZSTD_c_compressionLevel, LEVEL);
  ZSTD_CCtx_setParameter(state, ZSTD_c_contentSizeFlag, 1);
  ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 0);
  ZSTD_CCtx_setParameter(state, ZSTD_c_dictIDFlag, 0);
  if (dictionary_bytes > 0) {
    if (!dictionary_prepare(compressor, dictionary, dictionary_bytes)) return 0;
    ZSTD_CCtx_refCDict(state, compressor->prepared);
  }
  const size_t packed = ZSTD_compress2(state, out, capacity, data, bytes);
  return ZSTD_isError(packed) ? 0 : packed;
}
