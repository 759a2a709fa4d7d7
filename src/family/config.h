/* Configs of any family, through its table and functions: what kjit/family.h offers, for callers inside the library,
 * who have the family and its values apart. Pure. */
#ifndef KJIT_FAMILY_CONFIG_H
#define KJIT_FAMILY_CONFIG_H

#include "family/family.h"

/* SMs of the most common card, where only an architecture is known: H100 SXM, H200, GH200. */
#define FAMILY_USUAL_SM_COUNT 132

/* A card of an architecture that is not at hand. KJIT_ERR_INVALID_ARG for a name that is none. `arch` must outlive it.
 */
kjit_status family_place_of_arch(const char *arch, struct family_place *place, kjit_error *error);

/* `device` must outlive it. */
struct family_place family_place_of_device(const kjit_device_info *device);

/* Read a config. On failure `values` are all zero. */
kjit_status config_parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error);

void config_print(const kjit_family *family, const int32_t *values, struct text *out);

/* Every rule; with a place, also whether it runs there. */
kjit_status config_check(const kjit_family *family, const int32_t *values, const struct family_place *place,
                         kjit_error *error);

/* Of a checked config. */
void config_canonicalize(const kjit_family *family, int32_t *values);
kjit_geometry config_geometry(const kjit_family *family, const int32_t *values);

/* KJIT_OK when `config` is one: neither it nor its family NULL. */
kjit_status config_take(const kjit_config *config, kjit_error *error);

/* `#define KJIT_shared_bytes` and `KJIT_threads`: for kernels that assert that what they lay out is what the host
 * launches. Fits kjit_family.derive. */
void config_derive_geometry(const kjit_family *family, const int32_t *values, struct text *out);

#endif
