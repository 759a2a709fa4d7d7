/**
 * @file
 * What this machine has: for `kjit doctor`, bug reports and installers.
 */
#ifndef KJIT_DOCTOR_H
#define KJIT_DOCTOR_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What was found. Strings are NUL-terminated and cut to fit. */
typedef struct kjit_doctor_report {
  size_t struct_size;
  int32_t nvrtc_status; /**< KJIT_OK, or KJIT_ERR_NO_NVRTC                                   */
  int32_t nvrtc_major;  /**< 0 when not found                                                */
  int32_t nvrtc_minor;
  char nvrtc_path[512];     /**< file                                                            */
  char nvrtc_identity[128]; /**< its part of every key                                           */
  char nvrtc_message[496];  /**< when missing: where it was looked for, what to do               */
  int32_t driver_status;    /**< KJIT_OK, or KJIT_ERR_NO_DRIVER                                  */
  int32_t driver_version;   /**< CUDA's encoding: 1000 * major + 10 * minor                      */
  uint32_t device_count;
  char driver_path[512];
  char driver_message[496];
  int32_t cache_status; /**< KJIT_OK: usable as configured; else why the cache is memory only */
  uint32_t cache_mode;  /**< a ::kjit_cache_mode, resolved                                   */
  char cache_path[512];
  char cache_message[496];
} kjit_doctor_report;

/**
 * Look at everything and say what works. Opens NVRTC and libcuda; compiles nothing.
 * @retval KJIT_OK  the report is filled, whatever is missing
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_doctor(kjit_runtime *runtime, kjit_doctor_report *report, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
