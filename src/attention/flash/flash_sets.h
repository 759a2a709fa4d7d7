/* The named sets of configs: "progression" (7), "autotune" (80), "prebuilt" (85), "progression_all" (56). Pure. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_SETS_H
#define KJIT_ATTENTION_FLASH_FLASH_SETS_H

#include <kjit/flash_forward.h>

extern const char *const flash_sets_names[]; /* ended by NULL */

/* The number of configs of a set, named by one of the names above. */
size_t flash_sets_count(const char *name);
kjit_flash_config flash_sets_get(const char *name, size_t index);

#endif
