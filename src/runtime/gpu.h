/* The connection to libcuda and its devices: made when first needed, by one thread, once. */
#ifndef KJIT_RUNTIME_GPU_H
#define KJIT_RUNTIME_GPU_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/threads/gate.h"
#include "runtime/device.h"
#include "runtime/driver.h"

struct gpu {
  const struct mem *mem;
  struct gate_keeper *keeper;
  struct gate gate;              /* open: driver and devices are there */
  _Atomic(int) owner;            /* process that opened the driver, 0 before: its state does not survive fork() */
  char *path;                    /* of libcuda; NULL: the usual one */
  const struct driver_api *fake; /* a test's table in place of libcuda, or NULL */
  struct driver driver;
  struct device *devices;
  uint32_t device_count;
};

/* Cheap: nothing is opened. `path` is copied and may be NULL. */
kjit_status gpu_init(struct gpu *gpu, const struct mem *mem, struct gate_keeper *keeper, const char *path,
                     const struct driver_api *fake, kjit_error *error);
void gpu_finish(struct gpu *gpu); /* accepts a half-built one */

/* Open the driver if it is not open. There may be no device. KJIT_ERR_NO_DRIVER says what is missing, and also refuses
 * a process forked from the one that opened it. Thread-safe, as everything below. */
kjit_status gpu_open(struct gpu *gpu, kjit_error *error);

/* As gpu_open(), and there must be a device. */
kjit_status gpu_require(struct gpu *gpu, kjit_error *error);

/* What is known of the driver, also when it does not start: its file ("" if none was found) and CUDA version (0). */
void gpu_describe(struct gpu *gpu, char path[DYNLIB_PATH_BYTES], int *version);

/* A device with its properties, which live as long as `gpu`. KJIT_ERR_NO_DRIVER, KJIT_ERR_DRIVER, and
 * KJIT_ERR_INVALID_ARG for an ordinal that does not exist. */
kjit_status gpu_device(struct gpu *gpu, int32_t ordinal, const struct device **out, kjit_error *error);

/* The current context's device. KJIT_ERR_NO_DRIVER when there is none. Once open: one driver call. */
kjit_status gpu_current(struct gpu *gpu, int32_t *ordinal, kjit_error *error);

/* The same for a call that launches: where the driver shows one device, it is that one, and nobody is asked. Whether a
 * context is current at all the launch finds out; gpu_launch_failed() then says so. */
kjit_status gpu_current_of_launch(struct gpu *gpu, int32_t *ordinal, kjit_error *error);

/* Say why a launch failed: as gpu_current() would have, or by the kernel's name and the driver's number. */
kjit_status gpu_launch_failed(const struct gpu *gpu, CUresult result, const char *kernel, kjit_error *error);

/* Is this a process forked from the one that opened the driver? No driver call is safe then. */
bool gpu_is_forked(const struct gpu *gpu);

#endif
