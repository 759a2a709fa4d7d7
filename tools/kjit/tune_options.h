/* The options of `kjit tune`. */
#ifndef KJIT_TOOLS_TUNE_OPTIONS_H
#define KJIT_TOOLS_TUNE_OPTIONS_H

#include "command.h"

#define TUNE_MOST_CANDIDATES 1000 /* more than the library lists */

struct tune_options {
  struct option_list sets, problems, files, manifests;
  const char *out, *arch, *family, *runner;
  uint64_t seconds, jobs, candidates, runs, margin, runner_seconds;
  bool dry_run, compile, json;
};

#define TUNE_OPTIONS_DEFAULT                                                                                           \
  { .candidates = TUNE_MOST_CANDIDATES, .runs = 25, .margin = 1, .runner_seconds = 120 }

/* Read the command line over the defaults. Returns -1 to go on, else the exit code. */
int tune_options_read(struct tune_options *options, int argc, char **argv);
void tune_options_free(struct tune_options *options);

#endif
