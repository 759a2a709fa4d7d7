// A stand-in for libnvrtc that compiles for the host (compile.h). It has the functions that
// src/jit/toolkit/nvrtc_api.def lists, and each behaves as NVRTC's does as far as kjit can see.
#include <nvrtc.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "compile.h"
#include "digest.h"

struct _nvrtcProgram {
  emulator::CompileRequest request;
  emulator::CompileResult result;
  int (*stop)(void *, void *) = nullptr;
  void *stop_user = nullptr;
};

namespace {

// The build knows the folder of these files: a stand-in that was made from others is another compiler, and what it
// compiled is not to be found in the cache of this one. See CMakeLists.txt.
__attribute__((used)) const char device_digest[] = KJIT_EMULATOR_DIGEST;

constexpr int kArchs[] = {80, 86, 87, 88, 89, 90};

constexpr char kArchOption[] = "--gpu-architecture=";

// Options that change a kernel's speed, its messages or where it looks for files: nothing here follows from them.
bool is_without_effect(const std::string &option) {
  static const char *const heads[] = {"--std=",           "--ptxas-options=", "--no-source-include",
                                      "--no-cache",       "-lineinfo",        "--generate-line-info",
                                      "--fmad=",          "--use_fast_math",  "--maxrregcount=",
                                      "--diag-",          "--dopt=",          "--device-debug",
                                      "--prec-div=",      "--prec-sqrt=",     "--ftz=",
                                      "--split-compile=", "--minimal"};
  return std::any_of(std::begin(heads), std::end(heads),
                     [&](const char *head) { return option.compare(0, strlen(head), head) == 0; });
}

nvrtcResult read_options(nvrtcProgram program, int count, const char *const *options) {
  program->request.arch = "sm_80";
  for (int i = 0; i < count; i++) {
    const std::string option = options[i];
    if (option.compare(0, strlen(kArchOption), kArchOption) == 0) {
      program->request.arch = option.substr(strlen(kArchOption));
    } else if (!is_without_effect(option)) {
      program->result.log = "error: the emulator does not know the option " + option + "\n";
      return NVRTC_ERROR_INVALID_OPTION;
    }
  }
  return NVRTC_SUCCESS;
}

bool is_stopped(nvrtcProgram program) {
  return program->stop && program->stop(program->stop_user, nullptr) != 0;
}

nvrtcResult give_size(const std::string &bytes, size_t extra, size_t *out) {
  if (!out) return NVRTC_ERROR_INVALID_INPUT;
  *out = bytes.size() + extra;
  return NVRTC_SUCCESS;
}

} // namespace

extern "C" {

nvrtcResult nvrtcVersion(int *major, int *minor) {
  if (!major || !minor) return NVRTC_ERROR_INVALID_INPUT;
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  if (!count) return NVRTC_ERROR_INVALID_INPUT;
  *count = static_cast<int>(std::size(kArchs));
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs) {
  if (!archs) return NVRTC_ERROR_INVALID_INPUT;
  std::copy(std::begin(kArchs), std::end(kArchs), archs);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int header_count,
                               const char *const *headers, const char *const *header_names) {
  if (!out || !source || header_count < 0) return NVRTC_ERROR_INVALID_INPUT;
  nvrtcProgram program = new _nvrtcProgram;
  program->request.main = {name ? name : "default_program", source};
  for (int i = 0; i < header_count; i++)
    program->request.headers.push_back({header_names[i], headers[i]});
  *out = program;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
  if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcSetFlowCallback(nvrtcProgram program, int (*callback)(void *, void *), void *payload) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  program->stop = callback;
  program->stop_user = payload;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  const nvrtcResult read = read_options(program, option_count, options);
  if (read != NVRTC_SUCCESS) return read;
  if (is_stopped(program)) return NVRTC_ERROR_CANCELLED;
  program->result = emulator::compile(program->request);
  if (is_stopped(program)) return NVRTC_ERROR_CANCELLED;
  return program->result.compiled ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

/* Host compilers do not say what a name expression is lowered to, and there is no LTO-IR here. */
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char *) {
  return NVRTC_ERROR_INVALID_INPUT;
}

nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char *, const char **) {
  return NVRTC_ERROR_INVALID_INPUT;
}

nvrtcResult nvrtcGetLTOIRSize(nvrtcProgram, size_t *) {
  return NVRTC_ERROR_INVALID_INPUT;
}

nvrtcResult nvrtcGetLTOIR(nvrtcProgram, char *) {
  return NVRTC_ERROR_INVALID_INPUT;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
  return program ? give_size(program->result.image, 0, bytes) : NVRTC_ERROR_INVALID_PROGRAM;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(cubin, program->result.image.data(), program->result.image.size());
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
  return program ? give_size(program->result.log, 1, bytes) : NVRTC_ERROR_INVALID_PROGRAM;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(log, program->result.log.c_str(), program->result.log.size() + 1);
  return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
  case NVRTC_SUCCESS:
    return "NVRTC_SUCCESS";
  case NVRTC_ERROR_INVALID_INPUT:
    return "NVRTC_ERROR_INVALID_INPUT";
  case NVRTC_ERROR_INVALID_PROGRAM:
    return "NVRTC_ERROR_INVALID_PROGRAM";
  case NVRTC_ERROR_INVALID_OPTION:
    return "NVRTC_ERROR_INVALID_OPTION";
  case NVRTC_ERROR_COMPILATION:
    return "NVRTC_ERROR_COMPILATION";
  case NVRTC_ERROR_CANCELLED:
    return "NVRTC_ERROR_CANCELLED";
  default:
    return "an error that the emulator does not make";
  }
}

} // extern "C"
