/* Shared libraries opened at run time. No other file of the library calls dlopen(). */
#ifndef KJIT_BASE_DYNLIB_H
#define KJIT_BASE_DYNLIB_H

#include <stdbool.h>

#include <kjit/common.h>

#define DYNLIB_PATH_BYTES 512

struct dynlib {
  void *handle;                 /* NULL when closed */
  char path[DYNLIB_PATH_BYTES]; /* file that the loader chose, absolute where it can be known */
};

/* Open one library by path or name. KJIT_ERR_NOT_FOUND with the loader's own words otherwise. */
kjit_status dynlib_open(struct dynlib *lib, const char *name, kjit_error *error);

/* Open a library only if this process has already loaded it; false when it has not. dynlib_close() drops this
 * reference. */
bool dynlib_open_loaded(struct dynlib *lib, const char *name);

/* Address of a symbol, NULL when it is not there. */
void *dynlib_symbol(const struct dynlib *lib, const char *symbol);

/* The folder of the file that this code was loaded from: of libkjit.so, or of the program that has the library inside.
 * False: it cannot be known. */
bool dynlib_own_folder(char path[DYNLIB_PATH_BYTES]);

/* Accepts a closed library. */
void dynlib_close(struct dynlib *lib);

#endif
