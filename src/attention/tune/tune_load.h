/* The table that a card's choices look at: the user's, then the site's, then the one that the library ships; of two
 * rows for a class the first. What is wrong with one is logged and it is left out; nothing here fails but for memory.
 */
#ifndef KJIT_ATTENTION_TUNE_TUNE_LOAD_H
#define KJIT_ATTENTION_TUNE_TUNE_LOAD_H

#include "attention/tune/tune_shipped.h"
#include "attention/tune/tune_table.h"
#include "base/log.h"
#include "jit/admin/side_file.h"
#include "jit/builder.h"

/* Where tables are looked for. */
struct tune_places {
  const struct mem *mem;
  const struct log *log;
  struct builder *builder;
  struct tune_shipped shipped;
};

/* The header of a table that is measured now on this device, its date empty. Digests the kernel sources, once per
 * runtime. KJIT_ERR_NO_MEMORY, and others when the library was built without its kernels. */
kjit_status tune_header_of(const struct tune_places *places, const kjit_device_info *device, struct tune_header *out,
                           kjit_error *error);

/* The file of a card's table in a cache folder: "tuned/<device>-<arch>-<multiprocessors>-cuda<driver>-kjit<library>
 * .kjit-tuned". Its strings are in `name`. */
#define TUNE_NAME_MAX 224
struct side_file tune_file_of(const kjit_device_info *device, char name[TUNE_NAME_MAX]);

/* Does a table that was measured where `a` says hold where `b` says? `shipped`: library and driver may be others, since
 * the library's own table was measured for this library's kernels. */
_Bool tune_header_holds(const struct tune_header *a, const struct tune_header *b, _Bool shipped);

/* Perhaps without rows. NULL: out of memory. */
struct tune_table *tune_load_of_device(const struct tune_places *places, const kjit_device_info *device);

/* For an architecture whose cards are elsewhere: the first table that ships for it. */
struct tune_table *tune_load_of_arch(const struct tune_places *places, const struct family_place *place);

#endif
