/* Kernels that are loaded and ready to launch, by the config as callers write it and the device. What a call finds here
 * needs no rules, no canonical form, no key and no driver. Entries stay until the table ends, as kernels do. One table
 * a family: configs are its int32_t fields, without padding. */
#ifndef KJIT_ATTENTION_ATTENTION_RESIDENT_H
#define KJIT_ATTENTION_ATTENTION_RESIDENT_H

#include <kjit/kernel.h>

#include "base/mem.h"

struct attention_resident;

/* NULL when out of memory. `mem` must outlive the table. A value is what the family knows of a kernel; it is aligned
 * for any type, and never changes. */
struct attention_resident *attention_resident_create(const struct mem *mem, size_t config_bytes, size_t value_bytes);

/* Nobody may be using the table. Accepts NULL. */
void attention_resident_destroy(struct attention_resident *resident);

/* The value; NULL when it is not resident. Thread-safe: readers do not contend with each other. */
const void *attention_resident_find(struct attention_resident *resident, const void *config, int32_t device);

/* Add a legal config's value, and return it as the table keeps it: the one that is there already when another thread
 * was faster. NULL when out of memory. Thread-safe. */
const void *attention_resident_add(struct attention_resident *resident, const void *config, int32_t device,
                                   const void *value);

#endif
