/* The files of tools/support/reference, embedded into the programs so that they run where there is no source tree. */
#ifndef KJIT_TOOLS_SUPPORT_CHECK_SOURCES_H
#define KJIT_TOOLS_SUPPORT_CHECK_SOURCES_H

#include <kjit/build.h>

/* The file of this name. For an unknown name an empty source, which no compile accepts. */
kjit_source check_source(const char *name);

#endif
