// What the stand-in NVRTC makes and the stand-in driver loads: an ELF file that has of a cubin what kjit reads of one,
// and carries a shared object for the host in the section .kjit.emulator.
#ifndef KJIT_TESTS_EMULATOR_IMAGE_H
#define KJIT_TESTS_EMULATOR_IMAGE_H

#include <stdbool.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

// A kernel's parameters beyond this many are refused; CUDA itself allows 32,764 bytes of them.
constexpr size_t kMostParameters = 16;

struct KernelRecord {
  char name[128];
  uint32_t max_threads, min_blocks; // by __launch_bounds__, 0 if unstated
  uint32_t parameter_count;
  uint32_t parameter_bytes[kMostParameters];
};

struct Image {
  std::string arch; // "sm_90a"
  std::string library;
  std::vector<KernelRecord> kernels;
};

std::string write_image(const Image &image);

// False for anything that write_image() did not make. The bytes are not bounded by a length, as the driver gets none.
bool read_image(const void *bytes, Image *image);

} // namespace emulator

#endif
