/**
 * @file
 * Modules: all that one compile made, loaded: its kernels by name or by name expression, and its global variables.
 */
#ifndef KJIT_MODULE_H
#define KJIT_MODULE_H

#include <kjit/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A cubin loaded into the driver, for all devices of its architecture. Thread-safe, reference-counted. */
typedef struct kjit_module kjit_module;

/**
 * Build (kjit_build()) and load, as kjit_kernel_get() does; request->entry may be NULL.
 *
 * @param      runtime  the runtime
 * @param      request  what to build; borrowed for the call
 * @param[out] out  released with kjit_module_release()
 * @retval those of kjit_kernel_get()
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_module_get(kjit_runtime *runtime, const kjit_build_request *request,
                                                    kjit_module **out, kjit_error *error);

/**
 * The same for a variant of a program, sealed or not (build.h, sealed.h); kjit_program_get_kernel() gives one kernel.
 * @param      program  the program
 * @param      variant  NULL: the request as it is, or the only module of a sealed program
 * @param[out] out      released with kjit_module_release()
 * @retval those of kjit_module_get() and kjit_program_get()
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_program_get_module(kjit_program *program, const kjit_program_variant *variant,
                                                            kjit_module **out, kjit_error *error);

/**
 * Take another reference.
 * @param module  may be NULL
 * @return `module`
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_module *kjit_module_retain(kjit_module *module);

/**
 * Give a reference back. Kernels taken from the module keep it loaded by references of their own.
 * @param module  may be NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API void kjit_module_release(kjit_module *module);

/**
 * The artifact that a module was loaded from; kjit_artifact_get_kernel() lists its kernels.
 * @param module  the module
 * @return borrowed from the module
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_artifact *kjit_module_artifact(const kjit_module *module);

/**
 * A kernel of the module.
 *
 * @param      module  the module
 * @param      name  one of the request's names as it stands there (`n::k<float, 4>`), or the name that the cubin has:
 * an `extern "C"` function's own, or a mangled one
 * @param[out] out   released with kjit_kernel_release()
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @retval KJIT_ERR_NOT_FOUND   the module has no kernel of that name; the message lists those that it has
 * @retval KJIT_ERR_DRIVER, KJIT_ERR_NO_DRIVER, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_module_get_kernel(kjit_module *module, const char *name, kjit_kernel **out,
                                                           kjit_error *error);

/** A `__device__` or `__constant__` variable in the current context. */
typedef struct kjit_global {
  size_t struct_size;
  uint64_t address; /**< in device memory, as CUdeviceptr; valid while the module is held */
  uint64_t bytes;
} kjit_global;

/**
 * Find a global variable. `global->struct_size` must be set.
 *
 * @param      module  the module
 * @param      name    one of the request's names (`&n::table`, `&n::count<int>`), or the name that the cubin has. A
 *                     variable that no kernel uses may have been left out; one that the request names is kept.
 * @param[out] global  address and size
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @retval KJIT_ERR_NOT_FOUND    the module has no such variable
 * @retval KJIT_ERR_UNSUPPORTED  the driver has no cuLibraryGetGlobal
 * @retval KJIT_ERR_DRIVER, KJIT_ERR_NO_DRIVER
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_module_get_global(kjit_module *module, const char *name, kjit_global *global,
                                                           kjit_error *error);

/**
 * Copy to a global variable, in the order of the stream: kernels enqueued later see it. The data may be changed or
 * freed when the call has returned, unless it is page-locked memory, which the copy reads when the stream comes to it.
 *
 * @param module  the module
 * @param name    as for kjit_module_get_global()
 * @param offset  bytes from the variable's beginning; offset + bytes must not pass its end
 * @param data    what is copied
 * @param bytes   how many bytes
 * @param stream  NULL means the legacy default stream
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the range is not the variable's: the message has both sizes
 * @retval those of kjit_module_get_global()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_module_write_global(kjit_module *module, const char *name, size_t offset,
                                                             const void *data, size_t bytes, CUstream stream,
                                                             kjit_error *error);

/**
 * Copy from a global variable when the stream has done what was enqueued, and wait for that.
 * @param      module  the module
 * @param      name    as for kjit_module_get_global()
 * @param      offset  bytes from the variable's beginning
 * @param[out] data    where the copy goes
 * @param      bytes   how many bytes
 * @param      stream  NULL means the legacy default stream
 * @retval those of kjit_module_write_global()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_module_read_global(kjit_module *module, const char *name, size_t offset,
                                                            void *data, size_t bytes, CUstream stream,
                                                            kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
