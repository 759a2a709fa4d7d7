// The kernel's parameters as a function reads them that is not inlined.
//
// Through a pointer such a function would load them as memory, by generic addresses, which takes as long as a load from
// L2. By their address in the parameter space it loads them from the constant bank, as the kernel's own code does. Each
// thread by itself.
#pragma once
#include <kjit/types.cuh>

namespace kjit {

// The address in the parameter space of a parameter that is declared __grid_constant__.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: cvta" (.param)
KJIT_DEVICE uint64_t cvta_to_param(const void *parameter) {
  return __cvta_generic_to_grid_constant(parameter);
}

// A copy of the parameter at this address, of which only the parts are loaded that are used. The instruction is there
// from CUDA 12.3 on (PTX ISA 8.3); with older compilers the parameter is loaded as memory.
// PTX ISA 9.0, "Data Movement and Conversion Instructions: ld" (.param::entry)
template <typename Parameter> KJIT_DEVICE Parameter ld_param_entry(uint64_t address) {
#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 3
  return *(const Parameter *)__cvta_grid_constant_to_generic(address);
#else
  static_assert(sizeof(Parameter) % sizeof(uint64_t) == 0, "whole words");
  union {
    Parameter parameter;
    uint64_t words[sizeof(Parameter) / sizeof(uint64_t)];
  } copy;
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Parameter) / sizeof(uint64_t)); i++)
    asm("ld.param::entry.u64 %0, [%1];" : "=l"(copy.words[i]) : "l"(address + i * sizeof(uint64_t)));
  return copy.parameter;
#endif
}

} // namespace kjit
