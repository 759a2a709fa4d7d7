/* What build of NVRTC a file is: the part of every key that stands for the compiler. */
#ifndef KJIT_JIT_TOOLKIT_NVRTC_IDENTITY_H
#define KJIT_JIT_TOOLKIT_NVRTC_IDENTITY_H

#include <kjit/common.h>

#include "base/dynlib.h"
#include "base/files/file.h"

#define NVRTC_IDENTITY_BYTES 128 /* what kjit_doctor_report has room for */

struct nvrtc_place {
  char library[DYNLIB_PATH_BYTES];
  char builtins[DYNLIB_PATH_BYTES]; /* "" when its folder has none */
  char identity[NVRTC_IDENTITY_BYTES];
  struct file_identity file; /* of the library, when the identity was read */
};

/* "<prefix><id>" of any library, where <id> is as in NVRTC's identity. KJIT_ERR_NO_NVRTC. */
kjit_status library_identify(const char *path, const char *prefix, char identity[NVRTC_IDENTITY_BYTES],
                             kjit_error *error);

/* Fill place->identity and place->file from place->library and place->builtins. KJIT_ERR_NO_NVRTC when either cannot be
 * read. */
kjit_status nvrtc_read_identity(struct nvrtc_place *place, kjit_error *error);

#endif
