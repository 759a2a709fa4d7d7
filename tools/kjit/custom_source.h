/* A user's own .cu file, ready to be built. */
#ifndef KJIT_TOOLS_CUSTOM_SOURCE_H
#define KJIT_TOOLS_CUSTOM_SOURCE_H

#include "command.h"

/* Largest source file read: far beyond what people write; generated kernels reach some MB. */
#define SOURCE_MOST_BYTES (64u << 20)

struct custom_source {
  kjit_build_request request; /* all but entry and arch; points into what follows */
  char *text, *folder, *define_text;
  kjit_define *defines;
  const char **include_dirs;
};

/* Read FILE.cu; `defines` are "NAME" or "NAME=VALUE". The source is named by the file's last part, so that the key is
 * the same wherever it lies; its folder comes before `include_dirs`. Both lists must outlive the result. */
kjit_status custom_source_read(struct custom_source *out, const char *path, const struct option_list *defines,
                               const struct option_list *include_dirs, kjit_error *error);

/* Accepts a half-read and a zeroed one. */
void custom_source_free(struct custom_source *source);

#endif
