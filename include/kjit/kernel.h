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

/* The tags of <cuda.h>; C11 and C++ allow the repeated typedefs, so this header needs no CUDA. */
typedef struct CUstream_st *CUstream;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmod_st *CUmodule;

/**
 * A kernel loaded into the driver, for all devices of its architecture. Thread-safe, reference-counted: it stays loaded
 * while anybody holds a reference to it or to its module (module.h). What nobody holds may be unloaded when more than
 * kjit_runtime_options.modules_max_idle are loaded for nobody.
 *
 * A reference is what says that a kernel is in use. Beyond it: before anything is unloaded the runtime waits for the
 * primary contexts in which it was launched by kjit_kernel_launch(), so a kernel may be released while its launch runs;
 * one that was launched into a stream under capture, whose handles were given out, or that was loaded while a context
 * made by cuCtxCreate() was current stays loaded until the runtime ends.
 */
typedef struct kjit_kernel kjit_kernel;

/** All blocks run at once and may wait for each other (cooperative_groups::grid_group). */
#define KJIT_LAUNCH_COOPERATIVE 0x1u
/**
 * Programmatic dependent launch: the blocks may start before the kernel in front of them on the stream has ended; what
 * that one writes is seen after cudaGridDependencySynchronize(). sm_90 and later.
 */
#define KJIT_LAUNCH_PROGRAMMATIC 0x2u
/** kjit_launch.priority counts, in place of the stream's. */
#define KJIT_LAUNCH_PRIORITY 0x4u
/** kjit_launch.shared_carveout counts. */
#define KJIT_LAUNCH_CARVEOUT 0x8u

/** How the blocks of clusters are spread over the multiprocessors. The numbers are CUclusterSchedulingPolicy's. */
typedef enum kjit_cluster_policy {
  KJIT_CLUSTER_POLICY_DEFAULT = 0,
  KJIT_CLUSTER_POLICY_SPREAD = 1,
  KJIT_CLUSTER_POLICY_LOAD_BALANCING = 2
} kjit_cluster_policy;

/** Which writes of other kernels a fence of this kernel waits for (CUDA C++ Programming Guide, "Memory Synchronization
    Domains"). sm_90 and later. */
typedef enum kjit_sync_domain {
  KJIT_SYNC_DOMAIN_STREAM = 0, /**< as the stream says */
  KJIT_SYNC_DOMAIN_DEFAULT = 1,
  KJIT_SYNC_DOMAIN_REMOTE = 2
} kjit_sync_domain;

/** Grid, block and what else there is to say of one launch. Begin with kjit_launch_default(). */
typedef struct kjit_launch {
  size_t struct_size;
  uint32_t grid[3]; /**< blocks in x, y, z; each at least 1: an empty grid is an error, not a launch of nothing       */
  uint32_t block[3];   /**< threads in x, y, z; zero means 1   */
  uint32_t cluster[3]; /**< blocks per cluster in x, y, z, at most 16 in all; all zero: no cluster, or the kernel's own
                            __cluster_dims__. More than 8 are asked for once per kernel and device */
  uint32_t dynamic_shared_bytes; /**< beyond 48 KiB the kernel's limit is raised, once per kernel and device */
  uint32_t flags;   /**< KJIT_LAUNCH_*                                                                    */
  int32_t priority; /**< with KJIT_LAUNCH_PRIORITY: as cuStreamCreateWithPriority() has it, lower is sooner */
  uint32_t
      shared_carveout; /**< with KJIT_LAUNCH_CARVEOUT: percent of the unified memory preferred as shared, 0 to 100 */
  uint32_t cluster_policy; /**< a ::kjit_cluster_policy                                                               */
  uint32_t sync_domain;    /**< a ::kjit_sync_domain                                                                  */
  const void *attributes;  /**< further CUlaunchAttribute of <cuda.h>, handed to cuLaunchKernelEx() as they are       */
  uint32_t attribute_count; /**< at most 32 */
  uint32_t reserved; /**< zero                                                                                  */
} kjit_launch;

