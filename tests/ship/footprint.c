/* Peak memory of a process whose runtime has COUNT kernels from a bundle: in memory, not loaded
 * into a driver. usage: ship_footprint BUNDLE ARCH COUNT */
#include <kjit/kjit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "VmHWM:  1234 kB" of /proc/self/status, in bytes; 0 where there is none. */
static unsigned long long peak_bytes(void) {
  char line[256];
  unsigned long long kilobytes = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtoull(line + 6, NULL, 10);
  if (status) fclose(status);
  return kilobytes * 1024;
}

/* Both sets in one array, distinct by canonical form in the order of their text. */
static size_t collect(kjit_flash_config *configs, size_t capacity, kjit_error *error) {
  static const char *const sets[] = {"prebuilt", "autotune"};
  size_t count = 0;
  for (size_t s = 0; s < 2; s++) {
    const size_t first = count;
    size_t more = 0;
    if (kjit_flash_config_set(sets[s], configs + first, capacity - first, &more, error) != KJIT_OK) return 0;
    for (size_t i = 0; i < more; i++) {
      const kjit_flash_config config = kjit_flash_config_canonical(&configs[first + i]);
      size_t known = 0;
      while (known < count && kjit_flash_config_compare(&configs[known], &config) != 0)
        known++;
      if (known == count) configs[count++] = config;
    }
  }
  return count;
}

static int get(kjit_runtime *runtime, const kjit_flash_config *config, const char *arch, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  if (kjit_flash_build(runtime, config, arch, KJIT_BUILD_NO_COMPILE, &artifact, error) != KJIT_OK) return 0;
  kjit_artifact_release(artifact);
  return 1;
}

int main(int argc, char **argv) {
  static kjit_flash_config configs[512];
  if (argc != 4) return 2;
  const unsigned long long before = peak_bytes();
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF;
  options.bundle_paths = (const char *const *)&argv[1];
  options.bundle_count = 1;
  const size_t known = collect(configs, 256, &error);
  const size_t wanted = (size_t)strtoul(argv[3], NULL, 10), count = wanted < known ? wanted : known;
  int good = kjit_runtime_create(&runtime, &options, &error) == KJIT_OK;
  for (size_t i = 0; good && i < count; i++)
    good = get(runtime, &configs[i], argv[2], &error);
  if (good)
    printf("%-58s %9llu bytes   the whole process; %llu of it before\n", "peak memory with kernels in memory",
           peak_bytes(), before);
  else
    fprintf(stderr, "%s\n", error.message);
  kjit_runtime_destroy(runtime);
  return good ? 0 : 1;
}
