/* The options --set, --manifest and --arch, by which `kjit warm` and `kjit bundle create` are told what to build.
 * `error` is never NULL in this file. */
#ifndef KJIT_TOOLS_ASKED_H
#define KJIT_TOOLS_ASKED_H

#include "command.h"
#include "request_list.h"

struct asked {
  const char *family; /* that the sets are of, a name or a file; NULL: flash_forward */
  struct option_list sets, manifests;
  const char *archs; /* architectures of the sets, and in place of those that manifests name; NULL when not given */
};

/* The lines of the usage texts that describe these options. */
#define ASKED_USAGE                                                                                                    \
  "  --set NAME       progression (7 configs), autotune (80), prebuilt (85), or one of FAMILY's; for each\n"           \
  "                   architecture of --arch, less what a user's family says that cannot run there\n"                  \
  "  --manifest FILE  one request a line, '#' begins a comment, '-' is standard input:\n"                              \
  "                     flash_forward sm_80,sm_90 (FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles\n"     \
  "                     attention sm_90a dtype=bf16,head_dim=128\n"                                                    \
  "                     serving sm_90,sm_90a heads=32/8 head_dim=128 page=16 dtype=bf16\n"                             \
  "                     kernels/softmax.yaml sm_90 threads=256,vec=8     (a file beside the manifest)\n"               \
  "  --arch A,B,...   sm_80, sm_90, ...; needed with --set; with --manifest in place of the architectures in it,\n"    \
  "                   for each of which a request that it cannot run is left out\n"

/* The rows of an option table that fill a struct asked. */
#define ASKED_OPTIONS(asked)                                                                                           \
  {.kind = OPTION_LIST, .name = "--set", .target = &(asked).sets},                                                     \
      {.kind = OPTION_LIST, .name = "--manifest", .target = &(asked).manifests}, {                                     \
    .kind = OPTION_TEXT, .name = "--arch", .target = &(asked).archs                                                    \
  }

/* -1 when the options go together; otherwise the exit code, after a message on stderr. */
int asked_check(const struct asked *asked, const char *command);

/* Append every request of the sets and manifests to `list`; the same kernel may be appended more than once. */
kjit_status asked_collect(const struct asked *asked, struct request_list *list, kjit_error *error);

void asked_free(struct asked *asked);

#endif
