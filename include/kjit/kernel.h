/**
 * @file
 * Loading and launching: the GPU side for any kernel. The families (flash_forward.h, …) are built on it.
 */
#ifndef KJIT_KERNEL_H
#define KJIT_KERNEL_H

#include <kjit/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Same tag as <cuda.h>; C11 and C++ allow the repeated typedef, so this header needs no CUDA. */
typedef struct CUstream_st *CUstream;

/** A kernel loaded into the driver, for all devices of its architecture. Thread-safe, reference-counted. */
typedef struct kjit_kernel kjit_kernel;

/** Grid, block and dynamic shared memory of one launch. */
typedef struct kjit_launch {
  size_t struct_size;
  uint32_t grid[3];              /**< blocks in x, y, z; zero means 1                                          */
  uint32_t block[3];             /**< threads in x, y, z; zero means 1                                         */
  uint32_t cluster[3];           /**< blocks per cluster in x, y, z, at most 8 in all; all zero: no cluster   */
  uint32_t dynamic_shared_bytes; /**< beyond 48 KiB the kernel's limit is raised, once per kernel and device   */
} kjit_launch;

static inline kjit_launch kjit_launch_default(void) {
  kjit_launch launch = KJIT_ZERO;
  launch.struct_size = sizeof launch;
  return launch;
}

/**
 * Build (kjit_build()) and load. With request->arch NULL the architecture is that of the current context's device.
 *
 * @param[out] out  released with kjit_kernel_release()
 * @retval KJIT_OK
 * @retval KJIT_ERR_NO_DRIVER    libcuda is missing, or there is no GPU, or no context is current on this thread
 * @retval KJIT_ERR_UNSUPPORTED  the device cannot run code of the requested architecture
 * @retval KJIT_ERR_DRIVER       the driver refused the cubin or the entry name
 * @retval any of kjit_build()'s
 * @par Thread safety  Thread-safe. A context must be current (cuCtxSetCurrent, or any CUDA runtime call before).
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_get(kjit_runtime *runtime, const kjit_build_request *request,
                                                    kjit_kernel **out, kjit_error *error);

/** Give the reference back. The kernel stays loaded until the runtime ends. Accepts NULL. Thread-safe. */
KJIT_API void kjit_kernel_release(kjit_kernel *kernel);

/** The artifact that the kernel was loaded from. Borrowed. Thread-safe. */
KJIT_API const kjit_artifact *kjit_kernel_artifact(const kjit_kernel *kernel);

/**
 * Launch: asynchronous with respect to the host, in the current context, on the caller's stream. May be captured into
 * a CUDA graph.
 *
 * @param args        the kernel's single argument, a struct passed by value; copied before the call returns
 * @param args_bytes  its size; must equal the kernel's parameter size
 * @param stream      NULL means the legacy default stream
 * @retval KJIT_OK               enqueued
 * @retval KJIT_ERR_INVALID_ARG  a dimension beyond CUDA's limits, or args_bytes is wrong
 * @retval KJIT_ERR_UNSUPPORTED  more shared memory or threads than the device has, or a device that cannot run it
 * @retval KJIT_ERR_NO_DRIVER    no context is current
 * @retval KJIT_ERR_DRIVER       the driver refused; its code is in error->cause
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_launch(kjit_kernel *kernel, const kjit_launch *launch, const void *args,
                                                       size_t args_bytes, CUstream stream, kjit_error *error);

/** What a GPU is, as far as kernels care. */
typedef struct kjit_device_info {
  size_t struct_size;
  char name[128];
  char arch[16];          /**< of plain code, "sm_90"                                   */
  char arch_specific[16]; /**< with its own features where it has any: "sm_90a", else as arch */
  int32_t ordinal;        /**< CUDA's                                                   */
  uint32_t multiprocessors;
  uint32_t max_shared_per_block;          /**< bytes, after opting in                                   */
  uint32_t max_shared_per_multiprocessor; /**< bytes                                                */
  uint32_t l2_bytes;
  uint64_t memory_bytes;
  uint32_t clock_khz;      /**< SM clock, as the driver states it                        */
  uint32_t driver_version; /**< CUDA's encoding: 1000 * major + 10 * minor               */
} kjit_device_info;

/**
 * How many GPUs the driver shows.
 * @retval KJIT_OK             `*count` may be 0
 * @retval KJIT_ERR_NO_DRIVER  libcuda is missing or cannot start; the error says where it was looked for
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_device_count(kjit_runtime *runtime, uint32_t *count, kjit_error *error);

/**
 * Describe a GPU. `info->struct_size` must be set.
 * @param ordinal  CUDA's; -1 means the current context's device
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_DRIVER, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_device_get_info(kjit_runtime *runtime, int32_t ordinal, kjit_device_info *info,
                                                         kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
