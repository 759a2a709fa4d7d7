/* The host's side of the GEMM. A plan takes three steps: the family chooses a config for the problem, from the card's
 * tuned table or by its own rules; the config's kernel is compiled or found in the cache; block, cluster, shared memory
 * and grid are computed by the expressions of gemm.yaml. A launch makes the tensor maps and passes the arguments. Each
 * function works for the calling thread alone; kernels, families and runtimes may be shared. */
#include "gemm.h"

#include <stdio.h>
#include <string.h>

#define PROBLEM_MAX 256

static kjit_status plan_launch(struct gemm_plan *plan, const kjit_family_problem *problem, uint32_t sm_count,
                               kjit_error *error) {
  const kjit_geometry geometry = kjit_config_geometry(&plan->config);
  plan->launch = kjit_launch_default();
  plan->launch.dynamic_shared_bytes = geometry.shared_bytes;
  memcpy(plan->launch.block, geometry.threads, sizeof plan->launch.block);
  memcpy(plan->launch.cluster, geometry.cluster, sizeof plan->launch.cluster);
  return kjit_family_grid(&plan->config, problem->parameters, sm_count, plan->launch.grid, error);
}

kjit_status gemm_plan_make(struct gemm_plan *plan, kjit_runtime *runtime, const kjit_family *family,
                           const struct gemm_call *call, const kjit_device_info *device, kjit_error *error) {
  char text[PROBLEM_MAX];
  kjit_family_problem problem;
  memset(plan, 0, sizeof *plan);
  snprintf(text, sizeof text, "dtype=%s,a_layout=%s,b_layout=%s,epilogue=%s,m=%d,n=%d,k=%d", call->dtype,
           call->a_layout, call->b_layout, call->epilogue, call->m, call->n, call->k);
  kjit_status status = kjit_family_problem_parse(family, text, &problem, error);
  if (status == KJIT_OK)
    status = kjit_family_choose(runtime, &problem, device, NULL, &plan->config, &plan->decided_by, error);
  if (status == KJIT_OK) status = plan_launch(plan, &problem, device->multiprocessors, error);
  if (status == KJIT_OK) status = kjit_config_get_kernel(runtime, &plan->config, NULL, 0, &plan->kernel, error);
  return status;
}

/* A field of the config; 0 if gemm.yaml has none of this name. */
static int field(const struct gemm_plan *plan, const char *name) {
  int32_t value;
  return kjit_config_get(&plan->config, name, &value, NULL) == KJIT_OK ? value : 0;
}

/* A matrix whose rows (columns, if column-major) have `inner` elements; boxes of 64 x `rows`. */
static kjit_status make_map(kjit_runtime *runtime, int dtype, uint64_t address, int inner, int outer, int leading,
                            int rows, kjit_tensor_map *map, kjit_error *error) {
  kjit_tensor_map_options options = kjit_tensor_map_options_default();
  options.address = address;
  options.sizes[0] = (uint64_t)inner;
  options.sizes[1] = (uint64_t)outer;
  options.strides[0] = (uint64_t)leading * 2;
  options.box[0] = 64;
  options.box[1] = (uint32_t)rows;
  options.rank = 2;
  options.dtype = dtype == KJIT_BF16 ? KJIT_MAP_BF16 : KJIT_MAP_FP16;
  options.swizzle = KJIT_MAP_SWIZZLE_128B;
  options.promotion = leading % 64 == 0 ? KJIT_MAP_PROMOTION_256B : KJIT_MAP_PROMOTION_128B;
  return kjit_tensor_map_create(runtime, &options, map, error);
}

struct maps {
  kjit_tensor_map a, b, c;
};

/* Rows of a box of the left operand, of width BM, or of the right one: its share of the rows or of BK. Blocks of a
 * cluster load shares, because each multicasts its own to the others. */
static int box_rows(const struct gemm_plan *plan, int left, int is_k_major) {
  const int rows = field(plan, !is_k_major ? "BK" : left ? "BM" : "BN");
  const int blocks = field(plan, left ? "cluster_n" : "cluster_m");
  return blocks > 0 ? rows / blocks : 0;
}

static kjit_status make_maps(const struct gemm_plan *plan, kjit_runtime *runtime, const struct gemm_call *call,
                             struct maps *maps, kjit_error *error) {
  const int a_rows = strcmp(call->a_layout, "row") == 0, b_columns = strcmp(call->b_layout, "column") == 0;
  const int dtype = field(plan, "dtype"), swap = field(plan, "swap");
  /* Then C leaves by way of fp32 sums in shared memory, and not by TMA. */
  const int is_through_sums = swap || field(plan, "split_k") > 1 || field(plan, "BN") % 64 != 0;
  kjit_status status = make_map(runtime, dtype, call->a, a_rows ? call->k : call->m, a_rows ? call->m : call->k,
                                call->lda, box_rows(plan, !swap, a_rows), &maps->a, error);
  if (status == KJIT_OK)
    status = make_map(runtime, dtype, call->b, b_columns ? call->k : call->n, b_columns ? call->n : call->k, call->ldb,
                      box_rows(plan, swap, b_columns), &maps->b, error);
  if (status == KJIT_OK && !is_through_sums)
    status = make_map(runtime, dtype, call->c, call->n, call->m, call->ldc, 64, &maps->c, error);
  return status;
}

kjit_status gemm_launch(const struct gemm_plan *plan, kjit_runtime *runtime, const struct gemm_call *call,
                        CUstream stream, kjit_error *error) {
  struct maps maps;
  memset(&maps, 0, sizeof maps);
  if (field(plan, "instruction") == 1) { /* wgmma: mma.sync's kernel reads no maps */
    const kjit_status status = make_maps(plan, runtime, call, &maps, error);
    if (status != KJIT_OK) return status;
  }
  const kjit_arg args[] = {KJIT_ARG(maps.a),    KJIT_ARG(maps.b),    KJIT_ARG(maps.c),     KJIT_ARG(call->a),
                           KJIT_ARG(call->b),   KJIT_ARG(call->c),   KJIT_ARG(call->bias), KJIT_ARG(call->residual),
                           KJIT_ARG(call->m),   KJIT_ARG(call->n),   KJIT_ARG(call->k),    KJIT_ARG(call->lda),
                           KJIT_ARG(call->ldb), KJIT_ARG(call->ldc), KJIT_ARG(call->ldr),  KJIT_ARG(call->alpha)};
  return kjit_kernel_launch(plan->kernel, &plan->launch, args, sizeof args / sizeof *args, stream, error);
}
