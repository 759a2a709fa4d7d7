/* Which problems `kjit tune` measures: sets, problems of the command line, manifests. `error` is never NULL here. */
#ifndef KJIT_TOOLS_TUNE_PROBLEMS_H
#define KJIT_TOOLS_TUNE_PROBLEMS_H

#include <stdbool.h>

#include <kjit/tune.h>

#include "attention_text.h"
#include "family_files.h"

/* A problem and its class. */
struct tune_problem {
  kjit_tune_problem asked; /* a family's problem is a copy that this struct owns */
  char *class_text;
};

/* One problem for each class, the one that came first. Zero it before use; tune_problems_free() ends it. */
struct tune_problems {
  struct tune_problem *items;
  size_t count, capacity;
  size_t asked;   /* problems that were named, further ones of the same class included */
  size_t skipped; /* lines of manifests that name a kernel, not a problem */
  struct family_files files;
  const kjit_family *family; /* the user's family whose problems they are; NULL: attention's */
};
void tune_problems_free(struct tune_problems *problems);

/* The lines of the usage text that describe these options. */
#define TUNE_PROBLEMS_USAGE                                                                                            \
  "  --set NAME       cells (36: head sizes 64, 128, 256 at 16k tokens, full and causal), small (batch 1,\n"           \
  "                   8 heads), decode (few queries against many keys, grouped heads), odd (head sizes\n"              \
  "                   and lengths between the round ones)\n"                                                           \
  "  --problem TEXT   dtype=bf16,head_dim=128,..., or a line of a manifest: attention ARCH dtype=...\n"                \
  "  --problems FILE  one problem a line, as --problem has it; '#' begins a comment; '-' is standard input\n"          \
  "  --manifest FILE  the attention lines of a manifest; '-' is standard input\n"                                      \
  "                   (architectures named there are not looked at: the card decides)\n"

/* Add a named set. KJIT_ERR_NOT_FOUND names the sets that exist. */
kjit_status tune_problems_add_set(struct tune_problems *problems, const char *set, kjit_error *error);

/* Add one problem, or one line of a manifest; a line that names a kernel is counted as skipped. */
kjit_status tune_problems_add_text(struct tune_problems *problems, const char *text, kjit_error *error);

/* The problems that follow are those of a family file. */
kjit_status tune_problems_set_family(struct tune_problems *problems, const char *path, kjit_error *error);

/* Add every problem of a manifest or a file of problems; "-" is standard input. Messages begin with "FILE:LINE: ". */
kjit_status tune_problems_add_manifest(struct tune_problems *problems, const char *path, kjit_error *error);

#endif
