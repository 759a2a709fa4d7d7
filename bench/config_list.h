/* Which configs to sweep over: named one by one, from a file, a set, or generated from block shapes and flags. */
#ifndef KJIT_BENCH_CONFIG_LIST_H
#define KJIT_BENCH_CONFIG_LIST_H

#include <kjit/flash_forward.h>

/* The configs in canonical form, each once, so that each item has its own machine code. */
struct config_list {
  kjit_flash_config *items;
  size_t count;
  size_t refused; /* configs that break a rule, or cannot run on `arch` */
  const char *arch;
};

/* All return KJIT_OK, or an error that names what is wrong. What breaks a rule of the family is counted, not an error.
 */
kjit_status config_list_add(struct config_list *list, const kjit_flash_config *config, kjit_error *error);
kjit_status config_list_add_text(struct config_list *list, const char *short_form, kjit_error *error);

/* One short form a line; blank lines and lines that begin with # are left out. */
kjit_status config_list_add_file(struct config_list *list, const char *path, kjit_error *error);

/* Those of a named set that have this type and head size. */
kjit_status config_list_add_set(struct config_list *list, const char *name, int32_t dtype, int64_t head_dim,
                                kjit_error *error);

#define CONFIG_LIST_ALL_FLAGS 0x1u /* also without async_copy, eager_load_blocks, swizzled; else those are on */
#define CONFIG_LIST_ALL_LOADS 0x2u /* fragment counts of 0, 2, 4 and 8; else 0 and 2                          */

/* `blocks` is "B_r x B_c x n_warps" as in "64x64x4,128x32x4". For each: all fragment counts, both softmaxes, buffered
 * or not; `what` asks for more. */
kjit_status config_list_add_blocks(struct config_list *list, const char *blocks, unsigned what, int32_t dtype,
                                   int64_t head_dim, kjit_error *error);

void config_list_free(struct config_list *list);

#endif
