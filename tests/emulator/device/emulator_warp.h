// CUDA's built-in functions that threads execute together.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_WARP_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_WARP_H

#include <stdbool.h>

inline void __syncthreads() {
  emulator->barrier_sync(0, 0);
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulator->sync_warp(mask);
}

inline int emulator_lane() {
  const emulator_place at = emulator_here();
  return static_cast<int>((at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z)) % 32);
}

template <typename Type> inline Type emulator_shuffle_from(unsigned mask, Type value, int from) {
  emulator_shuffle shuffle = {mask, emulator_bits<unsigned>(value), 0, from};
  emulator->shuffle(&shuffle);
  return emulator_bits<Type>(shuffle.result);
}

template <typename Type> inline Type __shfl_sync(unsigned mask, Type value, int lane) {
  return emulator_shuffle_from(mask, value, lane & 31);
}
template <typename Type> inline Type __shfl_xor_sync(unsigned mask, Type value, int lanes) {
  return emulator_shuffle_from(mask, value, emulator_lane() ^ lanes);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  emulator_vote vote = {mask, 0, predicate};
  emulator->vote(&vote);
  return vote.votes;
}
inline bool __any_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline bool __all_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

#endif
