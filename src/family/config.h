/* Configs of any family, by its table and functions: what kjit/family.h offers, for callers inside the library, who
 * have family and values apart. Pure. */
#ifndef KJIT_FAMILY_CONFIG_H
#define KJIT_FAMILY_CONFIG_H

#include "family/family.h"

/* Assumed number of SMs when only an architecture is known: that of H100 SXM, H200 and GH200. */
#define FAMILY_USUAL_SM_COUNT 132

/* Describe a card of an architecture that is not at hand. KJIT_ERR_INVALID_ARG for an unknown name. `arch` must outlive
 * it. */
kjit_status family_place_of_arch(const char *arch, struct family_place *place, kjit_error *error);

/* Describe a card that is at hand. `device` must outlive the result. */
struct family_place family_place_of_device(const kjit_device_info *device);

/* Read a config. On failure `values` are all zero. */
kjit_status config_parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error);

void config_print(const kjit_family *family, const int32_t *values, struct text *out);

/* Check every rule and, with a place, whether the kernel runs there. */
kjit_status config_check(const kjit_family *family, const int32_t *values, const struct family_place *place,
                         kjit_error *error);

/* Bring a checked config into its canonical form. */
void config_canonicalize(const kjit_family *family, int32_t *values);
kjit_geometry config_geometry(const kjit_family *family, const int32_t *values);

/* Check that neither `config` nor its family is NULL. */
kjit_status config_take(const kjit_config *config, kjit_error *error);

/* Append `#define KJIT_shared_bytes` and `KJIT_threads`, by which a kernel asserts that its layout is what the host
 * launches. Has the form of kjit_family.derive. */
void config_derive_geometry(const kjit_family *family, const int32_t *values, struct text *out);

#endif
