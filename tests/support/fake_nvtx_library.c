/* A profiler's library for tests: it takes the place of NVTX's functions for domains and writes a line for each call
 * into the file that $FAKE_NVTX_FILE names. With $FAKE_NVTX_REFUSES it says that it cannot work. Where NVIDIA's headers
 * are there, the numbers and the struct below are compared with them. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
_Static_assert(sizeof(nvtxEventAttributes_t) == 48 && offsetof(nvtxEventAttributes_t, message) == 40 &&
                   offsetof(nvtxEventAttributes_t, messageType) == 32 && NVTX_MESSAGE_TYPE_ASCII == 1,
               "the test's struct is NVTX's");
#endif
#endif

struct event {
  uint16_t version, bytes;
  char between[28];
  int32_t message_type;
  const char *message;
};

struct callbacks {
  size_t bytes;
  int (*functions_of)(int module, void ****places, unsigned *count);
};

struct version {
  size_t bytes;
  uint32_t version, reserved;
};

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t));

static int domain; /* its address is the handle */

static void say(const char *what, const char *more) {
  const char *const path = getenv("FAKE_NVTX_FILE");
  FILE *const file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  (void)fprintf(file, "%s%s\n", what, more);
  (void)fclose(file);
}

static void *create(const char *name) {
  say("domain ", name);
  return &domain;
}

static int push(void *to, const struct event *event) {
  const int sound = to == &domain && event->version == 3 && event->bytes == 48 && event->message_type == 1;
  say(sound ? "push " : "unsound push ", event->message);
  return 0;
}

static int pop(void *from) {
  say(from == &domain ? "pop" : "unsound pop", "");
  return 0;
}

/* Take the places of a module as a profiler does: all that it has functions for, by their numbers. */
static int take(const struct callbacks *callbacks, int module, unsigned number, void *function) {
  void ***places = NULL;
  unsigned count = 0;
  if (!callbacks->functions_of(module, &places, &count) || number >= count || !places[number]) return 0;
  *places[number] = function;
  return 1;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const struct callbacks *const callbacks = export_table(1);
  const struct version *const version = export_table(3);
  if (getenv("FAKE_NVTX_REFUSES") || !callbacks || callbacks->bytes < sizeof *callbacks || !version) return 0;
  if (version->version != 3 || export_table(99)) return 0;
  for (int module = 1; module <= 6; module++)
    if (!take(callbacks, module, 2, (void *)(uintptr_t)say)) return 0;
  return take(callbacks, 5, 4, (void *)(uintptr_t)push) && take(callbacks, 5, 5, (void *)(uintptr_t)pop) &&
         take(callbacks, 5, 12, (void *)(uintptr_t)create) && !callbacks->functions_of(7, NULL, NULL);
}
