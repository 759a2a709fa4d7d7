/* What a runtime with COUNT kernels from a bundle takes: of the process, and of the allocator that it was given.
 *
 *   ship_footprint BUNDLE ARCH COUNT memory   in host memory, not loaded
 *   ship_footprint BUNDLE ARCH COUNT loaded   loaded and launched once; with KJIT_LIBCUDA naming a driver that only
 *                                             counts (libfake_driver.so, which is an sm_90), so kjit's part alone
 *   ship_footprint BUNDLE ARCH COUNT gpu      the same on the GPU: with the driver's part, in host and device memory */
#include "support/configs.h"
#include <kjit/kjit.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/card.h"

#define SEQ         64
#define HEADS       2
#define MOST_HEAD   256
#define TENSOR_STEP ((size_t)SEQ * HEADS * MOST_HEAD * 2) /* bytes between two tensors */

/* Bytes that an allocation is preceded by, for its size: keeps the alignment of any type. */
#define ROOM 16

struct counted {
  atomic_size_t live, most;
};

struct footprint {
  const char *arch;
  size_t count; /* of configs */
  kjit_flash_config configs[256];
  struct counted memory;
  size_t live_at_first; /* with one kernel */
  kjit_runtime *runtime;
  struct card card;
  struct card_buffer tensors; /* where the GPU is real */
  size_t free_before, free_after;
  unsigned long long cubin_bytes, process_before;
};

static void *allocate(void *user, size_t bytes) {
  struct counted *counted = user;
  unsigned char *memory = malloc(ROOM + bytes);
  if (!memory) return NULL;
  memcpy(memory, &bytes, sizeof bytes);
  const size_t live = atomic_fetch_add(&counted->live, bytes) + bytes;
  if (live > atomic_load(&counted->most)) atomic_store(&counted->most, live); /* one thread */
  return memory + ROOM;
}

static void release(void *user, void *memory) {
  struct counted *counted = user;
  size_t bytes;
  if (!memory) return;
  memcpy(&bytes, (unsigned char *)memory - ROOM, sizeof bytes);
  atomic_fetch_sub(&counted->live, bytes);
  free((unsigned char *)memory - ROOM);
}

/* "VmHWM:  1234 kB" of /proc/self/status, in bytes; 0 where there is none. */
static unsigned long long process_peak(void) {
  char line[256];
  unsigned long long kilobytes = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, "VmHWM:", 6) == 0) kilobytes = strtoull(line + 6, NULL, 10);
  if (status) fclose(status);
  return kilobytes * 1024;
}

/* The sets in one array, distinct by canonical form in the order of their text. */
static kjit_status collect(struct footprint *f, kjit_error *error) {
  static const char *const sets[] = {"prebuilt", "autotune", "progression_all"};
  const size_t capacity = sizeof f->configs / sizeof *f->configs;
  size_t count = 0;
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
    const size_t first = count;
    size_t more = 0;
    const kjit_status status = kjit_flash_config_set(sets[s], f->configs + first, capacity - first, &more, error);
    if (status != KJIT_OK) return status;
    for (size_t i = 0; i < more; i++) {
      const kjit_flash_config config = plain_canonical(&f->configs[first + i]);
      size_t known = 0;
      while (known < count && plain_compare(&f->configs[known], &config) != 0)
        known++;
      if (known == count) f->configs[count++] = config;
    }
  }
  if (f->count > count) f->count = count;
  return KJIT_OK;
}

static kjit_status open_runtime(struct footprint *f, const char *const *bundle, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.allocator = (kjit_allocator){allocate, release, &f->memory};
  options.cache_mode = KJIT_CACHE_OFF;
  options.bundle_paths = bundle;
  options.bundle_count = 1;
  return kjit_runtime_create(&f->runtime, &options, error);
}

