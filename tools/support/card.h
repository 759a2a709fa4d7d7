/* A GPU as tests, benchmarks and the command use it: libcuda through a table of their own, so that what checks kjit
 * does not lean on it. Every function returns a kjit_status and fills a kjit_error; the first error wins. */
#ifndef KJIT_TOOLS_SUPPORT_CARD_H
#define KJIT_TOOLS_SUPPORT_CARD_H

#include <cuda.h> /* types only: nothing is linked */
#include <kjit/kernel.h>
#include <stdbool.h>

struct card_api {
#define CARD_FN(member, symbol, args) CUresult(*member) args;
#include "support/card_api.def"
#undef CARD_FN
};

struct card {
  struct card_api api;
  void *library;
  int ordinal;
  CUdevice device;
  CUcontext context; /* the device's primary one */
  CUstream stream;   /* not synchronising with the default stream */
  int device_count;
  int multiprocessors;
  size_t l2_bytes;
  char name[96];
  char arch[16]; /* "sm_90" */
};

/* Device memory; an address of 0 means that there is none. */
struct card_buffer {
  CUdeviceptr address;
  size_t bytes;
};

/* Is there a driver with at least one device? If not, `error` says what is missing, as the reason to skip a test. */
bool card_present(kjit_error *error);

/* Open a device and make its primary context current on this thread. KJIT_ERR_NO_DRIVER when there is none. */
kjit_status card_open(struct card *card, int ordinal, kjit_error *error);
void card_close(struct card *card); /* accepts a zeroed one; nothing may be running */

/* Make the card's context current. Every further thread that uses the card calls this first. */
kjit_status card_make_current(const struct card *card, kjit_error *error);

/* KJIT_OK for CUDA_SUCCESS; else KJIT_ERR_DRIVER with "<what>: <CUDA's name>" and the number as cause. */
kjit_status card_result(const struct card *card, CUresult result, const char *what, kjit_error *error);

/* Fill an error that holds none yet; returns `status`. */
kjit_status card_fail(kjit_error *error, kjit_status status, const char *format, ...) KJIT_PRINTF(3, 4);

kjit_status card_buffer_create(const struct card *card, struct card_buffer *out, size_t bytes, kjit_error *error);
void card_buffer_destroy(const struct card *card, struct card_buffer *buffer); /* accepts a zeroed one */

/* The pattern for memory that nothing has written: a NaN in fp16, in bf16 and, twice, in fp32, which no kernel writes.
 */
#define CARD_POISON 0x7FADu

/* Fill a buffer with CARD_POISON, in stream order. */
kjit_status card_poison(const struct card *card, struct card_buffer buffer, CUstream stream, kjit_error *error);

/* Copy from or to the GPU, and wait. */
kjit_status card_read(const struct card *card, void *to, CUdeviceptr from, size_t bytes, kjit_error *error);
kjit_status card_write(const struct card *card, CUdeviceptr to, const void *from, size_t bytes, kjit_error *error);

kjit_status card_synchronize(const struct card *card, CUstream stream, kjit_error *error);

/* A function that puts work on the stream, so that it can be timed, captured or repeated. */
typedef kjit_status (*card_work)(void *user, CUstream stream, kjit_error *error);

/* Capture the work into a graph that can be launched; api.graph_exec_destroy() ends it. Captures in the strictest
 * mode, so that a call that any mode forbids is an error. */
kjit_status card_capture(const struct card *card, CUstream stream, card_work work, void *user, CUgraphExec *out,
                         kjit_error *error);

#endif
