/* The builder and the requests that cache_bench measures with: a compiler that copies (fake_nvrtc.h) instead of NVRTC,
 * and sources of one line that differ by a number. */
#include "folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "support/fake_nvrtc.h"

static const char source_text[] = "extern \"C\" __global__ void k() {}\n";

void bench_request_make(struct bench_request *made, long number) {
  *made = (struct bench_request){0};
  snprintf(made->prologue, sizeof made->prologue, "#define KJIT_NUMBER %ld\n#line 1 \"k.cu\"\n", number);
  snprintf(made->label, sizeof made->label, "number %ld", number);
  made->file = (struct source_file){.name = "k.cu", .text = source_text, .bytes = sizeof source_text - 1};
  digest_of(&made->file.digest, source_text, made->file.bytes);
  made->sources = (struct source_set){.files = &made->file, .count = 1, .digest = made->file.digest};
  made->request = (struct jit_request){.family = "custom", .label = made->label, .entry = "k"};
  made->request.target = (struct target){.name = "sm_80", .capability = 80};
  made->request.prologue = made->prologue;
  made->request.sources = &made->sources;
}

struct builder *bench_builder(const struct mem *mem, const struct log *log, const char *path, size_t cubin_bytes,
                              uint32_t max_entries) {
  struct builder_parts parts = {0};
  struct builder *builder = NULL;
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = path;
  options.cache_max_entries = max_entries;
  options.cache_max_bytes = (uint64_t)1 << 40;
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  atomic_store(&fake_nvrtc.cubin_bytes, (long)cubin_bytes);
  if (nvrtc_create_fake(&parts.nvrtc, mem, fake_nvrtc_api(), "nvrtc-bench", NULL) != KJIT_OK) return NULL;
  return builder_create_parts(&builder, &options, mem, log, &parts, NULL) == KJIT_OK ? builder : NULL;
}

static bool plant_one(int folder, long number, const void *data, size_t bytes) {
  struct digest digest;
  struct entry_name name;
  digest_of(&digest, &number, sizeof number);
  entry_name_make(&name, &digest, &digest);
  (void)mkdirat(folder, ENTRY_FOLDER, 0700);
  (void)mkdirat(folder, name.folder, 0700);
  const int file = openat(folder, name.path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0) return false;
  const bool written = write(file, data, bytes) == (ssize_t)bytes;
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1000000 + number, 0}};
  const bool dated = !futimens(file, times);
  return !close(file) && written && dated;
}

bool bench_plant(const char *path, long first, long count, size_t bytes) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY);
  void *data = calloc(1, bytes + 1);
  bool planted = folder >= 0 && data;
  for (long number = first; planted && number < first + count; number++)
    planted = plant_one(folder, number, data, bytes);
  free(data);
  if (folder >= 0) close(folder);
  return planted;
}

bool bench_folder_create(char path[64]) {
  strcpy(path, "/dev/shm/kjit-bench-XXXXXX");
  if (access("/dev/shm", W_OK)) strcpy(path, "/tmp/kjit-bench-XXXXXX");
  return mkdtemp(path) != NULL;
}

static int remove_visit(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status, (void)kind, (void)walk;
  return remove(path);
}

void bench_folder_remove(const char *path) {
  (void)nftw(path, remove_visit, 16, FTW_DEPTH | FTW_PHYS);
}
