/* Kernel families that a command line or a manifest names: kjit's own by name, a user's by its file. `error` is never
 * NULL here. */
#ifndef KJIT_TOOLS_FAMILY_FILES_H
#define KJIT_TOOLS_FAMILY_FILES_H

#include <kjit/kjit.h>
#include <stdbool.h>

/* A user's family that was opened. */
struct family_file {
  char *path;
  kjit_family *family;
};

/* Each file once, so that configs of one file are of one family. Zero it first; family_files_close() ends it, and then
 * no config of them may be used any more. */
struct family_files {
  struct family_file *items;
  size_t count;
};
void family_files_close(struct family_files *files);

/* "gemm.yaml" and "kernels/gemm.yaml" name a file; "attention_sm90" does not, because a family's name has neither a dot
 * nor a slash. */
bool family_is_file(const char *name);

/* The family of this name. A relative file is looked for in `folder`, NULL for the working folder. KJIT_ERR_NOT_FOUND
 * for a name that is none of kjit's own; errors of a file are those of kjit_family_open(). */
kjit_status family_files_find(struct family_files *files, const char *name, const char *folder, const kjit_family **out,
                              kjit_error *error);

#endif
