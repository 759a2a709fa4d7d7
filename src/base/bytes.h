/* Integers in bytes as kjit's formats store them: little-endian, on any machine and at any address. */
#ifndef KJIT_BASE_BYTES_H
#define KJIT_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline void bytes_put_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++)
    at[i] = (uint8_t)(value >> (8 * i));
}

static inline void bytes_put_u64(uint8_t *at, uint64_t value) {
  bytes_put_u32(at, (uint32_t)value);
  bytes_put_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint32_t bytes_get_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t bytes_get_u64(const uint8_t *at) {
  return (uint64_t)bytes_get_u32(at) | (uint64_t)bytes_get_u32(at + 4) << 32;
}

static inline bool bytes_all_zero(const uint8_t *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (at[i]) return false;
  return true;
}

#endif