/** One block of one thread, and nothing special. */
static inline kjit_launch kjit_launch_default(void) {
  kjit_launch launch = KJIT_ZERO;
  launch.struct_size = sizeof launch;
  for (int i = 0; i < 3; i++)
    launch.grid[i] = launch.block[i] = 1;
  return launch;
}

/** One argument of a kernel: where its value is, and the size of the parameter's type in bytes. */
typedef struct kjit_arg {
  const void *value;
  size_t bytes;
} kjit_arg;

/** The value of a variable as an argument, in a list of kjit_arg: `const kjit_arg args[] = {KJIT_ARG(x), KJIT_ARG(n)};`
 */
#define KJIT_ARG(variable)                                                                                             \
  { &(variable), sizeof(variable) }

/**
 * Build (kjit_build()) and load, and find the kernel request->entry in it. With request->arch NULL the architecture
 * is that of the current context's device, with its own features where it has any ("sm_90a").
 *
 * @param      runtime  the runtime
 * @param      request  what to build; borrowed for the call
 * @param[out] out      released with kjit_kernel_release()
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  request->entry is missing, or as kjit_build()
 * @retval KJIT_ERR_NO_DRIVER    libcuda is missing, or there is no GPU, or no context is current on this thread
 * @retval KJIT_ERR_UNSUPPORTED  the device cannot run code of the requested architecture
 * @retval KJIT_ERR_DRIVER       the driver refused the cubin or the entry name
 * @retval any of kjit_build()'s
 * @par Thread safety  Thread-safe. A context must be current (cuCtxSetCurrent, or any CUDA runtime call before).
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_get(kjit_runtime *runtime, const kjit_build_request *request,
                                                    kjit_kernel **out, kjit_error *error);

/**
 * The same for a variant of a program, sealed or not (build.h, sealed.h). Of a sealed program the architecture that is
 * most specific to the current device is taken, unless the variant names one.
 *
 * @param      program  the program
 * @param      variant  NULL: the request as it is, or the only kernel of a sealed program
 * @param[out] out      released with kjit_kernel_release()
 * @retval those of kjit_kernel_get() and kjit_program_get()
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_get_kernel(kjit_program *program, const kjit_program_variant *variant,
                                                            kjit_kernel **out, kjit_error *error);

/**
 * Take another reference.
 * @param kernel  may be NULL
 * @return `kernel`
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_kernel *kjit_kernel_retain(kjit_kernel *kernel);

/**
 * Give a reference back: the kernel must not be used through it any more.
 * @param kernel  may be NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API void kjit_kernel_release(kjit_kernel *kernel);

/**
 * The artifact that a kernel was loaded from.
 * @param kernel  the kernel
 * @return borrowed from the kernel
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_artifact *kjit_kernel_artifact(const kjit_kernel *kernel);

/**
 * How many parameters a kernel has, as its cubin or the driver says.
 * @param kernel  the kernel
 * @return the number; -1 when neither cubin nor driver says it
 * @par Thread safety  Thread-safe.
 */
KJIT_API int32_t kjit_kernel_parameter_count(const kjit_kernel *kernel);

/**
 * The size of one of a kernel's parameters.
 * @param kernel  the kernel
 * @param index   from 0
 * @return bytes; 0 for a parameter that the kernel does not have, or whose size is unknown
 * @par Thread safety  Thread-safe.
 */
KJIT_API uint32_t kjit_kernel_parameter_bytes(const kjit_kernel *kernel, uint32_t index);

