/* Making a bundle's bytes from kernels: which kernels share a dictionary, what it contains, and where each part goes.
 *
 * Life cycle, driven by bundle_writer.c: bundle_layout_group(); for each group bundle_layout_dictionary() and packing;
 * bundle_layout_write(); bundle_layout_finish(). */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_LAYOUT_H
#define KJIT_JIT_BUNDLE_BUNDLE_LAYOUT_H

#include "base/mem.h"
#include "jit/bundle/bundle_format.h"

/* A kernel to be written: its entry, and the frame that is made of it. */
struct bundle_item {
  struct digest request;
  char arch[BUNDLE_ARCH_BYTES];
  uint8_t *image;     /* mem_free */
  struct entry entry; /* points into it */
  size_t image_bytes;
  uint8_t *packed; /* mem_free */
  size_t packed_bytes;
  uint32_t group;
};

/* The kernels of one architecture: neighbours in the sorted items. */
struct bundle_part {
  const char *arch;
  size_t first, count;
  uint8_t *packed; /* the dictionary's frame, mem_free; NULL: none */
  size_t packed_bytes;
  uint32_t bytes;
};

struct bundle_layout {
  struct bundle_item *items; /* the writer's: sorted in place */
  size_t count;
  struct bundle_part *groups; /* mem_free */
  size_t group_count;
};

/* Sort the items by architecture and label, and find the groups. KJIT_ERR_UNSUPPORTED for too many, KJIT_ERR_NO_MEMORY.
 */
kjit_status bundle_layout_group(struct bundle_layout *layout, const struct mem *mem, kjit_error *error);
void bundle_layout_finish(struct bundle_layout *layout, const struct mem *mem);

/* Make the content of a group's dictionary: every fourth entry in the order of labels, where neighbours are alike. It
 * has 0 bytes for a group that is too small to gain from one. The caller frees `*dictionary` (mem_free). */
kjit_status bundle_layout_dictionary(const struct bundle_layout *layout, const struct bundle_part *group,
                                     const struct mem *mem, uint8_t **dictionary, size_t *bytes, kjit_error *error);

/* Write the whole bundle, once everything is packed. Sorts the items by request. The caller frees `*data` (mem_free).
 */
kjit_status bundle_layout_write(struct bundle_layout *layout, const struct mem *mem, void **data, size_t *bytes,
                                kjit_error *error);

#endif
