// CUDA C++ to an image (image.h), with the host's C++ compiler.
#ifndef KJIT_TESTS_EMULATOR_COMPILE_H
#define KJIT_TESTS_EMULATOR_COMPILE_H

#include <stdbool.h>

#include <string>
#include <utility>
#include <vector>

namespace emulator {

struct Source {
  std::string name, text;
};

struct CompileRequest {
  Source main;
  std::vector<Source> headers; // found by their names
  std::string arch;            // "sm_90a"
};

struct CompileResult {
  bool compiled = false;
  std::string image, log;
};

CompileResult compile(const CompileRequest &request);

} // namespace emulator

#endif
