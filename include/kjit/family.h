/**
 * @file
 * Kernel families: a kernel with the constants that decide its machine code, described as data.
 *
 * A family says which fields a configuration has, which values are legal, what follows from them (derived constants,
 * threads, shared memory, grid), which source is compiled and which parameters the kernel takes. kjit's own families
 * (attention_sm90.h, flash_forward.h) and a user's (a file, or the struct below) are the same kind of object, and every
 * function of this header takes either.
 *
 * A configuration is a kjit_config: the family, and one int32 for each field in the family's order. The kernel sees the
 * values as `#define KJIT_<field> <value>` lines in front of its source.
 */
#ifndef KJIT_FAMILY_H
#define KJIT_FAMILY_H

#include <kjit/kernel.h>
#include <kjit/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A family. Immutable, thread-safe. kjit's own live as long as the library; a user's is reference-counted. */
typedef struct kjit_family kjit_family;

/** The most fields that a family has. */
#define KJIT_FIELD_COUNT_MAX 64

/**
 * One configuration of a family. The values of fields that the family does not have are 0. A plain value: copy it,
 * compare it with kjit_config_compare(). The family must outlive it.
 */
typedef struct kjit_config {
  const kjit_family *family;
  int32_t values[KJIT_FIELD_COUNT_MAX];
} kjit_config;

#ifdef __cplusplus
}
#endif
#endif
