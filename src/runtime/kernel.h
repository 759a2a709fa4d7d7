/* A kernel in the driver, and the table of all of a runtime's. Kernels live as long as their runtime. */
#ifndef KJIT_RUNTIME_KERNEL_H
#define KJIT_RUNTIME_KERNEL_H

#include <uthash.h>

#include "base/digest.h"
#include "jit/builder.h"
#include "runtime/gpu.h"

/* What a launch on one device must know. */
struct kernel_on_device {
  /* 1 + the dynamic shared memory that a launch may ask for now; 0: nothing is known yet. Written last. */
  _Atomic(uint32_t) allowed;
  uint32_t static_shared;
  uint32_t max_threads; /* per block, by registers and __launch_bounds__ */
};

#define KERNEL_PARAMETERS_UNKNOWN SIZE_MAX /* neither the cubin nor the driver says */

struct kjit_kernel {
  struct digest digest; /* of the artifact that was asked for: the table's key */
  UT_hash_handle hh;
  kjit_runtime *runtime;
  struct gpu *gpu;
  const struct driver_api *cu;

  struct gate loaded; /* open: everything up to `target` is filled */
  kjit_artifact *artifact;
  const char *name; /* borrowed from the artifact */
  CUlibrary library;
  CUkernel handle;
  size_t parameter_count; /* or KERNEL_PARAMETERS_UNKNOWN */
  size_t parameter_bytes; /* of the first */
  struct target target;

  _Bool rebuilt;                       /* its artifact was refused once; touched by the loader only */
  _Atomic(uint32_t) borrowed;          /* references handed out and not given back */
  struct gate preparing;               /* never opens: lets one thread at a time ask about devices */
  struct kernel_on_device on_device[]; /* gpu->device_count */
};

/* Hand an artifact to the driver, into a record whose gate is this thread's. On success the kernel holds a reference
 * of its own to the artifact; on failure it is as before. KJIT_ERR_DRIVER, KJIT_ERR_NO_DRIVER, KJIT_ERR_INTERNAL. */
kjit_status kernel_load(struct kjit_kernel *kernel, kjit_artifact *artifact, const struct target *target,
                        kjit_error *error);

/* Does a failure of kernel_load() say that the cubin itself is bad, so that another build of it may be accepted? */
_Bool kernel_load_was_refused(const kjit_error *error);

/* Take it out of the driver and let go of the artifact. Accepts one that is not loaded. */
void kernel_unload(struct kjit_kernel *kernel);

struct kernel_table {
  const struct mem *mem;
  kjit_runtime *runtime;
  struct gpu *gpu;
  pthread_mutex_t lock; /* of `kernels`; held for look-ups alone */
  struct kjit_kernel *kernels;
};

/* False: the system is out of resources. */
_Bool kernel_table_init(struct kernel_table *table, const struct mem *mem, kjit_runtime *runtime, struct gpu *gpu);

/* Unload and free everything. Nobody may be using the table.
 * @return references to kernels that were handed out and never given back */
uint64_t kernel_table_finish(struct kernel_table *table);

/* The record for a digest, made when there is none; perhaps not loaded yet. The driver must be open. NULL: out of
 * memory. Thread-safe. */
struct kjit_kernel *kernel_table_intern(struct kernel_table *table, const struct digest *digest);

#endif
