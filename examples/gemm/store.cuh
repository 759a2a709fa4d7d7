// Stores of C that know its edge.
#pragma once
#include "params.cuh"
#include <kjit/ptx/memory.cuh>

KJIT_DEVICE void store_element(const gemm_params &p, uint32_t bits, int row, int column) {
  *((unsigned short *)p.c + (int64_t)row * p.ldc + column) = (unsigned short)bits;
}

// Two columns from an even one on, of which one may lie outside.
KJIT_DEVICE void store_pair(const gemm_params &p, uint32_t word, int row, int column) {
  if (row >= p.m || column >= p.n) return;
  if (column + 1 < p.n)
    *(uint32_t *)((unsigned short *)p.c + (int64_t)row * p.ldc + column) = word;
  else
    store_element(p, word & 0xffff, row, column);
}

// Eight columns from a multiple of eight on, of which some may lie outside.
KJIT_DEVICE void store_chunk(const gemm_params &p, const Chunk &chunk, int row, int column) {
  if (column + 8 <= p.n) {
    st_global_16((unsigned short *)p.c + (int64_t)row * p.ldc + column, chunk);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    store_pair(p, chunk.word[i], row, column + 2 * i);
}
