/* A runtime's tuned tables: each read when it is first asked for, and kept until the runtime ends. A user's
 * family is kept as long as its tables. */
#ifndef KJIT_FAMILY_TUNE_TUNE_STORE_H
#define KJIT_FAMILY_TUNE_TUNE_STORE_H

#include "family/tune/tune_load.h"

/* The table of a device; NULL when tables are switched off or memory ran out. Thread-safe; a few loads after the first
 * call. */
struct tune_table *tune_store_of_device(kjit_runtime *runtime, const struct tune_subject *subject,
                                        const kjit_device_info *device);

/* The table of an architecture without a card. Thread-safe. */
struct tune_table *tune_store_of_arch(kjit_runtime *runtime, const struct tune_subject *subject,
                                      const struct family_place *place);

struct tune_places tune_store_places(kjit_runtime *runtime, const struct tune_subject *subject);

#endif
