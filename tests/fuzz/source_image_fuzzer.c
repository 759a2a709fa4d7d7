/* Any bytes as the record of what a source includes (jit/source_image.h): what is taken as sound can be read to its
 * last string. The checksum is set right first, otherwise the offsets behind it would hardly ever be reached. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fuzz/require.h"
#include "jit/source_image.h"

static size_t read_strings(const struct source_image_head *image) {
  size_t bytes = 0;
  if (image->file_count) input_is_taken();
  for (uint64_t i = 0; i < image->file_count; i++) {
    bytes += strlen(source_image_string(image, source_image_files(image)[i].name));
    bytes += strlen(source_image_string(image, source_image_files(image)[i].path));
  }
  for (uint64_t i = 0; i < image->watch_count; i++)
    bytes += strlen(source_image_string(image, source_image_watches(image)[i].path));
  return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct source_image_head *image = malloc(size + 1);
  if (!image) return 0;
  memcpy(image, data, size);
  if (source_image_is_sound(image, size)) (void)read_strings(image);
  if (size >= sizeof *image) {
    const size_t from = offsetof(struct source_image_head, check) + sizeof image->check;
    memcpy(image->magic, "kjitread", sizeof image->magic);
    image->bytes = size;
    image->check = hash_64((const char *)image + from, size - from);
    if (source_image_is_sound(image, size) && read_strings(image) > size * size) abort();
  }
  free(image);
  return 0;
}
