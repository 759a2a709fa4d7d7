/* Stand-ins for headers of C and C++ that NVRTC does not have. Each is used where an #include finds nothing else. */
#ifndef KJIT_JIT_SOURCE_STD_SHIMS_H
#define KJIT_JIT_SOURCE_STD_SHIMS_H

#include <kjit/build.h>

struct std_shim {
  const char *name;      /* as in #include <name> */
  const char *base;      /* the header of the toolkit that has what it declares; NULL: none is needed */
  kjit_source over_base; /* where that is found; text NULL: as `alone` */
  kjit_source alone;     /* where it is not; text NULL: then there is no stand-in */
};

/* NULL when there is none of that name. Static storage. */
const struct std_shim *std_shim_find(const char *name);

#endif
