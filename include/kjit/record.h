/**
 * @file
 * Record and replay: a process writes down which kernels it asked for, and `kjit warm --manifest` builds them
 * somewhere else: for these architectures or others, and on machines that have none of the sources.
 */
#ifndef KJIT_RECORD_H
#define KJIT_RECORD_H

#include <kjit/build.h>
#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * From now on append each distinct request as one manifest line to a file, whether the request was answered from
 * memory, a bundle or the cache, or compiled. Several processes may record to one file; each request is in it once.
 *
 * A kernel that this runtime has already launched is found in the family's own table and is not recorded again. A call
 * with ::KJIT_BUILD_RESIDENT_ONLY touches no file and is not recorded. When a file cannot be written only the record
 * suffers: the failure is counted (kjit_runtime_stats.cache_errors) and logged.
 *
 * A request with a caller's own source, a kernel of an attention variant, and a config of a user's family whose file
 * does not lie in the manifest's folder or below it, are recorded with all that their compile reads: source, headers
 * and compiled parts go into the folder "<path>.sources", each text once under the digest of its content, and the
 * manifest's line names a file there.
 * Copied together, the two are enough to make the same key and the same kernel on a machine that has none of the
 * original files. Such a line holds for its architecture alone, since the headers may be others for another one.
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

/**
 * Get or build a request that was recorded with its sources. Every name, digest and option in the files is checked, and
 * nothing outside of the file's folder is read for it, so the files may come from a stranger; the code that they make
 * may not be run for one.
 * @param      runtime  the runtime
 * @param      path     "<manifest>.sources/<digest>.request", as the manifest's line has it behind the manifest's
 * folder
 * @param      arch     the architecture that is expected, or NULL for the recorded one
 * @param      flags    KJIT_BUILD_* or 0
 * @param[out] out      the artifact, for kjit_artifact_release(); NULL on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  the path's last part is not 64 hexadecimal digits and ".request"; or an argument
 * @retval KJIT_ERR_NOT_FOUND    this file or one that it names is not there
 * @retval KJIT_ERR_CORRUPT      a file's content is not what its name says
 * @retval KJIT_ERR_UNSUPPORTED  recorded for another architecture or by another version of kjit; or a source includes a
 *                               file that was not recorded
 * @retval those of kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_recorded_build(kjit_runtime *runtime, const char *path, const char *arch,
                                                        uint32_t flags, kjit_artifact **out, kjit_error *error);

/**
 * Remove what recorders that were killed left half-written in "<path>.sources". Files that a recorder is writing now
 * and finished ones are left alone. `kjit warm` and `kjit bundle create` do so with every manifest that they read.
 * @param      path     the manifest's; without a folder of sources there is nothing to do
 * @param[out] removed  how many files there were; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_IO           the folder cannot be read; the cause is an errno
 * @retval KJIT_ERR_INVALID_ARG  path is NULL
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe; recorders may write meanwhile.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_record_sweep(const char *path, uint64_t *removed, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
