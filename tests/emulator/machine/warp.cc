// Instructions that one warp executes together: shuffles, votes, ldmatrix, stmatrix, mma.sync. Each waits until all of
// its lanes have arrived with the same instruction.
#include <algorithm>
#include <cstring>

#include "machine/state.h"

namespace emulator {
namespace {

template <typename Operands, size_t kCount>
Operands &operands_of(const std::array<Thread *, kCount> &members, int position) {
  return *static_cast<Operands *>(members[static_cast<size_t>(position)]->operands);
}

void check_mask(unsigned mask) {
  const Warp &warp = *self().warp;
  const uint32_t all = warp.size == kLanes ? 0xffffffffu : (1u << warp.size) - 1;
  if ((mask & all) != all) fail("mask 0x%x: the machine synchronises whole warps only", mask);
}

void sync_warp(unsigned mask) {
  check_mask(mask);
  meet_warp("__syncwarp", nullptr, [](auto &members) {
    Clock all;
    for (int i = 0; i < self().warp->size; i++)
      let_know(all, *members[static_cast<size_t>(i)]);
    for (int i = 0; i < self().warp->size; i++)
      join(members[static_cast<size_t>(i)]->clock, all);
  });
}

// Who gets a value from an atomic read, by way of a shuffle, has seen it as if by a read of its own: a fence of its own
// makes of that what it makes of a read.
void hand_on(const Thread &from, Thread &to) {
  for (size_t i = 0; &from != &to && i < from.observed.size(); i++)
    if (std::find(to.observed.begin(), to.observed.end(), from.observed[i]) == to.observed.end())
      to.observed.push_back(from.observed[i]);
}

void shuffle(emulator_shuffle *operands) {
  check_mask(operands->mask);
  meet_warp("shfl.sync", operands, [](auto &members) {
    const int size = self().warp->size;
    for (int i = 0; i < size; i++) {
      auto &own = operands_of<emulator_shuffle>(members, i);
      if (own.from < 0 || own.from >= size) fail("shfl.sync from lane %d", own.from);
      own.result = operands_of<emulator_shuffle>(members, own.from).value;
      hand_on(*members[static_cast<size_t>(own.from)], *members[static_cast<size_t>(i)]);
    }
  });
}

void vote(emulator_vote *operands) {
  check_mask(operands->mask);
  meet_warp("vote.sync", operands, [](auto &members) {
    uint32_t votes = 0;
    for (int i = 0; i < self().warp->size; i++)
      votes |= static_cast<uint32_t>(operands_of<emulator_vote>(members, i).predicate) << i;
    for (int i = 0; i < self().warp->size; i++)
      operands_of<emulator_vote>(members, i).votes = votes;
  });
}

void check_whole_warp(const char *what) {
  if (self().warp->size != kLanes) fail("%s in a warp of %d lanes", what, self().warp->size);
}

// Lanes 8i to 8i + 7 have the addresses of matrix i's rows.
template <typename Members> uint32_t row_address(const Members &members, int matrix, int row) {
  return operands_of<emulator_matrix_access>(members, matrix * 8 + row).address;
}

// The memory of that row, which its lane reads or writes.
template <typename Members>
char *row_memory(const Members &members, int matrix, int row, Access access, const char *what) {
  Thread &by = *members[static_cast<size_t>(matrix) * 8 + static_cast<size_t>(row)];
  return access_shared(by, row_address(members, matrix, row), kChunkBytes, access, what);
}

// One matrix to the lanes: lane l gets row l / 4, columns 2 (l % 4) and + 1.
template <typename Members> void load_one_matrix(const Members &members, int matrix) {
  uint16_t values[8][8];
  for (int row = 0; row < 8; row++)
    memcpy(values[row], row_memory(members, matrix, row, Access::kRead, "ldmatrix"), kChunkBytes);
  for (int lane = 0; lane < kLanes; lane++) {
    auto &own = operands_of<emulator_matrix_access>(members, lane);
    const int row = lane / 4, column = lane % 4 * 2;
    const uint32_t low = own.transposed ? values[column][row] : values[row][column];
    const uint32_t high = own.transposed ? values[column + 1][row] : values[row][column + 1];
    *own.r[matrix] = high << 16 | low;
  }
}

void load_matrix(emulator_matrix_access *operands) {
  check_whole_warp("ldmatrix");
  meet_warp(operands->transposed ? "ldmatrix.trans" : "ldmatrix", operands, [operands](auto &members) {
    for (int matrix = 0; matrix < operands->count; matrix++)
      load_one_matrix(members, matrix);
  });
}

// The lanes' registers are a matrix, as load_one_matrix() has it; its rows, or its columns, go to memory.
template <typename Members> void store_one_matrix(const Members &members, int matrix) {
  uint16_t values[8][8];
  const bool transposed = operands_of<emulator_matrix_access>(members, 0).transposed;
  for (int lane = 0; lane < kLanes; lane++) {
    const uint32_t word = *operands_of<emulator_matrix_access>(members, lane).r[matrix];
    const int row = lane / 4, column = lane % 4 * 2;
    (transposed ? values[column][row] : values[row][column]) = static_cast<uint16_t>(word);
    (transposed ? values[column + 1][row] : values[row][column + 1]) = static_cast<uint16_t>(word >> 16);
  }
  for (int row = 0; row < 8; row++)
    memcpy(row_memory(members, matrix, row, Access::kWrite, "stmatrix"), values[row], kChunkBytes);
}

void store_matrix(emulator_matrix_access *operands) {
  check_whole_warp("stmatrix");
  meet_warp(operands->count == 4 ? "stmatrix.x4" : "stmatrix.x2", operands, [operands](auto &members) {
    for (int matrix = 0; matrix < operands->count; matrix++)
      store_one_matrix(members, matrix);
  });
}

// Both halves of a register of an operand.
void unpack(float *numbers, uint32_t word, bool bf16) {
  numbers[0] = number_of(static_cast<uint16_t>(word), bf16);
  numbers[1] = number_of(static_cast<uint16_t>(word >> 16), bf16);
}

// Fragments to matrices: A registers are (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15); B's k 0-7, 8-15.
template <typename Members> void gather_operands(const Members &members, float (&a)[16][16], float (&b)[8][16]) {
  for (int lane = 0; lane < kLanes; lane++) {
    const auto &own = operands_of<emulator_mma>(members, lane);
    for (int i = 0; i < 4; i++)
      unpack(&a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8], own.a[i], own.bf16);
    for (int i = 0; i < 2; i++)
      unpack(&b[lane / 4][lane % 4 * 2 + i * 8], own.b[i], own.bf16);
  }
}

// Lane l has rows l / 4 and + 8, columns 2 (l % 4) and + 1.
template <typename Members> void multiply(const Members &members) {
  float a[16][16], b[8][16];
  gather_operands(members, a, b);
  for (int lane = 0; lane < kLanes; lane++)
    for (int i = 0; i < 4; i++) {
      float *const c = operands_of<emulator_mma>(members, lane).c[i];
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; k++)
        sum += a[row][k] * b[column][k];
      *c += sum;
    }
}

void mma(emulator_mma *operands) {
  check_whole_warp("mma");
  meet_warp(operands->bf16 ? "mma bf16" : "mma fp16", operands, [](auto &members) { multiply(members); });
}

float from_fp16(uint16_t bits) {
  const uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  uint32_t word = static_cast<uint32_t>(bits & 0x8000u) << 16;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return word ? -magnitude : magnitude;
  }
  word |= (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
  float number;
  memcpy(&number, &word, sizeof number);
  return number;
}

} // namespace

float number_of(uint16_t bits, bool bf16) {
  if (!bf16) return from_fp16(bits);
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float number;
  memcpy(&number, &word, sizeof number);
  return number;
}

void fill_warp(emulator_device_api *device) {
  device->sync_warp = sync_warp;
  device->shuffle = shuffle;
  device->vote = vote;
  device->load_matrix = load_matrix;
  device->store_matrix = store_matrix;
  device->mma = mma;
}

} // namespace emulator
