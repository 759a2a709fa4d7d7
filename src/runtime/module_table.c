/* The table of a runtime's modules: references, the list of idle ones, and unloading.
 *
 * All counting is done under the table's lock; driver calls are not. module_table_trim() has three steps: it notes,
 * under the lock, which devices the oldest idle modules were launched on and the table's clock; without the lock it
 * waits for those devices' primary contexts; under the lock it takes out those modules that were idle before the wait
 * and still are. A module that somebody took meanwhile has left the list, and one that came back later has a newer
 * clock, so what goes is neither held nor running. */
#include "base/table.h"

#include <assert.h>
#include <stdbool.h>

#include "runtime/module.h"
#include "runtime/primary.h"

bool module_table_init(struct module_table *table, const struct mem *mem, kjit_runtime *runtime, struct gpu *gpu,
                       uint64_t idle_max) {
  if (pthread_mutex_init(&table->lock, NULL)) return false;
  table->mem = mem;
  table->runtime = runtime;
  table->gpu = gpu;
  table->idle_max = idle_max;
  return true;
}

uint64_t module_table_finish(struct module_table *table) {
  const struct mem *mem = table->mem;
  uint64_t held = 0;
  struct kjit_module *module, *next;
  HASH_ITER(hh, table->modules, module, next) {
    HASH_DEL(table->modules, module);
    held += module->references;
    module_destroy(module);
  }
  pthread_mutex_destroy(&table->lock);
  return held;
}

static struct kjit_module *make(struct module_table *table, const struct digest *digest) {
  struct kjit_module *const module =
      mem_alloc(table->mem, sizeof *module + table->gpu->device_count * sizeof module->launched_on[0]);
  if (!module) return NULL;
  module->digest = *digest;
  module->runtime = table->runtime;
  module->lock = &table->lock;
  module->gpu = table->gpu;
  module->cu = &table->gpu->driver.cu;
  return module;
}

/* -- The list of idle modules; with the lock held ------------------------------------------------------------------ */

static void idle_remove(struct module_table *table, struct kjit_module *module) {
  if (!module->idle) return;
  *(module->before ? &module->before->after : &table->idle_oldest) = module->after;
  *(module->after ? &module->after->before : &table->idle_newest) = module->before;
  module->before = module->after = NULL;
  module->idle = false;
  table->idle_count--;
}

static void idle_append(struct module_table *table, struct kjit_module *module) {
  module->idle_since = ++table->clock;
  if (atomic_load_explicit(&module->stays, memory_order_relaxed)) return;
  module->before = table->idle_newest;
  *(table->idle_newest ? &table->idle_newest->after : &table->idle_oldest) = module;
  table->idle_newest = module;
  module->idle = true;
  table->idle_count++;
}

/* -- References --------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static struct kjit_module *take_known(struct module_table *table, const struct digest *digest) {
  struct kjit_module *module;
  HASH_FIND(hh, table->modules, digest, sizeof *digest, module);
  if (!module) return NULL;
  idle_remove(table, module);
  module->references++;
  return module;
}

/* With the lock held. */
static bool add(struct module_table *table, struct kjit_module *module) {
  const struct mem *mem = table->mem;
  bool added = true;
  HASH_ADD(hh, table->modules, digest, sizeof module->digest, module);
  return added;
}

struct kjit_module *module_table_take(struct module_table *table, const struct digest *digest) {
  pthread_mutex_lock(&table->lock);
  struct kjit_module *module = take_known(table, digest);
  pthread_mutex_unlock(&table->lock);
  if (module) return module;

  struct kjit_module *unused = make(table, digest);
  if (!unused) return NULL;
  pthread_mutex_lock(&table->lock);
  module = take_known(table, digest);
  if (!module && add(table, unused)) {
    module = unused;
    module->references = 1;
    unused = NULL;
  }
  pthread_mutex_unlock(&table->lock);
  mem_free(table->mem, unused);
  return module;
}

void module_table_hold(struct module_table *table, struct kjit_module *module) {
  pthread_mutex_lock(&table->lock);
  module->references++;
  pthread_mutex_unlock(&table->lock);
}

void module_table_give_back(struct module_table *table, struct kjit_module *module) {
  pthread_mutex_lock(&table->lock);
  if (--module->references == 0) idle_append(table, module);
  pthread_mutex_unlock(&table->lock);
}

