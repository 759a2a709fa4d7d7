/* A cubin in the driver with the kernels that were asked for of it, and the table of all of a runtime's.
 *
 * A reference to a module or to one of its kernels counts on the module. While there is one the module stays in the
 * driver. The last one given back puts it into the list of idle modules, from which module_table_trim() unloads the
 * oldest when there are more than the runtime's bound. The families' kernels, and whatever else nobody may unload,
 * `stay`: they never enter that list. */
#ifndef KJIT_RUNTIME_MODULE_H
#define KJIT_RUNTIME_MODULE_H

#include <stdbool.h>
#include <uthash.h>

#include <kjit/module.h>

#include "base/digest.h"
#include "jit/artifact.h"
#include "jit/builder.h"
#include "runtime/gpu.h"

/* What a launch on one device must know. */
struct kernel_on_device {
  /* 1 + the dynamic shared memory that a launch may ask for now; 0: nothing is known yet. Written last. */
  _Atomic(uint32_t) allowed;
  uint32_t static_shared;
  uint32_t max_threads;         /* per block, by registers and __launch_bounds__ */
  _Atomic(bool) large_clusters; /* the driver was told that clusters may have more than 8 blocks */
};

/* Most parameters: together they take at most 32,764 bytes, so there cannot be more. */
#define KERNEL_PARAMETERS_MAX     32764
#define KERNEL_PARAMETERS_UNKNOWN SIZE_MAX /* neither the cubin nor the driver says */

/* Belongs to its module and ends with it. */
struct kjit_kernel {
  struct kjit_module *module;
  struct kjit_kernel *next; /* of the module */
  kjit_runtime *runtime;
  struct gpu *gpu;
  const struct driver_api *cu;
  char *name; /* as the cubin has it */
  CUkernel handle;
  size_t parameter_count;              /* or KERNEL_PARAMETERS_UNKNOWN */
  uint32_t *parameter_bytes;           /* of each */
  struct gate preparing;               /* never opens: lets one thread at a time ask about devices */
  struct kernel_on_device on_device[]; /* gpu->device_count */
};

struct kjit_module {
  struct digest digest; /* of the artifact that was asked for: the table's key */
  UT_hash_handle hh;
  kjit_runtime *runtime;
  struct gpu *gpu;
  const struct driver_api *cu;
  pthread_mutex_t *lock; /* the table's */

  struct gate loaded; /* open: everything up to `target` is filled */
  kjit_artifact *artifact;
  CUlibrary library;
  struct target target;

  bool rebuilt;                       /* its artifact was refused once; touched by the loader only */
  _Atomic(bool) stays;                /* never unloaded before the runtime ends */
  struct kjit_kernel *kernels;        /* under the table's lock, as all below */
  uint64_t references;                /* handed out and not given back */
  uint64_t idle_since;                /* the table's clock when the last reference came back */
  struct kjit_module *before, *after; /* in the list of idle ones */
  bool idle;                          /* is in that list */
  _Atomic(bool) launched_on[];        /* gpu->device_count: kjit_kernel_launch() used it there */
};

/* Hand an artifact to the driver, into a record whose gate is this thread's. `entry` is looked up in it at once, so
 * that a driver that reads the image late refuses it now; NULL: the whole image is read instead. On success the module
 * holds a reference of its own to the artifact; on failure it is as before. KJIT_ERR_DRIVER, KJIT_ERR_NO_DRIVER,
 * KJIT_ERR_INTERNAL. */
kjit_status module_load(struct kjit_module *module, kjit_artifact *artifact, const struct target *target,
                        const char *entry, kjit_error *error);

/* Does a failure of module_load() say that the cubin itself is bad, so that another build of it may be accepted? */
bool module_load_was_refused(const kjit_error *error);

/* A kernel of a loaded module by its name in the cubin or by a name expression of the request; made on first use. The
 * module must be held. Thread-safe. KJIT_ERR_DRIVER, KJIT_ERR_NO_DRIVER, KJIT_ERR_NO_MEMORY. */
kjit_status module_find_kernel(struct kjit_module *module, const char *name, struct kjit_kernel **out,
                               kjit_error *error);

/* Take it out of the driver and free it. Accepts one that is not loaded. */
void module_destroy(struct kjit_module *module);

struct module_table {
  const struct mem *mem;
  kjit_runtime *runtime;
  struct gpu *gpu;
  pthread_mutex_t lock; /* held for look-ups and counting alone */
  struct kjit_module *modules;
  struct kjit_module *idle_oldest, *idle_newest;
  uint64_t idle_count, idle_max, clock;
};

/* False: the system is out of resources. */
bool module_table_init(struct module_table *table, const struct mem *mem, kjit_runtime *runtime, struct gpu *gpu,
                       uint64_t idle_max);

/* Unload and free everything. Nobody may be using the table.
 * @return references to modules and kernels that were handed out and never given back */
uint64_t module_table_finish(struct module_table *table);

/* The record for a digest, with a reference for the caller; made when there is none, perhaps not loaded yet. The driver
 * must be open. NULL: out of memory. Thread-safe. */
struct kjit_module *module_table_take(struct module_table *table, const struct digest *digest);

/* One more reference to what somebody holds, and one less. Thread-safe. */
void module_table_hold(struct module_table *table, struct kjit_module *module);
void module_table_give_back(struct module_table *table, struct kjit_module *module);

/* Unload the oldest idle modules while there are more than the bound. Waits for the primary contexts in which they were
 * launched; unloads nothing when it cannot. @return how many went. Thread-safe. */
uint64_t module_table_trim(struct module_table *table);

/* Build and load; the reference is the caller's. `entry` as for module_load(). */
kjit_status module_get(kjit_runtime *runtime, const struct jit_request *request, const char *entry,
                       struct kjit_module **out, kjit_error *error);

#endif
