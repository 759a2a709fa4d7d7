/* The GEMM of this folder from C: its configs, the choice by shape, and the call. Public headers of kjit only. */
#ifndef KJIT_EXAMPLES_GEMM_GEMM_H
#define KJIT_EXAMPLES_GEMM_GEMM_H

#include <kjit/kjit.h>

enum gemm_instruction { GEMM_MMA = 0, GEMM_WGMMA = 1 };
enum gemm_layout { GEMM_ROW = 0, GEMM_COLUMN = 1 };
enum gemm_epilogue { GEMM_NONE = 0, GEMM_BIAS, GEMM_BIAS_GELU, GEMM_BIAS_SILU, GEMM_RESIDUAL };

/* X(name, default): the kernel's constants, `#define KJIT_<name> <value>` each. gemm.yaml documents them. */
#define GEMM_FIELDS(X)                                                                                                 \
  X(instruction, GEMM_WGMMA)                                                                                           \
  X(dtype, KJIT_BF16)                                                                                                  \
  X(a_layout, GEMM_ROW)                                                                                                \
  X(b_layout, GEMM_ROW)                                                                                                \
  X(epilogue, GEMM_NONE)                                                                                               \
  X(BM, 128)                                                                                                           \
  X(BN, 256)                                                                                                           \
  X(BK, 64)                                                                                                            \
  X(stages, 4)                                                                                                         \
  X(consumers, 2)                                                                                                      \
  X(pingpong, 0)                                                                                                       \
  X(cluster_m, 1)                                                                                                      \
  X(cluster_n, 1)                                                                                                      \
  X(split_k, 1)                                                                                                        \
  X(swap, 0)                                                                                                           \
  X(group_m, 8)                                                                                                        \
  X(store_buffers, 2)                                                                                                  \
  X(blocks_per_sm, 1)                                                                                                  \
  X(warps_m, 2)                                                                                                        \
  X(warps_n, 4)

struct gemm_config {
#define GEMM_MEMBER(name, value) int name;
  GEMM_FIELDS(GEMM_MEMBER)
#undef GEMM_MEMBER
};

/* Device addresses and sizes of one call; leading dimensions in elements, multiples of 8. */
struct gemm_call {
  uint64_t a, b, c, bias, residual;
  int32_t m, n, k, lda, ldb, ldc, ldr;
  float alpha;
};

struct gemm_config gemm_config_default(void);

/* Replace `base`'s tiles by what suits m x n x k on a card of that architecture: wgmma on "sm_90a", else mma.sync. The
 * types, layouts and epilogue of `base` stay. README.md says where the rules come from. */
struct gemm_config gemm_choose(struct gemm_config base, int m, int n, int k, const char *arch, int sm_count);

/* Build and load; `folder` holds gemm.cu. Released with kjit_kernel_release(). */
KJIT_NODISCARD kjit_status gemm_kernel_get(kjit_runtime *runtime, const struct gemm_config *config, const char *arch,
                                           const char *folder, kjit_kernel **out, kjit_error *error);

/* Enqueue on `stream`. */
KJIT_NODISCARD kjit_status gemm_launch(kjit_runtime *runtime, kjit_kernel *kernel, const struct gemm_config *config,
                                       const struct gemm_call *call, int sm_count, CUstream stream, kjit_error *error);

#endif
