/* An nvrtc_api that answers as told and notes what it was asked. NVRTC's API has no user pointer: one for the process.
 */
#ifndef KJIT_TESTS_UNIT_JIT_SCRIPTED_NVRTC_H
#define KJIT_TESTS_UNIT_JIT_SCRIPTED_NVRTC_H

#include <stdio.h>
#include <string.h>

#include "jit/toolkit/nvrtc.h"

static struct script {
  int major, minor;
  nvrtcResult result;
  const char *log;
  size_t log_bytes; /* 0: strlen(log) + 1 */
  const void *cubin;
  size_t cubin_bytes;
  int flow_calls; /* how often the compile asks whether to go on */

  char source[1024], name[64], headers[256], options[512];
  int compiles, alive, flow_answers;
  int (*flow)(void *, void *);
  void *flow_payload;
} script;

static inline nvrtcResult version(int *major, int *minor) {
  *major = script.major;
  *minor = script.minor;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult create_program(nvrtcProgram *program, const char *source, const char *name, int header_count,
                                         const char *const *headers, const char *const *header_names) {
  static char there;
  snprintf(script.source, sizeof script.source, "%s", source);
  snprintf(script.name, sizeof script.name, "%s", name);
  for (int i = 0; i < header_count; i++) {
    strcat(script.headers, header_names[i]);
    strcat(script.headers, "=");
    strcat(script.headers, headers[i]);
    strcat(script.headers, ";");
  }
  script.alive++;
  *program = (nvrtcProgram)(void *)&there;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult destroy_program(nvrtcProgram *program) {
  script.alive--;
  *program = NULL;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult compile_program(nvrtcProgram program, int count, const char *const *options) {
  (void)program;
  script.compiles++;
  script.options[0] = '\0';
  for (int i = 0; i < count; i++) {
    strcat(script.options, options[i]);
    strcat(script.options, " ");
  }
  for (int i = 0; script.flow && i < script.flow_calls; i++)
    script.flow_answers += script.flow(script.flow_payload, NULL);
  return script.flow_answers ? NVRTC_ERROR_CANCELLED : script.result;
}

static inline nvrtcResult cubin_size(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = script.cubin_bytes;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult cubin(nvrtcProgram program, char *out) {
  (void)program;
  memcpy(out, script.cubin, script.cubin_bytes);
  return NVRTC_SUCCESS;
}

static inline nvrtcResult log_size(nvrtcProgram program, size_t *bytes) {
  (void)program;
  *bytes = script.log_bytes ? script.log_bytes : strlen(script.log) + 1;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult program_log(nvrtcProgram program, char *log) {
  (void)program;
  strcpy(log, script.log);
  return NVRTC_SUCCESS;
}

static inline nvrtcResult arch_count(int *count) {
  *count = 3;
  return NVRTC_SUCCESS;
}

static inline nvrtcResult arch_list(int *archs) {
  archs[0] = 80;
  archs[1] = 90;
  archs[2] = 100;
  return NVRTC_SUCCESS;
}

static inline const char *error_string(nvrtcResult result) {
  (void)result;
  return "NVRTC_SAYS_SO";
}

static inline nvrtcResult set_flow(nvrtcProgram program, int (*callback)(void *, void *), void *payload) {
  (void)program;
  script.flow = callback;
  script.flow_payload = payload;
  return NVRTC_SUCCESS;
}

static const struct nvrtc_api scripted = {.nvrtcVersion = version,
                                          .nvrtcCreateProgram = create_program,
                                          .nvrtcDestroyProgram = destroy_program,
                                          .nvrtcCompileProgram = compile_program,
                                          .nvrtcGetCUBINSize = cubin_size,
                                          .nvrtcGetCUBIN = cubin,
                                          .nvrtcGetProgramLogSize = log_size,
                                          .nvrtcGetProgramLog = program_log,
                                          .nvrtcGetNumSupportedArchs = arch_count,
                                          .nvrtcGetSupportedArchs = arch_list,
                                          .nvrtcGetErrorString = error_string,
                                          .nvrtcSetFlowCallback = set_flow};

#endif
