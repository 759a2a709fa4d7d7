/* The connection to the GPUs: libcuda opened once, cuInit(), the list of devices, the device that is current on a
 * thread.
 *
 * 1. gpu_open() opens the driver on the first call that needs it. A gate (base/threads/gate.h) lets one thread try
 * while others wait; after a failure the next caller tries again.
 * 2. gpu_device() reads a device's properties on first use, behind a gate of its own.
 * 3. gpu_current() asks the driver which device is current on the calling thread; every launch does, unless there is
 * one device.
 *
 * A process that was forked after CUDA had started is refused with a sentence, because CUDA's state does not survive
 * fork() and the driver would crash or hang. `owner` is the process that started CUDA. All functions but gpu_init() and
 * gpu_finish() may be called by any thread. */
#include "runtime/gpu.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* A bound on the driver's answer: more devices than any machine has mean that the answer is wrong. */
#define DEVICES_MAX 1024

kjit_status gpu_init(struct gpu *gpu, const struct mem *mem, struct gate_keeper *keeper, const char *path,
                     const struct driver_api *fake, kjit_error *error) {
  *gpu = (struct gpu){.mem = mem, .keeper = keeper, .fake = fake};
  gpu->path = mem_strdup(mem, path);
  return path && !gpu->path ? error_no_memory(error) : KJIT_OK;
}

void gpu_finish(struct gpu *gpu) {
  if (!gpu->mem) return;
  mem_free(gpu->mem, gpu->devices);
  mem_free(gpu->mem, gpu->path);
}

bool gpu_is_forked(const struct gpu *gpu) {
  const int owner = atomic_load_explicit(&gpu->owner, memory_order_acquire);
  return owner != 0 && owner != (int)getpid();
}

static kjit_status refuse_forked(kjit_error *error) {
  return error_set(error, KJIT_ERR_NO_DRIVER,
                   "CUDA was started before this process was forked, and its state does not survive fork(): start it "
                   "after the fork, or exec(); " DRIVER_WORKS_WITHOUT);
}

/* Ask for the devices' handles. Their properties are read later, each on first use. */
static kjit_status list_devices(struct gpu *gpu, kjit_error *error) {
  const struct driver_api *const cu = &gpu->driver.cu;
  int count = 0;
  CUresult result = cu->DeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return driver_fail(cu, KJIT_ERR_NO_DRIVER, result, error, "cuDeviceGetCount");
  if (count < 0 || count > DEVICES_MAX) {
    return error_set(error, KJIT_ERR_NO_DRIVER, "the CUDA driver claims %d devices", count);
  }
  gpu->devices = mem_alloc_array(gpu->mem, (size_t)count, sizeof *gpu->devices);
  if (!gpu->devices) return error_no_memory(error);
  for (int i = 0; i < count; i++) {
    result = cu->DeviceGet(&gpu->devices[i].handle, i);
    if (result != CUDA_SUCCESS) return driver_fail(cu, KJIT_ERR_NO_DRIVER, result, error, "cuDeviceGet(%d)", i);
  }
  gpu->device_count = (uint32_t)count;
  return KJIT_OK;
}

static kjit_status start(struct gpu *gpu, kjit_error *error) {
  const struct driver_api *const cu = &gpu->driver.cu;
  const CUresult result = cu->Init(0);
  if (result == CUDA_ERROR_NO_DEVICE) return KJIT_OK; /* a driver may run without a GPU; the list stays empty */
  if (result != CUDA_SUCCESS) {
    return driver_fail(cu, KJIT_ERR_NO_DRIVER, result, error,
                       "the CUDA driver %s does not start (" DRIVER_WORKS_WITHOUT "), cuInit", gpu->driver.lib.path);
  }
  return list_devices(gpu, error);
}

/* Open libcuda, unless an earlier try has, and start it. After a failed start it stays open, because a driver that has
 * run cannot be unloaded safely; the next try uses the same one. */
static kjit_status connect(struct gpu *gpu, kjit_error *error) {
  if (!gpu->driver.cu.Init) {
    if (gpu->fake) {
      driver_open_fake(&gpu->driver, gpu->fake);
    } else {
      const kjit_status status = driver_open(&gpu->driver, gpu->path, error);
      if (status != KJIT_OK) return status;
    }
  }
  const kjit_status status = start(gpu, error);
  if (status != KJIT_OK) {
    mem_free(gpu->mem, gpu->devices);
    gpu->devices = NULL;
  }
  return status;
}

