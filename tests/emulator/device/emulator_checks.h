// A kernel's own reads and writes through pointers, announced to the machine: with -fsanitize=kernel-address the
// compiler calls these functions in front of each, and links nothing.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_CHECKS_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_CHECKS_H

#include <stdbool.h>

#define EMULATOR_UNCHECKED __attribute__((no_sanitize("kernel-address")))

// The kernel's object, by the linker.
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start, _end;

// What lies near the frame is on this fiber's stack: registers, on a GPU. Constants and tables lie in the object. No
// call for these, as they are most.
EMULATOR_UNCHECKED inline void emulator_announce(unsigned long address, unsigned long bytes, bool write) {
  const unsigned long frame = reinterpret_cast<unsigned long>(__builtin_frame_address(0));
  constexpr unsigned long kBelow = 64 << 10, kAbove = 256 << 10;
  const unsigned long object = reinterpret_cast<unsigned long>(&__ehdr_start);
  const unsigned long object_end = reinterpret_cast<unsigned long>(&_end);
  if (address - (frame - kBelow) < kBelow + kAbove || (!write && address - object < object_end - object)) return;
  emulator->announce(reinterpret_cast<const void *>(address), static_cast<unsigned>(bytes), write);
}

#define EMULATOR_CHECKS(bytes)                                                                                         \
  EMULATOR_UNCHECKED void __asan_load##bytes##_noabort(unsigned long address) {                                        \
    emulator_announce(address, bytes, false);                                                                          \
  }                                                                                                                    \
  EMULATOR_UNCHECKED void __asan_store##bytes##_noabort(unsigned long address) {                                       \
    emulator_announce(address, bytes, true);                                                                           \
  }

extern "C" {
EMULATOR_CHECKS(1)
EMULATOR_CHECKS(2)
EMULATOR_CHECKS(4)
EMULATOR_CHECKS(8)
EMULATOR_CHECKS(16)
EMULATOR_UNCHECKED void __asan_loadN_noabort(unsigned long address, unsigned long bytes) {
  emulator_announce(address, bytes, false);
}
EMULATOR_UNCHECKED void __asan_storeN_noabort(unsigned long address, unsigned long bytes) {
  emulator_announce(address, bytes, true);
}
EMULATOR_UNCHECKED void __asan_handle_no_return() {}
}

#undef EMULATOR_CHECKS

#endif
