/* Where NVRTC's files are, and what build they are, without loading them. */
#ifndef KJIT_JIT_NVRTC_FIND_H
#define KJIT_JIT_NVRTC_FIND_H

#include "base/dynlib.h"
#include "base/file.h"

#define NVRTC_IDENTITY_BYTES 128 /* what kjit_doctor_report has room for */

struct nvrtc_place {
  char library[DYNLIB_PATH_BYTES];
  char builtins[DYNLIB_PATH_BYTES]; /* "" when its folder has none */
  char identity[NVRTC_IDENTITY_BYTES];
  struct file_identity file; /* of the library, when the identity was read */
};

/* Find the library, its builtins and their identity. `asked`: a file or folder, with the name of what asked for it, in
 * which case nothing else is tried; NULL: $LD_LIBRARY_PATH, what this process has loaded, the usual places.
 * KJIT_ERR_NO_NVRTC says where it was looked for and what to do. */
kjit_status nvrtc_find(struct nvrtc_place *place, const char *asked, const char *asked_by, kjit_error *error);

#endif
