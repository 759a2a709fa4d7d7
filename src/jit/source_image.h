/* A source record as bytes: what stands in its file, and what one in memory points into. */
#ifndef KJIT_JIT_SOURCE_IMAGE_H
#define KJIT_JIT_SOURCE_IMAGE_H

#include <stdbool.h>

#include "base/digest.h"
#include "jit/request/custom_request.h"

struct source_image_file {
  uint64_t name, path; /* offsets of strings in the image */
  uint64_t bytes;
  struct digest digest;
};

struct source_image_watch {
  uint64_t path;
  struct file_stamp stamp;
  struct digest digest;
};

struct source_image_head {
  char magic[8];
  uint64_t bytes; /* of the whole image */
  uint64_t check; /* XXH3-64 of all that follows */
  int64_t taken_ns;
  uint64_t everything;
  uint64_t file_count, watch_count; /* the arrays stand behind the head, files first; then the strings */
  struct digest fingerprint;
};

/* Make the image of a collected request. NULL when out of memory, or past the limit of a record. */
struct source_image_head *source_image_make(const struct mem *mem, const struct digest *fingerprint,
                                            const struct custom_request *custom, bool everything, int64_t taken_ns);

/* Magic, sizes, checksum and every offset, for any bytes. `data` is aligned as memory from mem_alloc() is. */
bool source_image_is_sound(const void *data, size_t bytes);

/* The arrays of a sound image, and the string at an offset of it. */
const struct source_image_file *source_image_files(const struct source_image_head *image);
const struct source_image_watch *source_image_watches(const struct source_image_head *image);
const char *source_image_string(const struct source_image_head *image, uint64_t offset);

/* Two megabytes hold the 4096 files of the largest closure with paths of usual length. */
#define SOURCE_IMAGE_LIMIT ((size_t)8 << 20)

#endif
