/* Puts one measured result into a tuned table. */
#ifndef KJIT_FAMILY_TUNE_TUNE_UPDATE_H
#define KJIT_FAMILY_TUNE_TUNE_UPDATE_H

#include "base/text.h"
#include "family/tune/tune_load.h"

/* A result and the header of the table that it belongs to. */
struct tune_update {
  struct tune_header header; /* of the new table */
  struct family_place place;
  struct tune_row row;
};

/* What was measured for a class. `values` are fitted to the problem; they become what the class decides and canonical.
 */
struct tune_measured {
  const int32_t *class;      /* of the subject's config_bytes */
  const kjit_family *family; /* NULL: the rules' choice stays */
  const int32_t *values;
  double microseconds, rules_microseconds;
};

/* Check what was measured on a device. KJIT_ERR_INVALID_ARG for a time out of range; those of tune_row_check().
 * `device` must outlive it. */
kjit_status tune_update_init(struct tune_update *update, const struct tune_places *places,
                             const kjit_device_info *device, const struct tune_measured *measured, kjit_error *error);

/* The text of a table with the row in it: the rows of `before` (NULL for none), except for those measured elsewhere or
 * on other kernels, and the new one. KJIT_ERR_PARSE for a damaged one, with line and column; KJIT_ERR_UNSUPPORTED when
 * it is full; KJIT_ERR_NO_MEMORY. */
kjit_status tune_update_print(const struct tune_update *update, const struct tune_places *places, const char *before,
                              size_t bytes, struct text *out, kjit_error *error);

/* Put the row into the user's file, under the file's lock. A damaged file is logged and begun anew. */
kjit_status tune_update_publish(const struct tune_update *update, const struct tune_places *places,
                                const kjit_device_info *device, kjit_error *error);

#endif
