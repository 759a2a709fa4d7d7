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
 * From now on append each distinct request, one manifest line, to a file: what was answered from memory, a bundle or
 * the cache as well as what was compiled. Any number of processes may record to one file; each request is in it once.
 * What a family keeps resident without asking again (a kernel that this runtime has launched already) was asked for
 * before; a call with ::KJIT_BUILD_RESIDENT_ONLY touches no file and is not recorded. Requests with a caller's own
 * source become comments: a manifest does not hold sources. A file that cannot be written costs nothing but the record:
 * it is counted (kjit_runtime_stats.cache_errors) and logged.
 *
 * Environment: KJIT_RECORD=FILE does the same for a program that knows nothing of it.
 *
 * @param path  made when it is not there (mode 0666 less the umask); NULL: stop recording
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