static kjit_status get(struct footprint *f, const kjit_flash_config *config, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = plain_build(f->runtime, config, f->arch, KJIT_BUILD_NO_COMPILE, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  f->cubin_bytes += info.cubin_bytes;
  kjit_artifact_release(artifact);
  return status;
}

/* The fake driver takes any address. */
static kjit_status launch(struct footprint *f, const kjit_flash_config *config, kjit_error *error) {
  kjit_attention_args args = kjit_attention_args_default();
  kjit_tensor *const tensors[] = {&args.q, &args.k, &args.v, &args.o};
  const CUdeviceptr first = f->tensors.address ? f->tensors.address : TENSOR_STEP;
  for (size_t i = 0; i < 4; i++)
    *tensors[i] = kjit_tensor_bshd((void *)(uintptr_t)(first + i * TENSOR_STEP), (kjit_dtype)config->dtype, 0, 1, SEQ,
                                   HEADS, config->d_head);
  return plain_forward(f->runtime, config, &args, f->card.stream, error);
}

static kjit_status use_all(struct footprint *f, bool loaded, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < f->count && status == KJIT_OK; i++) {
    if (loaded) status = launch(f, &f->configs[i], error);
    if (status == KJIT_OK) status = get(f, &f->configs[i], error);
    if (i == 0) f->live_at_first = atomic_load(&f->memory.live);
  }
  return status;
}

/* What the driver and a context cost is not ours: it is there before. */
static kjit_status open_card(struct footprint *f, kjit_error *error) {
  kjit_status status = card_open(&f->card, 0, error);
  if (status == KJIT_OK) status = card_buffer_create(&f->card, &f->tensors, 4 * TENSOR_STEP, error);
  size_t total;
  if (status == KJIT_OK)
    status = card_result(&f->card, f->card.api.memory_info(&f->free_before, &total), "cuMemGetInfo", error);
  return status;
}

static kjit_status measure_card(struct footprint *f, kjit_error *error) {
  size_t total;
  const kjit_status status = card_synchronize(&f->card, f->card.stream, error);
  if (status != KJIT_OK) return status;
  return card_result(&f->card, f->card.api.memory_info(&f->free_after, &total), "cuMemGetInfo", error);
}

static void print_row(const char *what, const char *mode, unsigned long long bytes, unsigned long long other,
                      const char *of_it) {
  char label[96];
  snprintf(label, sizeof label, "%s (%s)", what, mode);
  printf("%-58s %9llu bytes   %llu %s\n", label, bytes, other, of_it);
}

static void print_all(const struct footprint *f, const char *mode) {
  const unsigned long long live = atomic_load(&f->memory.live), most = atomic_load(&f->memory.most);
  const unsigned long long count = f->count, device = f->free_before - f->free_after;
  char with[64];
  snprintf(with, sizeof with, "peak of a process with %llu kernels", count);
  print_row(with, mode, process_peak(), f->process_before, "before there was a runtime");
  print_row("peak of the runtime's allocator", mode, most, live, "at the end");
  print_row("of it for each kernel after the first", mode, (live - f->live_at_first) / (count - 1),
            f->cubin_bytes / count, "is a cubin's mean size");
  if (f->free_before) print_row("device memory for each kernel", mode, device / count, device, "in all");
}

static void end(struct footprint *f) {
  kjit_runtime_destroy(f->runtime);
  card_buffer_destroy(&f->card, &f->tensors);
  card_close(&f->card);
}

int main(int argc, char **argv) {
  static struct footprint f;
  kjit_error error = {0};
  if (argc != 5) return 2;
  const char *const mode = argv[4];
  const bool on_gpu = strcmp(mode, "gpu") == 0, loaded = on_gpu || strcmp(mode, "loaded") == 0;
  if (!loaded && strcmp(mode, "memory") != 0) return 2;
  f.arch = argv[2];
  f.count = (size_t)strtoul(argv[3], NULL, 10);
  kjit_status status = collect(&f, &error);
  if (status == KJIT_OK && f.count < 2) return 2;
  if (status == KJIT_OK && on_gpu) status = open_card(&f, &error);
  f.process_before = process_peak();
  if (status == KJIT_OK) status = open_runtime(&f, (const char *const *)&argv[1], &error);
  if (status == KJIT_OK) status = use_all(&f, loaded, &error);
  if (status == KJIT_OK && on_gpu) status = measure_card(&f, &error);
  if (status == KJIT_OK)
    print_all(&f, mode);
  else
    fprintf(stderr, "%s\n", error.message);
  end(&f);
  return status == KJIT_OK ? 0 : status == KJIT_ERR_NO_DRIVER ? 3 : 1;
}
