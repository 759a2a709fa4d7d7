/* Results of a benchmark: a table for people, or one JSON object a line. */
#ifndef KJIT_BENCH_OUTPUT_H
#define KJIT_BENCH_OUTPUT_H

#include <kjit/common.h>
#include <stdbool.h>

#include "support/statistics.h"

struct output {
  const char *benchmark; /* the program's name: in every JSON line */
  bool json;
};

/* One variant's timings. Names are plain: no quotes, no backslashes. */
void output_statistics(const struct output *output, const char *variant, const char *unit,
                       const struct statistics *statistics);

/* One number derived from the medians. */
void output_number(const struct output *output, const char *name, const char *unit, double value);

/* A line for people; not in JSON. */
void output_note(const struct output *output, const char *format, ...) KJIT_PRINTF(2, 3);

/* "<benchmark>: <message>" on stderr; returns 1, the exit code of a benchmark that failed. */
int output_failure(const struct output *output, const char *format, ...) KJIT_PRINTF(2, 3);

/* Options that all benchmarks take: --json, and --rounds N within [1, most]. False, and usage on stderr, for others. */
bool output_read_options(struct output *output, int argc, char **argv, size_t *rounds, size_t most);
#endif
