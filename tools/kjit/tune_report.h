/* What `kjit tune` reports of one class of problems, and of all. */
#ifndef KJIT_TOOLS_TUNE_REPORT_H
#define KJIT_TOOLS_TUNE_REPORT_H

#include <stdbool.h>

#include "command.h"
#include "tune_field.h"

enum tune_state {
  TUNE_OPEN,        /* not measured: dry run, interrupted, or out of time */
  TUNE_UNSUPPORTED, /* no family computes it on this card */
  TUNE_FAILED,      /* `message` says why */
  TUNE_DONE
};

struct tune_class_report {
  struct field_of_entrants field;
  enum tune_state state;
  char message[496];
  char failure[496];            /* why the first of the candidates that failed was dropped; "" */
  size_t failed;                /* candidates that were dropped because a run failed */
  kjit_contest_outcome outcome; /* TUNE_DONE */
  size_t winner;                /* index in the field's items */
  size_t compiled, dropped;     /* entrants worth running; entrants refused by the compiler's report */
  size_t runs;
};

struct tune_report {
  const struct tune_card *card;
  struct tune_class_report *classes;
  size_t count;
  size_t asked, skipped;
  bool dry_run, compiled, interrupted, out_of_time;
  double seconds;
  kjit_status worst; /* of the first class that failed */
  const char *table; /* where rows went; "" for nowhere */
};

/* Print the report on stdout. Returns the exit code. */
int tune_report_print(const struct tune_report *report, bool json);

#endif
