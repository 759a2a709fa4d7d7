/* A fake nvJitLink as a library that stands beside the fake NVRTC. What it links is what that one gives as LTO-IR, the
 * source; the word BADLINK in it crashes, HOLDLINK and a path takes until that file is there, anything else gives the
 * cubin that the fake compiler would have given. */
#include "support/fake_nvrtc.h"

#include <signal.h>
#include <unistd.h>

int nvJitLinkCreate(void **handle, uint32_t option_count, const char **options);
int nvJitLinkDestroy(void **handle);
int nvJitLinkAddData(void *handle, int type, const void *data, size_t bytes, const char *name);
int nvJitLinkComplete(void *handle);
int nvJitLinkGetLinkedCubinSize(void *handle, size_t *bytes);
int nvJitLinkGetLinkedCubin(void *handle, void *cubin);
int nvJitLinkGetErrorLogSize(void *handle, size_t *bytes);
int nvJitLinkGetErrorLog(void *handle, char *log);
int nvJitLinkGetInfoLogSize(void *handle, size_t *bytes);
int nvJitLinkGetInfoLog(void *handle, char *log);

struct fake_link {
  char *source;
};

int nvJitLinkCreate(void **handle, uint32_t option_count, const char **options) {
  (void)option_count, (void)options;
  *handle = calloc(1, sizeof(struct fake_link));
  return !*handle;
}

int nvJitLinkDestroy(void **handle) {
  struct fake_link *link = *handle;
  free(link->source);
  free(link);
  *handle = NULL;
  return 0;
}

int nvJitLinkAddData(void *handle, int type, const void *data, size_t bytes, const char *name) {
  struct fake_link *link = handle;
  (void)type, (void)name;
  if (!link->source) link->source = strndup(data, bytes);
  return !link->source;
}

int nvJitLinkComplete(void *handle) {
  const struct fake_link *link = handle;
  if (strstr(link->source, "BADLINK")) raise(SIGSEGV);
  fake_wait_for_file(link->source, "HOLDLINK ");
  return 0;
}

int nvJitLinkGetLinkedCubinSize(void *handle, size_t *bytes) {
  (void)handle;
  *bytes = fake_nvrtc_cubin_bytes();
  return 0;
}

int nvJitLinkGetLinkedCubin(void *handle, void *cubin) {
  const struct fake_link *link = handle;
  fake_nvrtc_cubin(link->source, cubin, fake_nvrtc_cubin_bytes());
  return 0;
}

static int no_log(void *handle, size_t *bytes) {
  (void)handle;
  *bytes = 0;
  return 0;
}

int nvJitLinkGetErrorLogSize(void *handle, size_t *bytes) {
  return no_log(handle, bytes);
}

int nvJitLinkGetErrorLog(void *handle, char *log) {
  (void)handle, (void)log;
  return 0;
}

int nvJitLinkGetInfoLogSize(void *handle, size_t *bytes) {
  return no_log(handle, bytes);
}

int nvJitLinkGetInfoLog(void *handle, char *log) {
  (void)handle, (void)log;
  return 0;
}
