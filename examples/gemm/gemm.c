/* The host's side of the GEMM: constants, choice, tensor maps, launch. Each function works for the calling thread
 * alone; kernels and runtimes may be shared. */
#include "gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_PER_SM  233472 /* bytes, sm_90 */
#define SHARED_RESERVE 1024   /* bytes that the card keeps of each block's */
#define FIELD_COUNT    20
#define SOURCE_MAX     65536

static int divup(int a, int b) {
  return (a + b - 1) / b;
}

struct gemm_config gemm_config_default(void) {
#define GEMM_DEFAULT(name, value) value,
  return (struct gemm_config){GEMM_FIELDS(GEMM_DEFAULT)};
#undef GEMM_DEFAULT
}

static int is_through_sums(const struct gemm_config *c) {
  return c->swap || c->split_k > 1 || c->BN % 64 != 0;
}

static int cluster_blocks(const struct gemm_config *c) {
  return c->cluster_m * c->cluster_n * c->split_k;
}

static int shared_bytes(const struct gemm_config *c) {
  const int ring = c->stages * (c->BM + c->BN) * c->BK * 2;
  const int pieces = is_through_sums(c) ? 0 : c->consumers * c->store_buffers * 64 * 64 * 2;
  return c->instruction == GEMM_MMA ? ring : ring + pieces + 16 * c->stages + 1023;
}

static int grid_blocks(const struct gemm_config *c, int m, int n, int sm_count) {
  const int rows = c->swap ? n : m, columns = c->swap ? m : n;
  if (c->instruction == GEMM_MMA) return divup(m, c->BM) * divup(n, c->BN);
  const int clusters = divup(rows, c->BM * c->cluster_m) * divup(columns, c->BN * c->cluster_n);
  /* A larger cluster leaves some SMs of the card's groups of 16 or 18 without work. */
  const int usable = cluster_blocks(c) <= 2 ? sm_count * c->blocks_per_sm : sm_count * c->blocks_per_sm / 8 * 8;
  const int fitting = usable / cluster_blocks(c);
  return (is_through_sums(c) || clusters < fitting ? clusters : fitting) * cluster_blocks(c);
}

/* As many as fit, up to `most`. */
static void take_stages(struct gemm_config *c, int most) {
  for (c->stages = most; c->stages > 2; c->stages--)
    if ((shared_bytes(c) + SHARED_RESERVE) * c->blocks_per_sm <= SHARED_PER_SM) break;
}

static void choose_few_rows(struct gemm_config *c, int m, int n, int k, int sm_count) {
  const int columns = divup(n, 64), wide = columns > 2 * sm_count;
  c->swap = 1;
  c->BM = wide ? 128 : 64;
  c->BN = c->a_layout == GEMM_ROW ? divup(m, 8) * 8 : 64;
  c->BK = wide ? 64 : 128;
  c->consumers = 1;
  c->blocks_per_sm = 2;
  c->split_k = 2 * columns <= sm_count && k >= 1024 ? 2 : 1;
  take_stages(c, 6);
}

struct candidate {
  int bm, bn, pingpong, consumers;
  double factor; /* time of a tile by its area, beside that of the first */
};

/* The least time for all waves of tiles. */
static void choose_many_rows(struct gemm_config *c, int m, int n, int k, int sm_count) {
  const int a_row = c->a_layout == GEMM_ROW ? k : m, b_row = c->b_layout == GEMM_ROW ? n : k;
  const int aligned = divup(a_row, 8) % 8 == 0 && divup(b_row, 8) % 8 == 0;
  const struct candidate candidates[] = {{128, 128, 1, 2, aligned ? 1.0 : 1.2},
                                         {128, 192, 1, 2, aligned ? 0.985 : 1.05},
                                         {128, 256, 0, 2, 1.02},
                                         {64, 128, 0, 1, 1.25}};
  double best = 0;
  for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
    const struct candidate *const t = &candidates[i];
    const int tiles = divup(m, t->bm) * divup(n, t->bn), one_wave = tiles <= sm_count;
    const double factor = one_wave && t->bn == 256 ? 0.98 : t->factor + (one_wave && t->pingpong ? 0.08 : 0);
    const double cost = (double)divup(tiles, sm_count) * t->bm * t->bn * factor;
    if (i > 0 && cost >= best) continue;
    best = cost;
    c->BM = t->bm;
    c->BN = t->bn;
    c->pingpong = t->pingpong && !one_wave;
    c->consumers = t->consumers;
    c->cluster_m = m > t->bm && (!one_wave || (t->bm == 64 && !aligned)) ? 2 : 1;
  }
  c->group_m = 4;
  take_stages(c, 8);
}

struct gemm_config gemm_choose(struct gemm_config base, int m, int n, int k, const char *arch, int sm_count) {
  struct gemm_config c = base;
  if (strcmp(arch, "sm_90a") != 0) {
    c.instruction = GEMM_MMA;
    c.BM = c.BN = 128;
    c.BK = 32;
    c.blocks_per_sm = 2;
    return c;
  }
  c.instruction = GEMM_WGMMA;
  if (m <= 64) {
    choose_few_rows(&c, m, n, k, sm_count);
  } else if (m <= 128 && divup(n, 64) <= sm_count) {
    c.BM = 128;
    c.BN = 64;
    c.split_k = 2 * divup(n, 64) <= sm_count && k >= 1024 ? 2 : 1;
    take_stages(&c, 8);
  } else {
    choose_many_rows(&c, m, n, k, sm_count);
  }
  return c;
}

