/* Head, array of files, array of watches, strings that end in NUL. It is written in this machine's byte order, because
 * the stamps in it mean nothing on another machine. Pure functions over the caller's bytes. */
#include "jit/source_image.h"

#include <string.h>

#include "base/hash.h"

static const char magic[8] = "kjitread";

/* Where the strings begin: behind the two arrays. No overflow, because is_sound() bounds both counts by the image's
 * bytes before it asks. */
static size_t strings_at(uint64_t file_count, uint64_t watch_count) {
  return sizeof(struct source_image_head) + file_count * sizeof(struct source_image_file) +
         watch_count * sizeof(struct source_image_watch);
}

const struct source_image_file *source_image_files(const struct source_image_head *image) {
  return (const struct source_image_file *)(image + 1);
}

const struct source_image_watch *source_image_watches(const struct source_image_head *image) {
  return (const struct source_image_watch *)(source_image_files(image) + image->file_count);
}

const char *source_image_string(const struct source_image_head *image, uint64_t offset) {
  return (const char *)image + offset;
}

/* The checksum of everything behind it. It finds damage; it is no protection, since the folder's rights are. */
static uint64_t check_of(const struct source_image_head *image) {
  const size_t from = offsetof(struct source_image_head, check) + sizeof image->check;
  return hash_64((const char *)image + from, image->bytes - from);
}

/* Is there a string? The image's last byte is a NUL, so that from any such offset a string ends inside the image. */
static bool is_string(const struct source_image_head *image, uint64_t offset) {
  return offset >= strings_at(image->file_count, image->watch_count) && offset < image->bytes;
}

bool source_image_is_sound(const void *data, size_t bytes) {
  const struct source_image_head *image = data;
  if (bytes < sizeof *image || bytes > SOURCE_IMAGE_LIMIT) return false;
  if (memcmp(image->magic, magic, sizeof magic) != 0 || image->bytes != bytes || image->check != check_of(image))
    return false;
  if (!image->file_count || image->file_count > bytes || image->watch_count > bytes) return false;
  if (strings_at(image->file_count, image->watch_count) >= bytes || ((const char *)data)[bytes - 1]) return false;
  for (uint64_t i = 0; i < image->file_count; i++) {
    const struct source_image_file *file = &source_image_files(image)[i];
    if (!is_string(image, file->name) || !is_string(image, file->path)) return false;
  }
  for (uint64_t i = 0; i < image->watch_count; i++)
    if (!is_string(image, source_image_watches(image)[i].path)) return false;
  return true;
}

static const char *path_of(const struct source_file *file) {
  return file->path ? file->path : file->name;
}

/* Append a string; its offset, by which the image refers to it, because pointers mean nothing in a file. */
static uint64_t put_string(char *data, size_t *at, const char *text) {
  const size_t start = *at, bytes = strlen(text) + 1;
  memcpy(data + start, text, bytes);
  *at += bytes;
  return start;
}

static void fill(struct source_image_head *image, const struct source_set *set, const struct include_watch *watches) {
  struct source_image_file *files = (struct source_image_file *)(image + 1);
  struct source_image_watch *list = (struct source_image_watch *)(files + image->file_count);
  char *data = (char *)image;
  size_t at = strings_at(image->file_count, image->watch_count);
  for (size_t i = 0; i < image->file_count; i++) {
    const struct source_file *file = &set->files[i];
    files[i] = (struct source_image_file){.bytes = file->bytes, .digest = file->digest};
    files[i].name = put_string(data, &at, file->name);
    files[i].path = put_string(data, &at, path_of(file));
  }
  for (size_t i = 0; i < image->watch_count; i++) {
    list[i] = (struct source_image_watch){.stamp = watches[i].stamp, .digest = watches[i].digest};
    list[i].path = put_string(data, &at, watches[i].path);
  }
}

/* The size is summed up first, so that the image is one allocation. NULL also for an image beyond the limit: such
 * sources are walked again each time. */
struct source_image_head *source_image_make(const struct mem *mem, const struct digest *fingerprint,
                                            const struct custom_request *custom, bool everything, int64_t taken_ns) {
  const struct source_set *set = custom->request.sources;
  const struct include_watch *watches;
  size_t watch_count;
  if (!custom_request_watches(custom, &watches, &watch_count)) return NULL;
  size_t bytes = strings_at(set->count, watch_count);
  for (size_t i = 0; i < set->count; i++)
    bytes += strlen(set->files[i].name) + strlen(path_of(&set->files[i])) + 2;
  for (size_t i = 0; i < watch_count; i++)
    bytes += strlen(watches[i].path) + 1;
  struct source_image_head *image = bytes <= SOURCE_IMAGE_LIMIT ? mem_alloc(mem, bytes) : NULL;
  if (!image) return NULL;
  *image = (struct source_image_head){.bytes = bytes,
                                      .taken_ns = taken_ns,
                                      .everything = everything,
                                      .file_count = set->count,
                                      .watch_count = watch_count,
                                      .fingerprint = *fingerprint};
  memcpy(image->magic, magic, sizeof magic);
  fill(image, set, watches);
  image->check = check_of(image);
  return image;
}
