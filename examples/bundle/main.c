/* Attention from a bundle alone: no NVRTC, no toolkit, no cache folder, no writable disk.
 *
 *   kjit bundle create kernels.kjb --manifest kernels.manifest
 *   bundle_attention kernels.kjb [sm_90]
 *
 * Compiled with LINKED_BUNDLE the kernels are in the program itself (kjit bundle create --c-source kernels.c), which
 * then takes no file. Without a GPU the program finds its kernel, for the architecture named, and says that it cannot
 * launch it. Exit codes: 0 done and right, 1 failed, 3 no GPU. */
#include "../support/gpu.h"

#include <kjit/kjit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEQ   256
#define HEADS 2
#define HEAD  128 /* head size; the scale is 1/sqrt of it */
#define COUNT (SEQ * HEADS * HEAD)

#define CONFIG "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"

#ifdef LINKED_BUNDLE
extern const unsigned char kernel_bundle[];
extern const size_t kernel_bundle_bytes;
#endif

/* n/16 for |n| <= 16, which fp16 holds exactly. */
static uint16_t to_half(int n) {
  int exponent;
  const double fraction = frexp(abs(n) / 16.0, &exponent); /* in [1/2, 1) */
  if (n == 0) return 0;
  return (uint16_t)((n < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | (int)((2 * fraction - 1) * 1024));
}

static double from_half(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return half & 0x8000 ? -magnitude : magnitude;
}

static void fill(uint16_t *values, unsigned seed) {
  for (size_t i = 0; i < COUNT; i++) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = to_half((int)(seed >> 16) % 33 - 16);
  }
}

/* One row of the result in double precision. */
static void expected_row(const uint16_t *q, const uint16_t *k, const uint16_t *v, int row, int head, double out[HEAD]) {
  double weight[SEQ], most = -INFINITY, sum = 0;
  for (int j = 0; j < SEQ; j++) {
    double score = 0;
    for (int d = 0; d < HEAD; d++)
      score += from_half(q[(row * HEADS + head) * HEAD + d]) * from_half(k[(j * HEADS + head) * HEAD + d]);
    weight[j] = score / sqrt(HEAD);
    most = fmax(most, weight[j]);
  }
  for (int j = 0; j < SEQ; j++)
    sum += weight[j] = exp(weight[j] - most);
  for (int d = 0; d < HEAD; d++) {
    out[d] = 0;
    for (int j = 0; j < SEQ; j++)
      out[d] += weight[j] / sum * from_half(v[(j * HEADS + head) * HEAD + d]);
  }
}

static double worst_error(const uint16_t *q, const uint16_t *k, const uint16_t *v, const uint16_t *o) {
  double worst = 0, row[HEAD];
  for (int i = 0; i < SEQ; i++)
    for (int head = 0; head < HEADS; head++) {
      expected_row(q, k, v, i, head, row);
      for (int d = 0; d < HEAD; d++) {
        const double error = fabs(from_half(o[(i * HEADS + head) * HEAD + d]) - row[d]);
        worst = error > worst || isnan(error) ? error : worst;
      }
    }
  return worst;
}

static int launch(kjit_runtime *runtime, const kjit_config *config, kjit_error *error) {
  static uint16_t q[COUNT], k[COUNT], v[COUNT], o[COUNT];
  kjit_attention_args args = kjit_attention_args_default();
  fill(q, 1);
  fill(k, 2);
  fill(v, 3);
  args.q = kjit_tensor_bshd(gpu_memory(q, sizeof q), KJIT_FP16, 0, 1, SEQ, HEADS, HEAD);
  args.k = kjit_tensor_bshd(gpu_memory(k, sizeof k), KJIT_FP16, 0, 1, SEQ, HEADS, HEAD);
  args.v = kjit_tensor_bshd(gpu_memory(v, sizeof v), KJIT_FP16, 0, 1, SEQ, HEADS, HEAD);
  args.o = kjit_tensor_bshd(gpu_memory(NULL, sizeof o), KJIT_FP16, 0, 1, SEQ, HEADS, HEAD);
  if (kjit_attention_forward(runtime, config, &args, NULL, error) != KJIT_OK) return 1;
  if (!gpu_fetch(o, args.o.data, sizeof o)) return 1;
  const double worst = worst_error(q, k, v, o);
  printf("attention of %d rows, %d heads: largest error %.1e\n", SEQ, HEADS, worst);
  return worst < 1e-3 ? 0 : 1; /* half a unit in fp16's last place below 1, and the products' rounding */
}

/* Is the kernel there? No GPU is needed to know. */
static int find_kernel(kjit_runtime *runtime, const kjit_config *config, const char *arch, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_config_build(runtime, config, arch, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  if (status == KJIT_OK)
    printf("%s for %s: from %s, %zu bytes\n", info.entry, arch, kjit_origin_name((kjit_origin)info.origin),
           info.cubin_bytes);
  kjit_artifact_release(artifact);
  return status == KJIT_OK ? 0 : 1;
}

static int run(kjit_runtime *runtime, const char *arch, kjit_error *error) {
  kjit_config config;
  kjit_device_info device = {.struct_size = sizeof device};
  if (kjit_config_parse(kjit_family_find("flash_forward"), CONFIG, &config, error) != KJIT_OK) return 1;
  const int has_gpu = gpu_open();
  if (has_gpu && kjit_device_get_info(runtime, 0, &device, error) != KJIT_OK) return 1;
  if (find_kernel(runtime, &config, has_gpu ? device.arch : arch, error)) return 1;
  if (has_gpu) return launch(runtime, &config, error);
  printf("no GPU here: the launch is skipped\n");
  return 3;
}

static void open_bundle(kjit_runtime_options *options, int argc, char **argv) {
#ifdef LINKED_BUNDLE
  static kjit_bundle_blob blob;
  blob = (kjit_bundle_blob){kernel_bundle, kernel_bundle_bytes};
  options->bundle_blobs = &blob;
  options->bundle_blob_count = 1;
  (void)argc, (void)argv;
#else
  options->bundle_paths = (const char *const *)&argv[1];
  options->bundle_count = argc > 1 ? 1 : 0;
#endif
}

int main(int argc, char **argv) {
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF; /* no folder is read or written */
  options.nvrtc_path = "/nonexistent"; /* and nothing can be compiled  */
  open_bundle(&options, argc, argv);
  const char *arch = argc > 1 && argv[argc - 1][0] == 's' ? argv[argc - 1] : "sm_90";
  int code = kjit_runtime_create(&runtime, &options, &error) == KJIT_OK ? run(runtime, arch, &error) : 1;
  if (code == 1) fprintf(stderr, "%s: %s\n", kjit_status_name((kjit_status)error.status), error.message);
  kjit_runtime_destroy(runtime);
  return code;
}