kjit_status gpu_open(struct gpu *gpu, kjit_error *error) {
  if (gpu_is_forked(gpu)) return refuse_forked(error);
  if (!gate_enter(gpu->keeper, &gpu->gate)) return KJIT_OK;
  atomic_store_explicit(&gpu->owner, (int)getpid(), memory_order_release);
  const kjit_status status = connect(gpu, error);
  if (status != KJIT_OK) atomic_store_explicit(&gpu->owner, 0, memory_order_release);
  gate_leave(gpu->keeper, &gpu->gate, status == KJIT_OK);
  return status;
}

static kjit_status refuse_no_device(const struct gpu *gpu, kjit_error *error) {
  return error_set(error, KJIT_ERR_NO_DRIVER,
                   "the CUDA driver %s runs but shows no GPU: is one there, and does CUDA_VISIBLE_DEVICES hide it?",
                   gpu->driver.lib.path);
}

kjit_status gpu_require(struct gpu *gpu, kjit_error *error) {
  const kjit_status status = gpu_open(gpu, error);
  if (status != KJIT_OK || gpu->device_count) return status;
  return refuse_no_device(gpu, error);
}

/* The path and version of libcuda as far as they are known, for kjit_doctor(); never opens it. */
void gpu_describe(struct gpu *gpu, char path[DYNLIB_PATH_BYTES], int *version) {
  path[0] = '\0';
  *version = 0;
  if (gpu_is_forked(gpu)) return;
  /* When the gate is open already, nothing changes any more and no lock is needed. */
  const bool mine = gate_enter(gpu->keeper, &gpu->gate);
  memcpy(path, gpu->driver.lib.path, DYNLIB_PATH_BYTES);
  *version = gpu->driver.version;
  if (mine) gate_leave(gpu->keeper, &gpu->gate, 0);
}

kjit_status gpu_device(struct gpu *gpu, int32_t ordinal, const struct device **out, kjit_error *error) {
  *out = NULL;
  kjit_status status = gpu_require(gpu, error);
  if (status != KJIT_OK) return status;
  if (ordinal < 0 || (uint32_t)ordinal >= gpu->device_count) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "ordinal: %d; the driver shows devices 0 to %u", ordinal,
                     gpu->device_count - 1);
  }
  struct device *const device = &gpu->devices[ordinal];
  if (gate_enter(gpu->keeper, &device->gate)) {
    status = device_read(&gpu->driver, device, ordinal, error);
    gate_leave(gpu->keeper, &device->gate, status == KJIT_OK);
  }
  if (status == KJIT_OK) *out = device;
  return status;
}

/* Find out why there is no current device, and say what to do about it. */
static kjit_status refuse_no_context(const struct gpu *gpu, CUresult result, kjit_error *error) {
  if (gpu_is_forked(gpu)) return refuse_forked(error);
  if (!gpu->device_count) return refuse_no_device(gpu, error);
  if (result != CUDA_ERROR_INVALID_CONTEXT) {
    return driver_fail(&gpu->driver.cu, KJIT_ERR_DRIVER, result, error, "cuCtxGetDevice");
  }
  return error_set_cause(error, KJIT_ERR_NO_DRIVER, KJIT_CAUSE_CUDA, (int64_t)result,
                         "no CUDA context is current on this thread: call cuCtxSetCurrent, or any function of the CUDA "
                         "runtime that uses the device, before");
}

kjit_status gpu_current_of_launch(struct gpu *gpu, int32_t *ordinal, kjit_error *error) {
  if (!gate_is_open(&gpu->gate) || gpu->device_count != 1) return gpu_current(gpu, ordinal, error);
  *ordinal = 0;
  return KJIT_OK;
}

kjit_status gpu_launch_failed(const struct gpu *gpu, CUresult result, const char *kernel, kjit_error *error) {
  if (result == CUDA_ERROR_INVALID_CONTEXT || gpu_is_forked(gpu)) return refuse_no_context(gpu, result, error);
  return driver_fail(&gpu->driver.cu, KJIT_ERR_DRIVER, result, error, "launching kernel \"%.80s\"", kernel);
}

kjit_status gpu_current(struct gpu *gpu, int32_t *ordinal, kjit_error *error) {
  *ordinal = -1;
  if (!gate_is_open(&gpu->gate)) {
    const kjit_status status = gpu_open(gpu, error);
    if (status != KJIT_OK) return status;
  }
  CUdevice handle;
  const CUresult result = gpu->driver.cu.CtxGetDevice(&handle);
  if (result != CUDA_SUCCESS) return refuse_no_context(gpu, result, error);
  for (uint32_t i = 0; i < gpu->device_count; i++) {
    if (gpu->devices[i].handle != handle) continue;
    *ordinal = (int32_t)i;
    return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_INTERNAL, "the driver names device handle %d, which it did not list", handle);
}
