/* Progress of a long run on stderr: a bar that is redrawn in place on a terminal, otherwise a line every ten seconds,
 * so that a log file stays short. progress_show() is called after each piece of work and mostly returns at once. One
 * thread. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH              30
#define TERMINAL_EVERY_SECONDS 0.1
#define LINE_EVERY_SECONDS     10.0

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_start(struct progress *progress) {
  progress->terminal = isatty(STDERR_FILENO) != 0;
  progress->started = progress->shown = seconds_now();
}

static void print_bar(size_t done, size_t total, double rate, double left) {
  static const char full[] = "##############################", empty[] = "..............................";
  const int filled = (int)(done * BAR_WIDTH / total);
  fprintf(stderr, "\r[%.*s%.*s] %zu/%zu  %.1f/s  %.0f s left \033[K", filled, full, BAR_WIDTH - filled, empty, done,
          total, rate, left);
  if (done == total) fputc('\n', stderr);
}

void progress_show(void *user, size_t done, size_t total) {
  struct progress *progress = user;
  const double now = seconds_now();
  const double every = progress->terminal ? TERMINAL_EVERY_SECONDS : LINE_EVERY_SECONDS;
  const bool ended = progress->terminal && done == total;
  if (total == 0 || (now - progress->shown < every && !ended)) return;
  progress->shown = now;
  const double elapsed = now - progress->started;
  const double rate = elapsed > 0 ? (double)done / elapsed : 0;
  const double left = rate > 0 ? (double)(total - done) / rate : 0;
  if (progress->terminal)
    print_bar(done, total, rate, left);
  else
    fprintf(stderr, "kjit: %zu of %zu, %.1f/s, %.0f s left\n", done, total, rate, left);
}
