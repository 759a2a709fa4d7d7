/* For people who look inside: PTX, times and line tables of a compile.
 *
 * NVRTC from 12.2 on writes the time of its phases as text into a file, a line each: "k.cu, PTX Translation, 19, ms".
 * The file here is a piece of memory, so that no name has to be found and nothing is left behind. Both things are
 * extras: where they fail, the compile goes on without them. No state; any thread. */
#include "jit/compile/compile_inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A source has a handful of lines. */
#define TIME_TEXT_LIMIT 16384

/* 256 MiB, as for machine code. */
#define PTX_LIMIT ((size_t)256 << 20)

static const struct {
  const char *name;
  size_t member;
} phases[] = {
    {", CUDA C++ Frontend, ", offsetof(struct compile_phases, front_end_ms)},
    {", NVVM Optimizer, ", offsetof(struct compile_phases, optimizer_ms)},
    {", PTX Translation, ", offsetof(struct compile_phases, ptxas_ms)},
};

int compile_time_begin(const struct job *job, char option[COMPILE_TIME_OPTION_BYTES]) {
  const bool able = job->major > 12 || (job->major == 12 && job->minor >= 2);
  if (!able || !(nvrtc_inspected(job->nvrtc) & NVRTC_INSPECT_TIME)) return -1;
  const int file = memfd_create("kjit-compile-times", MFD_CLOEXEC);
  if (file >= 0) (void)snprintf(option, COMPILE_TIME_OPTION_BYTES, "--time=/proc/self/fd/%d", file);
  return file;
}

void compile_time_end(int file, struct job *job) {
  char text[TIME_TEXT_LIMIT];
  if (file < 0) return;
  const ssize_t bytes = pread(file, text, sizeof text - 1, 0);
  (void)close(file);
  text[bytes > 0 ? bytes : 0] = '\0';
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    const size_t length = strlen(phases[i].name);
    double *const to = (double *)(void *)((char *)&job->result->phases + phases[i].member);
    for (const char *at = text; (at = strstr(at, phases[i].name)); at += length)
      *to += strtod(at + length, NULL);
  }
}

char *compile_read_ptx(const struct job *job, size_t *bytes) {
  const struct nvrtc_api *const api = job->api;
  *bytes = 0;
  if (!api->nvrtcGetPTXSize || !api->nvrtcGetPTX) return NULL;
  if (api->nvrtcGetPTXSize(job->program, bytes) != NVRTC_SUCCESS || *bytes == 0 || *bytes > PTX_LIMIT) return NULL;
  char *const ptx = mem_alloc(job->mem, *bytes + 1);
  if (ptx && api->nvrtcGetPTX(job->program, ptx) == NVRTC_SUCCESS) return ptx;
  mem_free(job->mem, ptx);
  return NULL;
}

void compile_keep_ptx(struct job *job) {
  size_t bytes;
  if (nvrtc_inspected(job->nvrtc) & NVRTC_INSPECT_PTX) job->result->ptx = compile_read_ptx(job, &bytes);
}

bool compile_wants_lines(const struct jit_request *request) {
  static const char *const options[] = {"--generate-line-info", "-lineinfo", "--device-debug", "-G"};
  for (size_t i = 0; i < request->option_count; i++)
    for (size_t j = 0; j < sizeof options / sizeof *options; j++)
      if (!strcmp(request->options[i], options[j])) return true;
  return false;
}

void compile_append_line(struct text *text, const char *path, const char *name) {
  const bool is_file = path && strcmp(path, name) != 0;
  const char *const shown = is_file ? path : name;
  if (!strpbrk(shown, "\"\\\n")) text_appendf(text, "#line 1 \"%s%s\"\n", is_file ? "" : COMPILE_MEMORY_FOLDER, shown);
}

bool compile_line_texts(const struct mem *mem, const struct source_file *files, size_t count, const char **texts) {
  bool made = true;
  for (size_t i = 0; i < count; i++) {
    struct text text;
    text_init(&text, mem, SIZE_MAX / 2);
    compile_append_line(&text, files[i].path, files[i].name);
    text_append_bytes(&text, files[i].text, files[i].bytes);
    texts[i] = text_take(&text);
    text_finish(&text);
    made = made && texts[i] != NULL;
  }
  if (made) return true;
  for (size_t i = 0; i < count; i++)
    mem_free(mem, (char *)(uintptr_t)texts[i]);
  return false;
}
