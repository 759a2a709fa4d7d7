/* The family's table of attention_table.h, with its types. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_RESIDENT_H
#define KJIT_ATTENTION_FLASH_FLASH_RESIDENT_H

#include <kjit/flash_forward.h>

#include "attention/attention_table.h"

/* A kernel and what a launch of it must know. Never changes. */
struct flash_resident_kernel {
  kjit_kernel *kernel; /* the runtime's */
  uint32_t B_r;
  uint32_t threads;
  uint32_t shared_bytes;
};

struct flash_resident;

/* NULL when out of memory. `mem` must outlive the table. */
struct flash_resident *flash_resident_create(const struct mem *mem);

/* Nobody may be using the table. Accepts NULL. */
void flash_resident_destroy(struct flash_resident *resident);

/* NULL when it is not resident. Thread-safe: readers do not contend with each other. */
const struct flash_resident_kernel *flash_resident_find(struct flash_resident *resident,
                                                        const kjit_flash_variant *variant, int32_t device);

/* Add a legal variant's kernel, and return it as the table keeps it: the one that is there already when another thread
 * was faster. NULL when out of memory. Thread-safe. */
const struct flash_resident_kernel *flash_resident_add(struct flash_resident *resident,
                                                       const kjit_flash_variant *variant, int32_t device,
                                                       const struct flash_resident_kernel *kernel);

#endif
