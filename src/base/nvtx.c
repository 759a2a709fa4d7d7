/* A client of NVTX 3's injection interface, which is all that a profiler needs: nothing of NVIDIA's is linked.
 *
 * 1. The library that $NVTX_INJECTION64_PATH names is opened and its InitializeInjectionNvtx2() called with a function
 *    that hands out tables by number (export_table()).
 * 2. From the table of callbacks the profiler gets, for each module of NVTX, an array of pointers to places, and writes
 *    its own functions into the places it wants. kjit calls three of them; the other places are there because profilers
 *    fill in more than that, and are never read.
 * 3. The domain "kjit" is made, and ranges are pushed to it and popped from it.
 *
 * All this belongs to the process and not to a runtime, because the interface passes no pointer of the client's. It is
 * written within pthread_once() and only read afterwards; the profiler's functions are called by any thread. */
#include "base/nvtx.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"

/* NVTX's numbers: of export tables, of modules, and of the functions in the module CORE2. */
enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3 };
enum { MODULE_CORE2 = 5, MODULE_COUNT = 7 };
enum { CORE2_RANGE_PUSH = 4, CORE2_RANGE_POP = 5, CORE2_DOMAIN_CREATE = 12 };

#define NVTX_VERSION 3

/* No module has more functions; the first place of each is unused. */
#define PLACES 16

/* Longest text of a range. */
#define RANGE_BYTES 512

typedef void (*function)(void);

/* nvtxEventAttributes_t of version 3. */
struct event {
  uint16_t version, bytes;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type; /* 1: a C string */
  const char *message;
};
_Static_assert(sizeof(struct event) == 48, "as nvtxEventAttributes_t is");

struct callbacks {
  size_t bytes;
  int (*functions_of)(int module, function ***places, unsigned *count);
};

struct version {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_profiler_version)(uint32_t version);
};

static struct {
  pthread_once_t once;
  struct dynlib library;
  function core2[PLACES]; /* where the profiler puts its functions */
  function *core2_places[PLACES];
  function unread; /* the one place of all functions of the other modules */
  function *other_places[PLACES];
  void *domain;
  bool listens;
} state = {.once = PTHREAD_ONCE_INIT};

static int functions_of(int module, function ***places, unsigned *count) {
  if (module <= 0 || module >= MODULE_COUNT) return 0;
  if (places) *places = module == MODULE_CORE2 ? state.core2_places : state.other_places;
  if (count) *count = PLACES;
  return 1;
}

static void set_profiler_version(uint32_t version) {
  (void)version;
}

static const void *export_table(uint32_t number) {
  static const struct callbacks callbacks = {sizeof callbacks, functions_of};
  static const struct version version = {sizeof version, NVTX_VERSION, 0, set_profiler_version};
  return number == TABLE_CALLBACKS ? (const void *)&callbacks : number == TABLE_VERSION ? &version : NULL;
}

static void open_once(void) {
  const char *const path = secure_getenv("NVTX_INJECTION64_PATH");
  int (*initialize)(const void *(*)(uint32_t)) = NULL;
  if (!path || !*path || dynlib_open(&state.library, path, NULL) != KJIT_OK) return;
  for (size_t i = 1; i < PLACES; i++) {
    state.core2_places[i] = &state.core2[i];
    state.other_places[i] = &state.unread;
  }
  void *const symbol = dynlib_symbol(&state.library, "InitializeInjectionNvtx2");
  memcpy(&initialize, &symbol, sizeof symbol); /* POSIX, not C, says that a function's address fits a data pointer */
  /* A library that began to initialize itself may have threads already, so it is not closed when it fails. */
  if (!initialize || !initialize(export_table)) return;
  void *(*const create)(const char *) = (void *(*)(const char *))state.core2[CORE2_DOMAIN_CREATE];
  if (create) state.domain = create("kjit");
  state.listens = state.core2[CORE2_RANGE_PUSH] && state.core2[CORE2_RANGE_POP];
}

bool nvtx_open(void) {
  return !pthread_once(&state.once, open_once) && state.listens;
}

void nvtx_push(const char *what, const char *label, const char *arch) {
  char text[RANGE_BYTES];
  int (*const push)(void *, const struct event *) =
      (int (*)(void *, const struct event *))state.core2[CORE2_RANGE_PUSH];
  const struct event event = {.version = NVTX_VERSION, .bytes = sizeof event, .message_type = 1, .message = text};
  (void)snprintf(text, sizeof text, "%s %.400s %s", what, label, arch);
  (void)push(state.domain, &event);
}

void nvtx_pop(void) {
  int (*const pop)(void *) = (int (*)(void *))state.core2[CORE2_RANGE_POP];
  (void)pop(state.domain);
}
