/* A result into a table. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_UPDATE_H
#define KJIT_ATTENTION_TUNE_TUNE_UPDATE_H

#include <kjit/tune.h>

#include "attention/tune/tune_load.h"
#include "base/text.h"

/* One result, checked, and the table that it belongs to. */
struct tune_update {
  struct tune_header header; /* of the table as it will be */
  struct family_place place;
  struct tune_row row;
};

/* Check what a caller measured on a device. The statuses are those of kjit_tune_publish(). `device` must outlive it. */
kjit_status tune_update_init(struct tune_update *update, const struct tune_places *places,
                             const kjit_device_info *device, const kjit_tune_result *result, kjit_error *error);

/* The text of a table with the row in it: `before` (NULL: none) less what was measured elsewhere or on other kernels.
 * KJIT_ERR_PARSE for a damaged one, with line and column; KJIT_ERR_UNSUPPORTED when it is full; KJIT_ERR_NO_MEMORY. */
kjit_status tune_update_print(const struct tune_update *update, const struct mem *mem, const char *before, size_t bytes,
                              struct text *out, kjit_error *error);

/* The same into the user's cache folder, under the file's lock; a damaged one is logged and left behind. */
kjit_status tune_update_publish(const struct tune_update *update, const struct tune_places *places,
                                const kjit_device_info *device, kjit_error *error);

#endif
