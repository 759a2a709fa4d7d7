/* Where `kjit tune` puts its results: the tuned table in the user's cache folder, or a file. */
#ifndef KJIT_TOOLS_TUNE_TABLE_H
#define KJIT_TOOLS_TUNE_TABLE_H

#include "command.h"

/* Put one result into the device's table, in the file `path`, or in the user's cache folder when `path` is NULL. A file
 * is replaced as a whole, so two processes must not write the same one. */
kjit_status tune_table_put(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                           const char *path, kjit_error *error);

#endif
