/* kjit_artifact: an entry's image in memory, shared by every reference to it.
 *
 * Life cycle: artifact_create() takes over an image and gives the first reference; kjit_artifact_retain() and
 * kjit_artifact_release() count; artifact_as() gives the same artifact with another origin, without a reference of its
 * own; the last release frees the image. */
#ifndef KJIT_JIT_ARTIFACT_H
#define KJIT_JIT_ARTIFACT_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/digest.h"
#include "jit/cache/disk_cache.h"

/* Make an artifact with one reference, the caller's. The image is taken over, also on failure (KJIT_ERR_NO_MEMORY).
 * `identity` is that of the request that the artifact answers (key_identify()). `mem` must outlive the artifact. */
kjit_status artifact_create(kjit_artifact **out, const struct mem *mem, struct entry_image *image,
                            const struct digest *identity, kjit_origin origin, kjit_error *error);

/* The same artifact with another origin. Borrowed: it lives as long as any reference to the artifact does. */
kjit_artifact *artifact_as(kjit_artifact *artifact, kjit_origin origin);

/* The image that the artifact was made from, and the identity of the request that it answers. Both borrowed. */
const struct entry_image *artifact_image(const kjit_artifact *artifact);
const struct digest *artifact_identity(const kjit_artifact *artifact);
/* The digest of the whole key. The table of loaded kernels (runtime/kernel_table.c) finds a kernel by it. */
const struct digest *artifact_digest(const kjit_artifact *artifact);
/* Note where the time of the compile went that made it, and of publishing it: before anybody else has the artifact. */
struct compile_result;
void artifact_set_phases(kjit_artifact *artifact, const struct compile_result *result, int64_t includes_ns);
void artifact_set_publish(kjit_artifact *artifact, int64_t publish_ns);

/* Do both refer to one image, whatever their origins? */
bool artifact_same(const kjit_artifact *a, const kjit_artifact *b);

/* Is there more than one reference? A false stays true as long as the caller holds the only reference and prevents
 * others from taking one, as resident.c does by its mutex. */
bool artifact_is_shared(const kjit_artifact *artifact);

/* The name of its entry in a cache folder. */
void artifact_entry_name(const kjit_artifact *artifact, struct entry_name *name);

/* The name in the cubin of one of the request's name expressions; not NUL-terminated. False, with nothing written, for
 * what is none of them. */
bool artifact_lowered(const kjit_artifact *artifact, const char *expression, const char **linkage, size_t *bytes);

#endif