/**
 * Launch: asynchronous with respect to the host, in the current context, on the caller's stream. May be captured into
 * a CUDA graph.
 *
 * @param kernel      the kernel
 * @param launch      grid, block, shared memory and attributes
 * @param args        one for each of the kernel's parameters, in order; the values are copied before the call returns
 * @param arg_count   must equal the number of the kernel's parameters, as each size must that of its parameter
 * @param stream      NULL means the legacy default stream
 * @retval KJIT_OK               enqueued
 * @retval KJIT_ERR_INVALID_ARG  a dimension that is zero or beyond CUDA's limits, or an argument that does not fit: the
 *                               message names its index
 * @retval KJIT_ERR_UNSUPPORTED  more shared memory or threads than the device has, or a device that cannot run it
 * @retval KJIT_ERR_NO_DRIVER    no context is current
 * @retval KJIT_ERR_DRIVER       the driver refused; its code is in error->cause
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_launch(kjit_kernel *kernel, const kjit_launch *launch,
                                                       const kjit_arg *args, size_t arg_count, CUstream stream,
                                                       kjit_error *error);

/** How a launch fills the current context's device. */
typedef struct kjit_occupancy {
  size_t struct_size;
  uint32_t blocks;   /**< of the launch's size on one multiprocessor at a time; 0: a block does not fit           */
  uint32_t clusters; /**< of the launch's size on the device at a time; 0 also for a launch without cluster       */
  uint32_t
      block_threads; /**< threads per block that fill a multiprocessor best, with the launch's dynamic shared memory */
  uint32_t grid_blocks; /**< blocks of so many threads that fill the device                                          */
} kjit_occupancy;

/**
 * Ask the driver what of a launch is resident at a time. `occupancy->struct_size` must be set.
 * @param      kernel     the kernel
 * @param      launch     block, cluster and shared memory; the grid counts for clusters alone
 * @param[out] occupancy  the answer
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_UNSUPPORTED, KJIT_ERR_NO_DRIVER, KJIT_ERR_DRIVER  as kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_get_occupancy(kjit_kernel *kernel, const kjit_launch *launch,
                                                              kjit_occupancy *occupancy, kjit_error *error);

/** The driver's own names for a kernel, for what kjit has no function for. */
typedef struct kjit_kernel_handles {
  size_t struct_size;
  CUlibrary library;
  CUkernel kernel;
  CUfunction function; /**< of the current context */
  CUmodule module;     /**< of the current context */
} kjit_kernel_handles;

/**
 * The driver's handles. `handles->struct_size` must be set. They belong to the runtime and are valid until it ends: a
 * kernel whose handles were given out is not unloaded, since nobody can tell who uses them.
 * @param      kernel   the kernel
 * @param[out] handles  the handles
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_DRIVER, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_kernel_get_handles(kjit_kernel *kernel, kjit_kernel_handles *handles,
                                                            kjit_error *error);

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
  /** @name What kernels are chosen by
   * Published figures where the card's name is known, else what the driver states; a program may put in its own. 0: as
   * an H200's.
   * @{ */
  uint32_t memory_gb_s;  /**< bytes that memory gives in a nanosecond                                     */
  uint32_t load_mhz;     /**< SM clock while tensor cores are busy, below clock_khz where power is limited */
  uint32_t tensor_flops; /**< dense 16-bit operations of an SM's tensor cores in a clock                  */
  uint32_t reserved;     /**< zero                                                                        */
  /** @} */
} kjit_device_info;

/**
 * How many GPUs the driver shows.
 * @param      runtime  the runtime
 * @param[out] count    how many
 * @retval KJIT_OK             `*count` may be 0
 * @retval KJIT_ERR_NO_DRIVER  libcuda is missing or cannot start; the error says where it was looked for
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_device_count(kjit_runtime *runtime, uint32_t *count, kjit_error *error);

/**
 * Describe a GPU. `info->struct_size` must be set.
 * @param      runtime  the runtime
 * @param      ordinal  CUDA's; -1 means the current context's device
 * @param[out] info     the description
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_DRIVER, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_device_get_info(kjit_runtime *runtime, int32_t ordinal, kjit_device_info *info,
                                                         kjit_error *error);

/**
 * The published figures of a card, as kjit_device_get_info() would describe it; ordinal is -1. Needs no GPU: for asking
 * what would be chosen there (kjit_attention_choose_for()). `info->struct_size` must be set.
 * @param      name  "A100", "L40S", "H100", "H100 PCIe", "H20", "H200", "GH200" or "B200", in any case; or the driver's
 *                   name of one of these
 * @param[out] info  the description
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @retval KJIT_ERR_NOT_FOUND  no card of this name is known; the message lists those that are
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_device_find(const char *name, kjit_device_info *info, kjit_error *error);

/**
 * The short names that kjit_device_find() knows.
 * @param index  from 0
 * @return static text; NULL past the last
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_device_known(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
