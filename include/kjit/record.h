/**
 * @file
 * Record and replay: a process writes down which kernels it asked for, and `kjit warm --manifest` builds them
 * somewhere else, for these architectures or others.
 */
#ifndef KJIT_RECORD_H
#define KJIT_RECORD_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * From now on append each distinct request as one manifest line to a file, whether the request was answered from
 * memory, a bundle or the cache, or compiled. Several processes may record to one file; each request is in it once.
 *
 * A kernel that this runtime has already launched is found in the family's own table and is not recorded again. A call
 * with ::KJIT_BUILD_RESIDENT_ONLY touches no file and is not recorded. A request with a caller's own source is written
 * as a comment, because a manifest does not hold sources. When the file cannot be written only the record suffers: the
 * failure is counted (kjit_runtime_stats.cache_errors) and logged.
 *
 * The environment variable KJIT_RECORD=FILE does the same for a program that does not call this function.
 *
 * @param runtime  the runtime whose requests are recorded
 * @param path     created with mode 0666 less the umask if it does not exist; NULL stops recording
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the path is empty
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_runtime_record(kjit_runtime *runtime, const char *path, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
