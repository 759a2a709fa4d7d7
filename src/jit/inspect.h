/* What is kept of compiles for people: a folder with source, PTX, machine code and log of each. */
#ifndef KJIT_JIT_INSPECT_H
#define KJIT_JIT_INSPECT_H

#include "base/log.h"
#include "jit/compile/compile_types.h"
#include "jit/key/key.h"
#include "jit/request/request.h"

/* Kernels in a dump folder; further ones are not written, so that a forgotten variable does not fill a disk. */
#define INSPECT_DUMP_MAX 4096

/* Keep what a compile took and gave in a folder of its own below `folder`: NAME.ARCH.KEY, of which NAME comes from the
 * label and KEY is the first 12 digits. The folder appears when it is complete; one that is there is left as it is.
 * `message` is that of a failed compile, else "". A failure is told to the log. */
void inspect_dump(const char *folder, const struct jit_request *request, const struct key *key,
                  const struct compile_result *result, const char *message, const struct mem *mem,
                  const struct log *log);

#endif
