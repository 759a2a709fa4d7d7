/* Runs one product from C and checks it against double precision.
 *
 *   example_gemm FAMILY M N K [EPILOGUE [fp16]]     FAMILY: gemm.yaml; EPILOGUE: none bias bias_gelu bias_silu residual
 *
 * A is row-major and B column-major, as in a linear layer. The steps: draw inputs, plan (a second run finds the kernel
 * in the cache, and `kjit tune` may have measured which config is the fastest), launch, compare. Exit codes: 0 right, 1
 * failed or wrong, 3 no GPU. One thread. */
#include "../support/gpu.h"
#include "gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEADING(n) (((n) + 7) / 8 * 8)
#define MOST_TERMS 2e8 /* products that the check multiplies: a larger C is checked in every so many rows */

struct problem {
  int m, n, k, dtype;
  const char *epilogue;
  uint16_t *a, *b, *c, *bias, *residual;
};

/* Multiples of 1/16 up to 1: exact in both types. */
static uint16_t encode(int sixteenths, int dtype) {
  const float value = (float)sixteenths / 16;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == KJIT_BF16) return (uint16_t)(bits >> 16);
  if (sixteenths == 0) return 0;
  return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

static double decode(uint16_t bits, int dtype) {
  if (dtype == KJIT_BF16) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return NAN;
  const double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t *draw(size_t count, int dtype, unsigned seed) {
  uint16_t *values = malloc(count * sizeof *values);
  for (size_t i = 0; values && i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = encode((int)(seed >> 16) % 33 - 16, dtype);
  }
  return values;
}

static int draw_all(struct problem *p) {
  const size_t k = (size_t)LEADING(p->k), n = (size_t)LEADING(p->n), m = (size_t)p->m;
  p->a = draw(m * k, p->dtype, 1);
  p->b = draw((size_t)p->n * k, p->dtype, 2);
  p->bias = draw(n, p->dtype, 3);
  p->residual = draw(m * n, p->dtype, 4);
  p->c = malloc(m * n * sizeof *p->c);
  if (p->c) memset(p->c, 0xff, m * n * sizeof *p->c); /* NaN in both types */
  return p->a && p->b && p->bias && p->residual && p->c;
}

static void free_all(struct problem *p) {
  free(p->a);
  free(p->b);
  free(p->bias);
  free(p->residual);
  free(p->c);
}

static double expected(const struct problem *p, int row, int column) {
  double sum = 0;
  for (int i = 0; i < p->k; i++)
    sum += decode(p->a[(size_t)row * (size_t)LEADING(p->k) + (size_t)i], p->dtype) *
           decode(p->b[(size_t)column * (size_t)LEADING(p->k) + (size_t)i], p->dtype);
  if (strcmp(p->epilogue, "residual") == 0)
    return sum + decode(p->residual[(size_t)row * (size_t)LEADING(p->n) + (size_t)column], p->dtype);
  if (strcmp(p->epilogue, "none") != 0) sum += decode(p->bias[column], p->dtype);
  if (strcmp(p->epilogue, "bias_gelu") == 0) return sum * 0.5 * erfc(-sum / sqrt(2));
  if (strcmp(p->epilogue, "bias_silu") == 0) return sum / (1 + exp(-sum));
  return sum;
}

/* |C - expected| / |expected|; NaN where C was not written. */
static double relative_error(const struct problem *p) {
  const double terms = (double)p->m * p->n * p->k;
  const int step = terms > MOST_TERMS ? (int)ceil(terms / MOST_TERMS) : 1;
  double wrong = 0, all = 0;
  for (int row = 0; row < p->m; row += step)
    for (int column = 0; column < p->n; column++) {
      const double want = expected(p, row, column);
      const double got = decode(p->c[(size_t)row * (size_t)LEADING(p->n) + (size_t)column], p->dtype);
      wrong += (got - want) * (got - want);
      all += want * want;
    }
  return sqrt(wrong / all);
}

/* 0: the card has no memory for it. */
static int send(const struct problem *p, struct gemm_call *call) {
  const size_t k = (size_t)LEADING(p->k) * 2, n = (size_t)LEADING(p->n) * 2, m = (size_t)p->m;
  *call = (struct gemm_call){.dtype = p->dtype == KJIT_BF16 ? "bf16" : "fp16",
                             .a_layout = "row",
                             .b_layout = "column",
                             .epilogue = p->epilogue,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .lda = LEADING(p->k),
                             .ldb = LEADING(p->k),
                             .ldc = LEADING(p->n),
                             .ldr = LEADING(p->n),
                             .alpha = 1};
  call->a = (uint64_t)(uintptr_t)gpu_memory(p->a, m * k);
  call->b = (uint64_t)(uintptr_t)gpu_memory(p->b, (size_t)p->n * k);
  call->c = (uint64_t)(uintptr_t)gpu_memory(p->c, m * n);
  call->bias = (uint64_t)(uintptr_t)gpu_memory(p->bias, n);
  call->residual = (uint64_t)(uintptr_t)gpu_memory(p->residual, m * n);
  return call->a && call->b && call->c && call->bias && call->residual;
}

/* Say on one line what ran: the card, the config, what chose it, and where its cubin came from. */
static kjit_status report(const struct gemm_plan *plan, const char *device, kjit_error *error) {
  static const char *const deciders[] = {"nothing", "its rules", "the tuned table"};
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_artifact_get_info(kjit_kernel_artifact(plan->kernel), &info, error);
  if (status == KJIT_OK) status = kjit_config_print(&plan->config, 0, text, sizeof text, error);
  if (status == KJIT_OK)
    printf("%s: %s, decided by %s, %s\n", device, text, deciders[plan->decided_by],
           kjit_origin_name((kjit_origin)info.origin));
  return status;
}

static kjit_status run(kjit_runtime *runtime, const struct problem *p, const kjit_family *family, double *error_out,
                       kjit_error *error) {
  kjit_device_info device = {.struct_size = sizeof device};
  struct gemm_plan plan = {.kernel = NULL};
  struct gemm_call call;
  kjit_status status = kjit_device_get_info(runtime, -1, &device, error);
  if (status == KJIT_OK && !send(p, &call)) status = KJIT_ERR_NO_MEMORY;
  if (status == KJIT_OK) status = gemm_plan_make(&plan, runtime, family, &call, &device, error);
  if (status == KJIT_OK) status = gemm_launch(&plan, runtime, &call, NULL, error);
  if (status == KJIT_OK && !gpu_fetch(p->c, (const void *)(uintptr_t)call.c, (size_t)p->m * (size_t)LEADING(p->n) * 2))
    status = KJIT_ERR_DRIVER;
  if (status == KJIT_OK) status = report(&plan, device.name, error);
  if (status == KJIT_OK) *error_out = relative_error(p);
  kjit_kernel_release(plan.kernel);
  return status;
}

static int is_epilogue(const char *name) {
  static const char *const names[] = {"none", "bias", "bias_gelu", "bias_silu", "residual"};
  for (int i = 0; i < 5; i++)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

/* A whole number from 1 to 2^30; 0 for any other text. */
static int size_read(const char *text) {
  char *end;
  const long value = strtol(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0' && value <= 1 << 30 ? (int)value : 0;
}

int main(int argc, char **argv) {
  if (argc < 5 || (argc > 5 && !is_epilogue(argv[5]))) {
    fprintf(stderr, "usage: example_gemm FAMILY M N K [none|bias|bias_gelu|bias_silu|residual [fp16]]\n");
    return 1;
  }
  struct problem problem = {.m = size_read(argv[2]), .n = size_read(argv[3]), .k = size_read(argv[4])};
  problem.dtype = argc > 6 ? KJIT_FP16 : KJIT_BF16;
  if (problem.m < 1 || problem.n < 1 || problem.k < 1) {
    fprintf(stderr, "M, N and K: at least 1\n");
    return 1;
  }
  problem.epilogue = argc > 5 ? argv[5] : "none";
  if (!gpu_open()) {
    fprintf(stderr, "no GPU\n");
    return 3;
  }
  kjit_runtime *runtime = NULL;
  kjit_family *family = NULL;
  kjit_error error = {0};
  double wrong = NAN;
  kjit_status status = draw_all(&problem) ? kjit_runtime_create(&runtime, NULL, &error) : KJIT_ERR_NO_MEMORY;
  if (status == KJIT_OK) status = kjit_family_open(&family, argv[1], &error);
  if (status == KJIT_OK) status = run(runtime, &problem, family, &wrong, &error);
  if (status != KJIT_OK) fprintf(stderr, "%s: %s\n", kjit_status_name(status), error.message);
  const int is_right = status == KJIT_OK && wrong < (problem.dtype == KJIT_BF16 ? 4e-3 : 6e-4);
  if (status == KJIT_OK) printf("relative error %.2e: %s\n", wrong, is_right ? "right" : "WRONG");
  kjit_family_release(family);
  kjit_runtime_destroy(runtime);
  free_all(&problem);
  return is_right ? 0 : 1;
}
