/* A user's own .cu file with its -D and -I options, as a request that kjit_build() takes. */
#ifndef KJIT_TOOLS_CUSTOM_SOURCE_H
#define KJIT_TOOLS_CUSTOM_SOURCE_H

#include "command.h"

/* Largest source file that is read. Generated kernels reach some MB; a larger file is a mistake. */
#define SOURCE_MOST_BYTES (64u << 20)

struct custom_source {
  kjit_build_request request; /* everything but entry and arch; points into the members below */
  char *text, *folder, *define_text;
  kjit_define *defines;
  const char **include_dirs;
};

/* Read FILE.cu; `defines` are "NAME" or "NAME=VALUE". The source is named by the file's last part, so that the key is
 * the same wherever it lies; its folder comes before `include_dirs`. Both lists must outlive the result. */
kjit_status custom_source_read(struct custom_source *out, const char *path, const struct option_list *defines,
                               const struct option_list *include_dirs, kjit_error *error);

/* Accepts a source whose reading failed, and one that is all zero. */
void custom_source_free(struct custom_source *source);

#endif
