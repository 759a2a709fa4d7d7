/**
 * @file
 * What this machine has: NVRTC, driver, devices, cache folder. For `kjit doctor`, bug reports and installers.
 */
#ifndef KJIT_DOCTOR_H
#define KJIT_DOCTOR_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What was found. Strings are NUL-terminated and cut to fit. Grows only at the end. */
typedef struct kjit_doctor_report {
  size_t struct_size;
  int32_t nvrtc_status;     /**< KJIT_OK, or KJIT_ERR_NO_NVRTC                                   */
  int32_t nvrtc_major;      /**< 0 when not found                                                */
  int32_t nvrtc_minor;      /**< 0 when not found                                                */
  char nvrtc_path[512];     /**< the file that was opened; "" when none                          */
  char nvrtc_identity[128]; /**< what every key says of this compiler                            */
  char nvrtc_message[496];  /**< when missing: where it was searched for, and what to do         */
  int32_t driver_status;    /**< KJIT_OK, or KJIT_ERR_NO_DRIVER                                  */
  int32_t driver_version;   /**< CUDA's encoding: 1000 * major + 10 * minor                      */
  uint32_t device_count;    /**< GPUs that the driver lists                                      */
  char driver_path[512];    /**< libcuda's file; "" when none                                    */
  char driver_message[496]; /**< why the driver or a GPU cannot be used; "" when it can         */
  int32_t cache_status;     /**< KJIT_OK: usable as configured; else why kernels are not kept    */
  uint32_t cache_mode;      /**< a ::kjit_cache_mode, resolved                                   */
  char cache_path[512];     /**< the user cache folder; "" when there is none                    */
  char cache_message[496];  /**< why the folder cannot be used or written; "" when it can        */
} kjit_doctor_report;

/**
 * Look at everything and say what works. Opens NVRTC and libcuda, and with ::KJIT_CACHE_RW writes a file of 4 KiB into
 * the user's cache folder and removes it; compiles nothing.
 * @param      runtime  whose settings are used: paths, cache folder and mode
 * @param[out] report   `struct_size` must be set
 * @retval KJIT_OK  the report is filled, whatever is missing
 * @retval KJIT_ERR_INVALID_ARG  an argument is NULL, or struct_size is not set
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_doctor(kjit_runtime *runtime, kjit_doctor_report *report, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
