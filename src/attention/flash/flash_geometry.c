#include "attention/flash/flash_geometry.h"

#include "attention/flash/flash_rules.h"
#include "attention/flash/flash_traits.h"
#include "base/integer.h"

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Hardware Multithreading"; the
 * same for every architecture from sm_80 on. */
enum {
  WARP = 32,
  PARTITIONS = 4,      /* of a multiprocessor; each has its own registers and warps */
  REGISTER_UNIT = 256, /* registers are given to a warp in this unit */
  MAX_THREAD_REGISTERS = 255,
  SHARED_UNIT = 128,     /* shared memory is given to a block in this unit, bytes */
  SHARED_RESERVED = 1024 /* what the system takes of it for each block, bytes */
};

kjit_flash_geometry kjit_flash_variant_geometry(const kjit_flash_variant *variant) {
  const kjit_flash_config *config = &variant->config;
  const uint32_t warps = (uint32_t)config->n_warps, rows = (uint32_t)config->B_r, keys = (uint32_t)config->B_c;
  const uint32_t d = (uint32_t)flash_traits_columns(variant->traits.head_dim);
  const uint32_t dv = (uint32_t)flash_traits_columns(variant->traits.head_dim_v);
  /* O leaves through Q's part. */
  return (kjit_flash_geometry){.threads = WARP * warps,
                               .shared_bytes = (rows * (d > dv ? d : dv) + keys * (d + dv)) * 2,
                               .rows_per_warp = warps ? rows / warps : 0};
}

kjit_flash_geometry kjit_flash_config_geometry(const kjit_flash_config *config) {
  const kjit_flash_variant plain = kjit_flash_variant_plain(config);
  return kjit_flash_variant_geometry(&plain);
}

static int64_t blocks_by_registers(uint32_t registers, uint32_t warps, const struct target_limits *limits) {
  const int64_t per_warp = integer_round_up(registers * WARP, REGISTER_UNIT);
  const int64_t warps_per_partition = limits->registers_per_sm / PARTITIONS / per_warp;
  return warps_per_partition * PARTITIONS / warps;
}

static int64_t blocks_by_shared(uint32_t bytes, const struct target_limits *limits) {
  if (bytes > limits->shared_per_block) return 0;
  return limits->shared_per_sm / integer_round_up(bytes + SHARED_RESERVED, SHARED_UNIT);
}

uint32_t kjit_flash_config_ctas_per_sm(const kjit_flash_config *config, uint32_t registers, const char *arch) {
  const struct target_limits *limits = NULL;
  if (!arch || flash_rules_check(config, NULL) != KJIT_OK || flash_rules_limits(arch, &limits, NULL) != KJIT_OK)
    return 0;
  if (registers == 0 || registers > MAX_THREAD_REGISTERS) return 0;
  const uint32_t warps = (uint32_t)config->n_warps;
  int64_t blocks = limits->blocks_per_sm;
  blocks = integer_min(blocks, limits->threads_per_sm / (WARP * warps));
  blocks = integer_min(blocks, blocks_by_registers(registers, warps, limits));
  return (uint32_t)integer_min(blocks, blocks_by_shared(kjit_flash_config_geometry(config).shared_bytes, limits));
}

void flash_geometry_grid(uint32_t B_r, int64_t seq_q, int64_t heads, int64_t batch, uint32_t grid[3]) {
  grid[0] = (uint32_t)integer_divide_up(seq_q, B_r);
  grid[1] = (uint32_t)heads;
  grid[2] = (uint32_t)batch;
}
