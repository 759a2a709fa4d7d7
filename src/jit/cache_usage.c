#include "jit/cache_usage.h"

int cache_usage_publish(struct disk_cache *cache, struct temp_file *temp, int folder, const struct entry_name *name,
                        size_t bytes) {
  (void)bytes;
  return temp_file_publish(temp, cache->ops, folder, name->file);
}
