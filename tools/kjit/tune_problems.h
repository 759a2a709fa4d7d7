/* Which problems `kjit tune` measures: sets, problems on the command line, manifests. `error` is never NULL here. */
#ifndef KJIT_TOOLS_TUNE_PROBLEMS_H
#define KJIT_TOOLS_TUNE_PROBLEMS_H

#include <stdbool.h>

#include "attention_spec.h"

struct tune_problem {
  struct attention_spec spec;
  char class_text[KJIT_TUNE_CLASS_TEXT_MAX];
};

/* One of each class: what asks for the class first. Zero it first; tune_problems_free() ends it. */
struct tune_problems {
  struct tune_problem *items;
  size_t count, capacity;
  size_t asked;   /* repetitions of a class included */
  size_t skipped; /* lines of manifests that name a kernel, not a problem */
};
void tune_problems_free(struct tune_problems *problems);

/* Lines for the usage text. */
#define TUNE_PROBLEMS_USAGE                                                                                            \
  "  --set NAME       cells (36: head sizes 64, 128, 256 at 16k tokens, full and causal), small (batch 1,\n"           \
  "                   8 heads), decode (few queries against many keys, grouped heads), odd (head sizes\n"              \
  "                   and lengths between the round ones)\n"                                                           \
  "  --problem TEXT   dtype=bf16,head_dim=128,..., or a line of a manifest: attention ARCH dtype=...\n"                \
  "  --manifest FILE  the attention lines of a manifest; '-' is standard input\n"                                      \
  "                   (architectures named there are not looked at: the card decides)\n"

/* KJIT_ERR_NOT_FOUND lists the sets there are. */
kjit_status tune_problems_add_set(struct tune_problems *problems, const char *set, kjit_error *error);

/* One problem's text or manifest line; a line of another kind is counted as skipped. */
kjit_status tune_problems_add_text(struct tune_problems *problems, const char *text, kjit_error *error);

/* Errors begin with "FILE:LINE: ". */
kjit_status tune_problems_add_manifest(struct tune_problems *problems, const char *path, kjit_error *error);

#endif
