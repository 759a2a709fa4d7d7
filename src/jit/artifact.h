/* kjit_artifact: an entry's image in memory, shared by every handle to it. */
#ifndef KJIT_JIT_ARTIFACT_H
#define KJIT_JIT_ARTIFACT_H

#include <kjit/build.h>

#include "base/digest.h"
#include "jit/cache/disk_cache.h"

/* Takes the image over (also on failure, KJIT_ERR_NO_MEMORY). One reference, for the caller. `identity` is
 * that of the request which it answers (key_identify). `mem` must outlive it. */
kjit_status artifact_create(kjit_artifact **out, const struct mem *mem, struct entry_image *image,
                            const struct digest *identity, kjit_origin origin, kjit_error *error);

/* The same artifact as answered from another place: borrowed, kept alive by any reference to either. */
kjit_artifact *artifact_as(kjit_artifact *artifact, kjit_origin origin);

/* What the artifact was made from. */
const struct entry_image *artifact_image(const kjit_artifact *artifact);
const struct digest *artifact_identity(const kjit_artifact *artifact);
/* The digest of the whole key. The table of loaded kernels (runtime/kernel_table.c) finds a kernel by it. */
const struct digest *artifact_digest(const kjit_artifact *artifact);
_Bool artifact_same(const kjit_artifact *a, const kjit_artifact *b); /* one image? */

/* Is there more than one reference? Whoever has the only one may rely on a "no" while nobody can take another. */
_Bool artifact_is_shared(const kjit_artifact *artifact);

/* The name of its entry in a cache folder. */
void artifact_entry_name(const kjit_artifact *artifact, struct entry_name *name);

#endif
