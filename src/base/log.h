/* The caller's log callback. Never called with a lock held. */
#ifndef KJIT_BASE_LOG_H
#define KJIT_BASE_LOG_H

#include <kjit/common.h>

struct log {
  kjit_log_fn write; /* NULL: silence */
  void *user;
  kjit_log_level level; /* lines above it are dropped */
};

void log_write(const struct log *log, kjit_log_level level, const char *format, ...) KJIT_PRINTF(3, 4);

#endif
