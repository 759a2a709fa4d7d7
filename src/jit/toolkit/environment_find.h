/* Folders in which package managers put NVIDIA's libraries and headers: of environments, active or not. */
#ifndef KJIT_JIT_TOOLKIT_ENVIRONMENT_FIND_H
#define KJIT_JIT_TOOLKIT_ENVIRONMENT_FIND_H

#include <stdbool.h>

#include "base/dynlib.h"

/* Stands for the folder in which the library's own package lies: site-packages, where pip installed it. */
#define ENVIRONMENT_SITE_PACKAGES "site-packages"

/* The folder that an environment variable names, or ENVIRONMENT_SITE_PACKAGES. VIRTUAL_ENV and CONDA_PREFIX are set by
 * activation alone; where they are not, the environment is taken whose program this process runs. NULL: there is none.
 * `folder` is where the answer may be written. */
const char *environment_folder(const char *variable, char folder[DYNLIB_PATH_BYTES]);

/* The environment in whose folder `bin` a program lies, by a file or folder that every such environment has. */
bool environment_of_program(const char *program, const char *mark, char folder[DYNLIB_PATH_BYTES]);

#endif
