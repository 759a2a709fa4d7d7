// What translate() (translate.h) makes calls of, in terms of emulator_prelude.h, which comes before it. No header of
// the host's is included: kernels have their own int32_t and the like.
#ifndef KJIT_TESTS_EMULATOR_TRANSLATED_H
#define KJIT_TESTS_EMULATOR_TRANSLATED_H

#include <stdbool.h>

// What a kernel's launch bounds say: the most threads of a block, and how many blocks a multiprocessor has room for.
// The compiler of the source reads it from the object.
#define EMULATED_BOUNDS(name, threads, blocks)                                                                         \
  extern "C" {                                                                                                         \
  extern __attribute__((visibility("default"))) const unsigned emulated_bounds_##name[2];                              \
  const unsigned emulated_bounds_##name[2] = {(threads), (blocks)};                                                    \
  }

// FNV-1a of a PTX text.
constexpr unsigned long long emulated_asm_id(const char *ptx) {
  unsigned long long hash = 0xcbf29ce484222325ull;
  for (; *ptx; ptx++)
    hash = (hash ^ (unsigned char)*ptx) * 0x100000001b3ull;
  return hash;
}

template <unsigned long long kText> struct EmulatedInstruction {
  static constexpr bool kKnown = false;
  template <typename... Operands> static void run(Operands &&...) {}
};

// An asm statement outside of kjit/ptx/: its operands in their order, what it writes by reference.
template <unsigned long long kText, typename... Operands> inline void emulated_asm(Operands &&...operands) {
  static_assert(EmulatedInstruction<kText>::kKnown || sizeof...(Operands) > 1000,
                "the emulator does not know this inline PTX: put it into kernel_src/kjit/ptx, or into translated.h");
  EmulatedInstruction<kText>::run((Operands &&) operands...);
}

struct EmulatedKnown {
  static constexpr bool kKnown = true;
};

// Hides a value from the compiler, or an order: what it computes is no question here.
template <> struct EmulatedInstruction<emulated_asm_id("")> : EmulatedKnown {
  template <typename... Operands> static void run(Operands &&...) {}
};

template <>
struct EmulatedInstruction<emulated_asm_id("{ .reg .pred never; setp.eq.s32 never, %0, -2; @never trap; }")>
    : EmulatedKnown {
  static void run(int value) {
    if (value == -2) emulator->trap();
  }
};

template <>
struct EmulatedInstruction<emulated_asm_id(
    "{ .reg .pred outside; setp.ge.s32 outside, %1, %2; @outside mov.b32 %0, 0xff800000; }")> : EmulatedKnown {
  static void run(float &score, int column, int valid) {
    if (column >= valid) score = -__builtin_inff();
  }
};

template <> struct EmulatedInstruction<emulated_asm_id("tanh.approx.f32 %0, %1;")> : EmulatedKnown {
  static void run(float &y, float x) { y = tanhf(x); }
};

template <> struct EmulatedInstruction<emulated_asm_id("cvt.f32.f16 %0, %1;")> : EmulatedKnown {
  static void run(float &value, unsigned short bits) { value = emulator_from_fp16(bits); }
};

template <> struct EmulatedInstruction<emulated_asm_id("cvt.rn.f16.f32 %0, %1;")> : EmulatedKnown {
  static void run(unsigned short &bits, float value) { bits = emulator_to_fp16(value); }
};

template <> struct EmulatedInstruction<emulated_asm_id("cvt.rn.bf16.f32 %0, %1;")> : EmulatedKnown {
  static void run(unsigned short &bits, float value) { bits = emulator_to_bf16(value); }
};

#endif
