/* How many blocks of a config's kernel an SM holds at once: the least of what registers, shared memory, threads and the
 * block limit allow. Pure. */
#include "base/integer.h"
#include "base/target.h"
#include "family/config.h"

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Hardware Multithreading"; the
 * same for every architecture from sm_75 on. */
enum {
  WARP = 32,
  PARTITIONS = 4,      /* of an SM; each has its own registers and warps */
  REGISTER_UNIT = 256, /* registers are given to a warp in this unit */
  MAX_THREAD_REGISTERS = 255,
  SHARED_UNIT = 128,     /* shared memory is given to a block in this unit, bytes */
  SHARED_RESERVED = 1024 /* what the system takes of it for each block, bytes */
};

static int64_t blocks_by_registers(uint32_t registers, int64_t warps, const struct target_limits *limits) {
  const int64_t per_warp = integer_round_up(registers * WARP, REGISTER_UNIT);
  const int64_t warps_per_partition = limits->registers_per_sm / PARTITIONS / per_warp;
  return warps_per_partition * PARTITIONS / warps;
}

static int64_t blocks_by_shared(uint32_t bytes, const struct target_limits *limits) {
  if (bytes > limits->shared_per_block) return 0;
  return limits->shared_per_sm / integer_round_up((int64_t)bytes + SHARED_RESERVED, SHARED_UNIT);
}

static uint32_t count_blocks(const kjit_geometry *geometry, uint32_t registers, const struct target_limits *limits) {
  const int64_t threads = (int64_t)geometry->threads[0] * geometry->threads[1] * geometry->threads[2];
  if (threads < 1) return 0;
  int64_t blocks = integer_min(limits->blocks_per_sm, limits->threads_per_sm / threads);
  blocks = integer_min(blocks, blocks_by_registers(registers, integer_divide_up(threads, WARP), limits));
  return (uint32_t)integer_min(blocks, blocks_by_shared(geometry->shared_bytes, limits));
}

uint32_t kjit_config_blocks_per_sm(const kjit_config *config, uint32_t registers, const char *arch) {
  struct target target;
  if (registers == 0 || registers > MAX_THREAD_REGISTERS || !arch || target_parse(&target, arch, NULL) != KJIT_OK)
    return 0;
  const struct target_limits *const limits = target_get_limits(&target);
  if (!limits || kjit_config_check(config, arch, NULL) != KJIT_OK) return 0;
  const kjit_geometry geometry = config_geometry(config->family, config->values);
  return count_blocks(&geometry, registers, limits);
}
