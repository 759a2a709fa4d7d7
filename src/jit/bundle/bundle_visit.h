/* Looking at every kernel of a bundle: include/kjit/bundle.h's kjit_bundle_list(). */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_VISIT_H
#define KJIT_JIT_BUNDLE_BUNDLE_VISIT_H

#include <kjit/cache.h>

#include "jit/bundle/bundle.h"

/* KJIT_OK also when the visitor stopped; KJIT_ERR_NO_MEMORY. */
kjit_status bundle_visit(struct bundle *bundle, const struct mem *mem, kjit_cache_visit visit, void *user,
                         kjit_error *error);

#endif
