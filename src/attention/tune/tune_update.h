/* Puts one measured result into a tuned table. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_UPDATE_H
#define KJIT_ATTENTION_TUNE_TUNE_UPDATE_H

#include <kjit/tune.h>

#include "attention/tune/tune_load.h"
#include "base/text.h"

/* One checked result, and the header of the table that it belongs to. */
struct tune_update {
  struct tune_header header; /* of the new table */
  struct family_place place;
  struct tune_row row;
};

/* Check what a caller measured on a device. The statuses are those of kjit_tune_publish(). `device` must outlive it. */
kjit_status tune_update_init(struct tune_update *update, const struct tune_places *places,
                             const kjit_device_info *device, const kjit_tune_result *result, kjit_error *error);

/* The text of a table with the row in it: the rows of `before` (NULL for none), except for those measured elsewhere or
 * on other kernels, and the new one. KJIT_ERR_PARSE for a damaged one, with line and column; KJIT_ERR_UNSUPPORTED when
 * it is full; KJIT_ERR_NO_MEMORY. */
kjit_status tune_update_print(const struct tune_update *update, const struct mem *mem, const char *before, size_t bytes,
                              struct text *out, kjit_error *error);

/* Put the row into the user's file, under the file's lock. A damaged file is logged and begun anew. */
kjit_status tune_update_publish(const struct tune_update *update, const struct tune_places *places,
                                const kjit_device_info *device, kjit_error *error);

#endif
