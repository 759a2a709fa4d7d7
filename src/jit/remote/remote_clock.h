/* The time limit of one call to a store. A call computes its deadline once, and each of its steps gets what is left, so
 * that a call of several steps keeps the bound of one. */
#ifndef KJIT_JIT_REMOTE_REMOTE_CLOCK_H
#define KJIT_JIT_REMOTE_REMOTE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t remote_clock_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

/* When a step that begins now and may take `timeout_ms` is over. */
static inline int64_t remote_deadline_ns(uint32_t timeout_ms) {
  return remote_clock_ns() + timeout_ms * (int64_t)1000000;
}

/* Milliseconds until the deadline, rounded up; 0 when it has passed. */
static inline uint32_t remote_left_ms(int64_t deadline_ns) {
  const int64_t left_ms = (deadline_ns - remote_clock_ns() + 999999) / 1000000;
  return left_ms <= 0 ? 0 : left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

#endif