/* -- Unloading ---------------------------------------------------------------------------------------------------- */

/* Unload down to one eighth below the bound, so that one wait pays for many modules. */
static uint64_t trim_to(struct module_table *table) {
  return table->idle_max - table->idle_max / 8;
}

/* Wait for a device's primary context. If it does not exist, nothing runs in it, and retaining it would create it. */
static bool wait_for_device(const struct driver_api *cu, CUdevice device) {
  unsigned int flags;
  int active = 0;
  if (cu->DevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS) return false;
  if (!active) return true;
  if (!primary_enter(cu, device)) return false;
  const bool done = cu->CtxSynchronize() == CUDA_SUCCESS;
  primary_leave(cu, device);
  return done;
}

static bool can_wait(const struct driver_api *cu) {
  return cu->DevicePrimaryCtxGetState && cu->DevicePrimaryCtxRetain && cu->DevicePrimaryCtxRelease &&
         cu->CtxPushCurrent && cu->CtxPopCurrent && cu->CtxSynchronize;
}

/* Wait until everything that the oldest modules launched is done. Waiting while some thread captures a stream in the
 * global mode would end its capture, hence the relaxed mode. Where the driver refuses to wait, nothing is unloaded. */
static bool wait_for_devices(struct module_table *table, const bool *used) {
  const struct driver_api *const cu = &table->gpu->driver.cu;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool done = true;
  (void)cu->ThreadExchangeStreamCaptureMode(&mode);
  for (uint32_t i = 0; i < table->gpu->device_count && done; i++)
    if (used[i]) done = wait_for_device(cu, table->gpu->devices[i].handle);
  (void)cu->ThreadExchangeStreamCaptureMode(&mode);
  return done;
}

/* Find the devices on which the oldest modules were launched. Returns the table's clock, or 0 when nothing is to be
 * unloaded. */
static uint64_t look_at_oldest(struct module_table *table, bool *used) {
  uint64_t now = 0;
  pthread_mutex_lock(&table->lock);
  if (table->idle_count > table->idle_max) {
    uint64_t excess = table->idle_count - trim_to(table);
    for (struct kjit_module *module = table->idle_oldest; module && excess; module = module->after, excess--)
      for (uint32_t i = 0; i < table->gpu->device_count; i++)
        if (atomic_load_explicit(&module->launched_on[i], memory_order_relaxed)) used[i] = 1;
    now = table->clock;
  }
  pthread_mutex_unlock(&table->lock);
  return now;
}

/* True when all devices of a module were waited for. One that became one of the oldest after the look stays. */
static bool was_waited_for(const struct module_table *table, const struct kjit_module *module, const bool *used) {
  for (uint32_t i = 0; i < table->gpu->device_count; i++)
    if (!used[i] && atomic_load_explicit(&module->launched_on[i], memory_order_relaxed)) return false;
  return true;
}

static struct kjit_module *take_out(struct module_table *table, uint64_t until, const bool *used) {
  const struct mem *mem = table->mem;
  struct kjit_module *out = NULL;
  pthread_mutex_lock(&table->lock);
  while (table->idle_count > trim_to(table)) {
    struct kjit_module *const module = table->idle_oldest;
    assert(module && table->modules);
    if (module->idle_since > until || !was_waited_for(table, module, used)) break;
    idle_remove(table, module);
    HASH_DEL(table->modules, module);
    module->after = out;
    out = module;
  }
  pthread_mutex_unlock(&table->lock);
  return out;
}

static bool is_over(struct module_table *table) {
  pthread_mutex_lock(&table->lock);
  const bool over = table->idle_count > table->idle_max;
  pthread_mutex_unlock(&table->lock);
  return over;
}

uint64_t module_table_trim(struct module_table *table) {
  uint64_t count = 0;
  if (!is_over(table) || !can_wait(&table->gpu->driver.cu)) return 0;
  bool *const used = mem_alloc_array(table->mem, table->gpu->device_count, sizeof *used);
  if (!used) return 0;
  const uint64_t until = look_at_oldest(table, used);
  if (until && wait_for_devices(table, used)) {
    for (struct kjit_module *module = take_out(table, until, used), *next; module; module = next) {
      next = module->after;
      module_destroy(module);
      count++;
    }
  }
  mem_free(table->mem, used);
  return count;
}
