/* One open bundle: kernels in one read-only file that an application ships, or in its memory. A kernel is found by its
 * request, whatever compiler made it. Nothing inside is believed before it is checked, and exactly the checked bytes
 * are used: the table is copied once, and a payload is copied before its digest is taken, because another process may
 * write to a mapped file. */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_H
#define KJIT_JIT_BUNDLE_BUNDLE_H

#include "jit/bundle/bundle_format.h"
#include "jit/bundle/bundle_trust.h"
#include "jit/cache/disk_cache.h"

struct bundle;

/* A file, or, with path NULL, bytes that outlive the bundle. */
struct bundle_source {
  const char *path;
  const void *data;
  size_t bytes;
};

/* Open and check the index; with trusted keys also the signature and every digest. `mem` must outlive the bundle.
 * KJIT_ERR_NOT_FOUND, KJIT_ERR_IO   no such file, or it cannot be read
 * KJIT_ERR_CORRUPT                  not a bundle, or damaged: where and how
 * KJIT_ERR_UNTRUSTED                unsigned, signed by somebody else, or altered
 * KJIT_ERR_NO_MEMORY */
kjit_status bundle_open(struct bundle **out, const struct mem *mem, const struct bundle_source *source,
                        const struct trust *trust, kjit_error *error);
void bundle_close(struct bundle *bundle); /* accepts NULL */

/* Its path, or "the bundle in memory". */
const char *bundle_name(const struct bundle *bundle);
const struct bundle_table *bundle_table(const struct bundle *bundle);
uint64_t bundle_file_bytes(const struct bundle *bundle);
/* The signature, checked: BUNDLE_SIGNATURE_BYTES bytes; NULL when there is none. */
const uint8_t *bundle_signature(const struct bundle *bundle);

/* Take the digest of every part. KJIT_ERR_CORRUPT names the first that differs. */
kjit_status bundle_check_payloads(const struct bundle *bundle, kjit_error *error);

/* Unpack and check kernel `index`. KJIT_ERR_CORRUPT says what is wrong; KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status bundle_read(struct bundle *bundle, uint32_t index, struct entry_image *image, kjit_error *error);

#endif
