/* A cache folder to measure in, and what a builder over it is asked for. */
#ifndef KJIT_BENCH_CACHE_FOLDER_H
#define KJIT_BENCH_CACHE_FOLDER_H

#include <stdbool.h>

#include "jit/builder.h"
#include "jit/builder_internal.h"
#include "jit/builder_produce.h"
#include "jit/cache/cache_publish.h"

/* A request whose cubin is a fake: number and size say what comes out. */
struct bench_request {
  char prologue[96], label[32];
  struct source_file file;
  struct source_set sources;
  struct jit_request request;
};
void bench_request_make(struct bench_request *made, long number);

/* A builder over `path`, with a compiler that copies; `cubin_bytes` is the size of every cubin from now on. NULL on
 * failure. */
struct builder *bench_builder(const struct mem *mem, const struct log *log, const char *path, size_t cubin_bytes,
                              uint32_t max_entries);

/* `count` files of `bytes` bytes where entries would be, the `first` and those after it. They are no entries: only
 * their names and sizes count. */
bool bench_plant(const char *path, long first, long count, size_t bytes);

bool bench_folder_create(char path[64]);
void bench_folder_remove(const char *path);

#endif
