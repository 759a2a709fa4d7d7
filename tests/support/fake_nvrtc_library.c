/* The fake compiler of fake_nvrtc.h as a library that NVRTC's users can open. A word in the source says what it does:
 * CRASH, ABORT, HANG, EAT (memory without end), LEAVE (exit), WAITS and a path (until that file is there; nobody is
 * asked meanwhile); anything else compiles. */
#include "support/fake_nvrtc.h"

#include <signal.h>
#include <unistd.h>

static void eat_memory(void) {
  for (;;) {
    char *piece = malloc(1 << 20);
    if (!piece) abort();
    memset(piece, 1, 1 << 20);
  }
}

static void misbehave(const char *source) {
  if (strstr(source, "CRASH")) raise(SIGSEGV);
  if (strstr(source, "ABORT")) {
    fprintf(stderr, "first words\nthe compiler's last words\n");
    abort();
  }
  while (strstr(source, "HANG"))
    (void)usleep(1000);
  if (strstr(source, "EAT")) eat_memory();
  if (strstr(source, "LEAVE")) _exit(3);
  fake_wait_for_file(source, "WAITS ");
}

/* Each function under the name by which it is looked up; <nvrtc.h>, which fake_nvrtc.h includes, declares them. */
nvrtcResult nvrtcVersion(int *major, int *minor) {
  return fake_version(major, minor);
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *header_names) {
  return fake_create(program, source, name, header_count, headers, header_names);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  return fake_destroy(program);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options) {
  misbehave(program->source);
  return fake_compile(program, option_count, options);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  return fake_cubin_size(program, bytes);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
  return fake_cubin(program, cubin);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  return fake_log_size(program, bytes);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  return fake_log(program, log);
}
nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  return fake_arch_count(count);
}
nvrtcResult nvrtcGetSupportedArchs(int *archs) {
  return fake_archs(archs);
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *expression) {
  return fake_add_name(program, expression);
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **lowered) {
  return fake_lowered(program, expression, lowered);
}
nvrtcResult nvrtcGetLTOIRSize(nvrtcProgram program, size_t *bytes) {
  return fake_ltoir_size(program, bytes);
}
nvrtcResult nvrtcGetLTOIR(nvrtcProgram program, char *ltoir) {
  return fake_ltoir(program, ltoir);
}
