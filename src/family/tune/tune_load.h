/* The tuned table that a card's choices look at: the user's rows, then the site's, then the library's own; the first
 * row of a class counts. A table with a fault is logged and left out, so nothing here fails except for want of memory.
 */
#ifndef KJIT_FAMILY_TUNE_TUNE_LOAD_H
#define KJIT_FAMILY_TUNE_TUNE_LOAD_H

#include <stdbool.h>

#include "base/log.h"
#include "family/tune/tune_shipped.h"
#include "family/tune/tune_table.h"
#include "jit/admin/side_file.h"

/* Where the tables of a subject are looked for. */
struct tune_places {
  const struct tune_subject *subject;
  const struct mem *mem;
  const struct log *log;
  struct builder *builder;
  struct tune_shipped shipped;
};

/* The header of a table that is measured now on this device, its date empty. Digests the kernel sources, once per
 * runtime. KJIT_ERR_NO_MEMORY, and others when the library was built without its kernels. */
kjit_status tune_header_of(const struct tune_places *places, const kjit_device_info *device, struct tune_header *out,
                           kjit_error *error);

/* The file of a card's table in a cache folder:
 * "tuned/<prefix><device>-<arch>-<multiprocessors>-cuda<driver>-kjit<library> .kjit-tuned". Its strings are in `name`.
 */
#define TUNE_NAME_MAX 288
struct side_file tune_file_of(const struct tune_subject *subject, const kjit_device_info *device,
                              char name[TUNE_NAME_MAX]);

/* True when a table that was measured where `a` says holds where `b` says. With `shipped`, library and driver may
 * differ, because the library's own table was measured for this library's kernels. */
bool tune_header_holds(const struct tune_header *a, const struct tune_header *b, bool shipped);

/* Load a device's table, which may have no rows. NULL when out of memory. */
struct tune_table *tune_load_of_device(const struct tune_places *places, const kjit_device_info *device);

/* The number of the device "any", which is none of CUDA's. */
#define TUNE_NO_DEVICE (-1)

/* What stands for a card where an architecture alone is known: the device "any", whose tables are of this architecture
 * and no card's. `place->arch` has at most 15 bytes. */
kjit_device_info tune_device_of_place(const struct family_place *place);

/* Load a table for an architecture without a card: the first table that the library ships for it, and, if the subject
 * has such tables, the rows of the device "any" in the cache folders. */
struct tune_table *tune_load_of_arch(const struct tune_places *places, const struct family_place *place);

#endif
