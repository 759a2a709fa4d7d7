// What NVRTC gives a kernel without an #include, for the host's compiler: included in front of every kernel's text. No
// standard header: kernels define names like uint64_t themselves.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_PRELUDE_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_PRELUDE_H
#include "emulator_device.h"

// A copy, so that reading it is reading what the kernel's object holds (emulator_checks.h).
static emulator_device_api emulator_functions;
static const emulator_device_api *const emulator = &emulator_functions;

#include "emulator_checks.h"

extern "C" EMULATOR_UNCHECKED __attribute__((visibility("default"))) void
emulator_attach(const emulator_device_api *device) {
  emulator_functions = *device;
}

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __grid_constant__
#define __constant__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

EMULATOR_UNCHECKED static inline emulator_place emulator_here() {
  return *emulator->place();
}
#define threadIdx (emulator_here().thread)
#define blockIdx  (emulator_here().block)
#define blockDim  (emulator_here().block_size)
#define gridDim   (emulator_here().grid_size)
constexpr int warpSize = 32;

static inline void *emulated_dynamic_shared() {
  return emulator->dynamic_shared();
}

// One value seen as another of the same size.
template <typename To, typename From> inline To emulator_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

#include "emulator_math.h"
#include "emulator_memory.h"
#include "emulator_warp.h"

// What inline PTX does (../translated.h): EMULATOR_PTX("text") { static void run(operands) … };
#define EMULATOR_PTX(ptx) template <> struct EmulatedInstruction<emulated_asm_id(ptx)> : EmulatedKnown

// A copy: the caller's bytes need not be aligned as the type is.
template <typename Type> EMULATOR_UNCHECKED inline Type emulator_parameter(const void *bytes) {
  Type value;
  __builtin_memcpy(&value, bytes, sizeof value);
  return value;
}

template <unsigned... kIndex> struct EmulatorIndices {
  template <typename... Types> EMULATOR_UNCHECKED static void call(void (*kernel)(Types...), void **params) {
    kernel(emulator_parameter<Types>(params[kIndex])...);
    (void)params;
  }
};
template <unsigned kCount, unsigned... kIndex>
struct EmulatorCount : EmulatorCount<kCount - 1, kCount - 1, kIndex...> {};
template <unsigned... kIndex> struct EmulatorCount<0, kIndex...> { using Indices = EmulatorIndices<kIndex...>; };

// A kernel by its type.
template <typename> struct EmulatorKernel;
template <typename... Types> struct EmulatorKernel<void(Types...)> {
  static constexpr unsigned kCount = sizeof...(Types);

  static void enter(void (*kernel)(Types...), void **params) { EmulatorCount<kCount>::Indices::call(kernel, params); }
};

template <unsigned kCount> struct EmulatorSizes { unsigned bytes[kCount + 1]; };
template <typename... Types> constexpr EmulatorSizes<sizeof...(Types)> emulator_sizes(void (*)(Types...)) {
  return {{static_cast<unsigned>(sizeof(Types))..., 0}};
}

#define EMULATOR_KERNEL(name)                                                                                          \
  extern "C" {                                                                                                         \
  __attribute__((visibility("default"))) void emulator_entry_##name(void **params) {                                   \
    EmulatorKernel<decltype(name)>::enter(name, params);                                                               \
  }                                                                                                                    \
  extern __attribute__((visibility("default"))) const decltype(emulator_sizes(name)) emulator_parameters_##name =      \
      emulator_sizes(name);                                                                                            \
  }

#endif
