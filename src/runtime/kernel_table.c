#include "base/mem.h"

/* uthash's own memory comes from the table's allocator; running out of it is an answer, not the end of the process. */
#define HASH_NONFATAL_OOM        1
#define uthash_malloc(bytes)     mem_alloc(table->mem, bytes)
#define uthash_free(memory, n)   mem_free(table->mem, memory)
#define uthash_nonfatal_oom(obj) (added = 0)

#include "runtime/kernel.h"

_Bool kernel_table_init(struct kernel_table *table, const struct mem *mem, kjit_runtime *runtime, struct gpu *gpu) {
  if (pthread_mutex_init(&table->lock, NULL)) return 0;
  table->mem = mem;
  table->runtime = runtime;
  table->gpu = gpu;
  table->kernels = NULL;
  return 1;
}

uint64_t kernel_table_finish(struct kernel_table *table) {
  uint64_t borrowed = 0;
  struct kjit_kernel *kernel, *next;
  HASH_ITER(hh, table->kernels, kernel, next) {
    HASH_DEL(table->kernels, kernel);
    borrowed += atomic_load_explicit(&kernel->borrowed, memory_order_relaxed);
    kernel_unload(kernel);
    mem_free(table->mem, kernel);
  }
  pthread_mutex_destroy(&table->lock);
  return borrowed;
}

static struct kjit_kernel *make(const struct kernel_table *table, const struct digest *digest) {
  const size_t tail = table->gpu->device_count * sizeof(struct kernel_on_device);
  struct kjit_kernel *const kernel = mem_alloc(table->mem, sizeof *kernel + tail);
  if (!kernel) return NULL;
  kernel->digest = *digest;
  kernel->runtime = table->runtime;
  kernel->gpu = table->gpu;
  kernel->cu = &table->gpu->driver.cu;
  return kernel;
}

/* With the lock held. */
static struct kjit_kernel *find(const struct kernel_table *table, const struct digest *digest) {
  struct kjit_kernel *kernel;
  HASH_FIND(hh, table->kernels, digest, sizeof *digest, kernel);
  return kernel;
}

/* With the lock held. */
static _Bool add(struct kernel_table *table, struct kjit_kernel *kernel) {
  _Bool added = 1;
  HASH_ADD(hh, table->kernels, digest, sizeof kernel->digest, kernel);
  return added;
}

struct kjit_kernel *kernel_table_intern(struct kernel_table *table, const struct digest *digest) {
  pthread_mutex_lock(&table->lock);
  struct kjit_kernel *kernel = find(table, digest);
  pthread_mutex_unlock(&table->lock);
  if (kernel) return kernel;

  struct kjit_kernel *unused = make(table, digest);
  if (!unused) return NULL;
  pthread_mutex_lock(&table->lock);
  kernel = find(table, digest);
  if (!kernel && add(table, unused)) {
    kernel = unused;
    unused = NULL;
  }
  pthread_mutex_unlock(&table->lock);
  mem_free(table->mem, unused);
  return kernel;
}
