/* Which folders the cache uses, and whether they may be used at all: the rules on paths, owners and modes. */
#ifndef KJIT_JIT_CACHE_CACHE_DIR_H
#define KJIT_JIT_CACHE_CACHE_DIR_H

#include <stdbool.h>

#include <kjit/runtime.h>

#include "base/mem.h"
#include "jit/cache/file_ops.h"

/* Linux refuses longer paths too (PATH_MAX). */
#define CACHE_DIR_MAX_BYTES 4096

struct cache_dir {
  int folder; /* the open folder's descriptor, -1 when there is none */
  char *path; /* mem_free; NULL when none was found */
};

/* The user folder: `option`, else $KJIT_CACHE_DIR (when `kjit_environment`), $XDG_CACHE_HOME/kjit, $HOME/.cache/kjit.
 * Made, with its parents, 0700, when it is missing and `writable`. Refused when another user owns it or can write to
 * it. Anything but KJIT_OK means that the cache runs from memory, with the reason in `error`; finish it anyway. */
kjit_status cache_dir_open_user(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem,
                                const char *option, bool kjit_environment, bool writable, kjit_error *error);

/* The site folder: `option`, else $KJIT_CACHE_SITE. Refused when everybody can write to it. KJIT_ERR_NOT_FOUND when
 * none is configured. */
kjit_status cache_dir_open_site(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem,
                                const char *option, bool kjit_environment, kjit_error *error);

void cache_dir_finish(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem);

#endif
