/* The files of tools/support/reference, carried inside the programs: they run where no source tree is. */
#ifndef KJIT_TOOLS_SUPPORT_CHECK_SOURCES_H
#define KJIT_TOOLS_SUPPORT_CHECK_SOURCES_H

#include <kjit/build.h>

/* A file by its name; an empty source, which no compile accepts, for a name that is none. */
kjit_source check_source(const char *name);

#endif
