/* The results of a benchmark on stdout, as lines for people or as one JSON object a line; and the options --json and
 * --rounds that all benchmarks take. One thread. */
#include "output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void output_statistics(const struct output *output, const char *variant, const char *unit, const struct statistics *s) {
  if (output->json)
    printf("{\"benchmark\": \"%s\", \"variant\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, \"least\": %.6g, "
           "\"most\": %.6g, \"count\": %zu}\n",
           output->benchmark, variant, unit, s->median, s->least, s->most, s->count);
  else
    printf("%-40s %12.3f %-3s  (least %.3f, most %.3f, of %zu)\n", variant, s->median, unit, s->least, s->most,
           s->count);
}

void output_number(const struct output *output, const char *name, const char *unit, double value) {
  if (output->json)
    printf("{\"benchmark\": \"%s\", \"number\": \"%s\", \"unit\": \"%s\", \"value\": %.6g}\n", output->benchmark, name,
           unit, value);
  else
    printf("%-40s %12.3f %s\n", name, value, unit);
}

static void print_line(FILE *file, const char *format, va_list arguments) {
  vfprintf(file, format, arguments);
  fputc('\n', file);
}

void output_note(const struct output *output, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!output->json) print_line(stdout, format, arguments);
  va_end(arguments);
}

int output_failure(const struct output *output, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s: ", output->benchmark);
  print_line(stderr, format, arguments);
  va_end(arguments);
  return 1;
}

static bool read_count(const char *text, size_t most, size_t *out) {
  char *end;
  const unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || value < 1 || value > most) return false;
  *out = (size_t)value;
  return true;
}

bool output_read_options(struct output *output, int argc, char **argv, size_t *rounds, size_t most) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) {
      output->json = true;
    } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && read_count(argv[i + 1], most, rounds)) {
      i++;
    } else {
      fprintf(stderr, "usage: %s [--json] [--rounds N]   (N from 1 to %zu)\n", output->benchmark, most);
      return false;
    }
  }
  return true;
}