static kjit_status fail(kjit_error *error, const char *what, const char *path) {
  if (error) {
    error->status = KJIT_ERR_IO;
    snprintf(error->message, sizeof error->message, "%.200s: %s", path, what);
  }
  return KJIT_ERR_IO;
}

static kjit_status read_source(const char *folder, char *text, kjit_error *error) {
  char path[4096];
  snprintf(path, sizeof path, "%s/gemm.cu", folder);
  FILE *file = fopen(path, "rb");
  if (!file) return fail(error, "cannot be opened", path);
  const size_t bytes = fread(text, 1, SOURCE_MAX - 1, file);
  const int is_whole = feof(file);
  fclose(file);
  text[bytes] = '\0';
  return is_whole ? KJIT_OK : fail(error, "cannot be read, or has 64 KiB or more", path);
}

kjit_status gemm_kernel_get(kjit_runtime *runtime, const struct gemm_config *config, const char *arch,
                            const char *folder, kjit_kernel **out, kjit_error *error) {
  char values[FIELD_COUNT][12], text[SOURCE_MAX];
  kjit_define defines[FIELD_COUNT];
  size_t count = 0;
#define GEMM_DEFINE(name, value)                                                                                       \
  snprintf(values[count], sizeof values[count], "%d", config->name);                                                   \
  defines[count] = (kjit_define){"KJIT_" #name, values[count]};                                                        \
  count++;
  GEMM_FIELDS(GEMM_DEFINE)
#undef GEMM_DEFINE
  *out = NULL;
  const kjit_status status = read_source(folder, text, error);
  if (status != KJIT_OK) return status;
  kjit_build_request request = kjit_build_request_default();
  request.arch = arch;
  request.entry = "gemm";
  request.source = (kjit_source){"gemm.cu", text, 0};
  request.include_dirs = &folder;
  request.include_dir_count = 1;
  request.defines = defines;
  request.define_count = count;
  return kjit_kernel_get(runtime, &request, out, error);
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

/* Rows of a box of the left operand, of width BM, or of the right one: its share of the rows or of BK. */
static int box_rows(const struct gemm_config *c, int left, int is_k_major) {
  return left ? (is_k_major ? c->BM : c->BK) / c->cluster_n : (is_k_major ? c->BN : c->BK) / c->cluster_m;
}

static kjit_status make_maps(kjit_runtime *runtime, const struct gemm_config *c, const struct gemm_call *call,
                             struct maps *maps, kjit_error *error) {
  const int a_rows = c->a_layout == GEMM_ROW, b_columns = c->b_layout == GEMM_COLUMN;
  kjit_status status = make_map(runtime, c->dtype, call->a, a_rows ? call->k : call->m, a_rows ? call->m : call->k,
                                call->lda, box_rows(c, !c->swap, a_rows), &maps->a, error);
  if (status == KJIT_OK)
    status = make_map(runtime, c->dtype, call->b, b_columns ? call->k : call->n, b_columns ? call->n : call->k,
                      call->ldb, box_rows(c, c->swap, b_columns), &maps->b, error);
  if (status == KJIT_OK && !is_through_sums(c))
    status = make_map(runtime, c->dtype, call->c, call->n, call->m, call->ldc, 64, &maps->c, error);
  return status;
}

kjit_status gemm_launch(kjit_runtime *runtime, kjit_kernel *kernel, const struct gemm_config *config,
                        const struct gemm_call *call, int sm_count, CUstream stream, kjit_error *error) {
  struct maps maps;
  memset(&maps, 0, sizeof maps);
  if (config->instruction == GEMM_WGMMA) {
    const kjit_status status = make_maps(runtime, config, call, &maps, error);
    if (status != KJIT_OK) return status;
  }
  const kjit_arg args[] = {KJIT_ARG(maps.a),    KJIT_ARG(maps.b),    KJIT_ARG(maps.c),     KJIT_ARG(call->a),
                           KJIT_ARG(call->b),   KJIT_ARG(call->c),   KJIT_ARG(call->bias), KJIT_ARG(call->residual),
                           KJIT_ARG(call->m),   KJIT_ARG(call->n),   KJIT_ARG(call->k),    KJIT_ARG(call->lda),
                           KJIT_ARG(call->ldb), KJIT_ARG(call->ldc), KJIT_ARG(call->ldr),  KJIT_ARG(call->alpha)};
  kjit_launch launch = kjit_launch_default();
  launch.grid[0] = (uint32_t)grid_blocks(config, call->m, call->n, sm_count);
  launch.block[0] = (uint32_t)(config->instruction == GEMM_WGMMA ? 128 * (config->consumers + 1)
                                                                 : 32 * config->warps_m * config->warps_n);
  launch.dynamic_shared_bytes = (uint32_t)shared_bytes(config);
  if (config->instruction == GEMM_WGMMA && cluster_blocks(config) > 1) {
    launch.cluster[0] = (uint32_t)cluster_blocks(config);
    launch.cluster[1] = launch.cluster[2] = 1;
  }
  return kjit_kernel_launch(kernel, &launch, args, sizeof args / sizeof *args, stream, error);
}
