// What stands between CUDA C++ and the host's compiler and cannot be a macro: inline PTX, dynamic shared memory, and
// which functions are kernels. Line numbers stay.
#ifndef KJIT_TESTS_EMULATOR_TRANSLATE_H
#define KJIT_TESTS_EMULATOR_TRANSLATE_H

#include <stdbool.h>

#include <string>
#include <vector>

namespace emulator {

//   asm volatile("ptx" : "=r"(a) : "r"(b));   ->  emulated_asm<emulated_asm_id("ptx")>(a, b);
//   extern __shared__ char name[];            ->  char *const name = (char *)emulated_dynamic_shared();
std::string translate(const std::string &source);

// extern "C" __global__ functions, and the texts of their launch bounds ("0" when there is none).
struct Entry {
  std::string name, max_threads, min_blocks;
};
std::vector<Entry> find_entries(const std::string &source);

// $KJIT_EMULATOR_MUTATION: "FILE", a line end, what to replace in that file, a line end, what with; line ends inside
// are written \n. For tests that want to see a spoilt kernel fail. Does nothing where it is not set or names another
// file; false when the text does not occur exactly once.
bool mutate(const std::string &file, std::string *source);

} // namespace emulator

#endif
