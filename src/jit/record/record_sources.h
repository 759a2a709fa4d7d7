/* A recorded request with all that its compile reads, in the folder "<manifest>.sources" beside the manifest:
 *
 *   <digest of the text>          a source, a header or a compiled part, byte for byte as the compiler was given it
 *   <digest of the file>.request  which request that is: RECORDED_HEAD, its family, its label, and the request's part
 *                                 of its key, whose digests name the files above
 *
 * Every name is the digest of the content, so equal headers of many kernels are one file, and a damaged file shows. */
#ifndef KJIT_JIT_RECORD_RECORD_SOURCES_H
#define KJIT_JIT_RECORD_RECORD_SOURCES_H

#include "base/digest.h"
#include "jit/cache/file_ops.h"
#include "jit/request/request.h"

#define RECORDED_FOLDER_SUFFIX ".sources"
#define RECORDED_SUFFIX        ".request"
#define RECORDED_NAME_BYTES    (DIGEST_HEX_BYTES + sizeof RECORDED_SUFFIX - 1) /* with the NUL */
#define RECORDED_HEAD          "kjit-request 1\n"
#define RECORDED_TAG_FAMILY    "family"
#define RECORDED_TAG_LABEL     "label"

/* Write what the folder does not have yet, the request's own file last. `name` gets that file's name. Sources that are
 * withheld are asked for by request->supply. KJIT_ERR_IO (errno in error->cause), KJIT_ERR_NO_MEMORY, and those of the
 * supply. Thread-safe; processes may do the same at once. */
kjit_status record_sources(const struct mem *mem, const struct file_ops *ops, const char *manifest,
                           const struct jit_request *request, char name[RECORDED_NAME_BYTES], kjit_error *error);

/* Remove the files that killed writers left in the manifest's folder of sources, and count them. No such folder:
 * nothing to do. KJIT_ERR_IO (errno in error->cause), KJIT_ERR_NO_MEMORY. Thread-safe, also beside writers. */
kjit_status record_sources_sweep(const struct mem *mem, const struct file_ops *ops, const char *manifest,
                                 uint64_t *removed, kjit_error *error);

#endif
