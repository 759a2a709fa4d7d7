/* The kernel text of variants through the real NVRTC: the masks that people write and scores of every operation, for
 * two architectures, without a warning. */
#include "jit/real_nvrtc.h"
#include "variant_masks.h"

static const char *const masks[] = {
#define TEXT(name, text, intervals, condition, exact) (text),
    VARIANT_MASKS(TEXT)};

static const char *const scores[] = {
    "C * tanh(score / C) + slope[h] * (k - q)",
    "score + bias[b][h][q][k] * 0.5 + t[q - k + 80]",
    "log(gelu(score) + 1.5) - relu(score) + sigmoid(score) * erf(score)",
    "exp(score) * exp2(-score) + log2(score + 3) + sqrt(abs(score)) + rsqrt(score) + tanh_exact(score)",
    "score ** 3.0 % 0.7 + floor(score) / (1 + score * score) + clamp(score, -1, 0.5)",
    "float(int(score) & 255) + float(~q ^ k) + half[k] + emb[min(abs(q - k) >> 2, 63), hk]",
};

static const char kernel[] =
    "#include \"attention_variant.cuh\"\n"
    "extern \"C\" __global__ void k(kjit_variant_arguments a, float *o, int *p, int b, int h) {\n"
    "  const int q = blockIdx.x, k = threadIdx.x;\n"
    "  int lo, hi;\n"
    "  kjit_variant_interval(a, 0, b, h, q, lo, hi);\n"
    "  o[k] = kjit_variant_score(a, o[k], b, h, q, k) + kjit_variant_score_grad(a, o[k], b, h, q, k);\n"
    "#if KJIT_VARIANT_AFFINE\n"
    "  o[k] += kjit_variant_slope(a, b, h, q) + kjit_variant_term(a, b, h, q, k);\n"
    "#endif\n"
    "#ifdef KJIT_VARIANT_GRADIENTS\n"
    "  long long element;\n"
    "  using Gradient = kjit_variant_gradient<KJIT_VARIANT_GRADIENTS - 1>;\n"
    "  const float part = Gradient::at(a, a.tensors[Gradient::tensor], o[k], b, h, q, k, element);\n"
    "  o[element] += Gradient::along_q && Gradient::along_k ? part : 2 * part;\n"
    "#endif\n"
    "  p[k] = lo + hi + kjit_variant_mask(a, b, h, q, k) + kjit_variant_block(a, b, h, q, q + 64, k, k + 16);\n"
    "}\n";

static void check(struct real_nvrtc *real, const char *score, const char *mask) {
  static const char *const archs[] = {"sm_80", "sm_90a"};
  struct variant_made made = variant_must_make(score, mask);
  const kjit_source header = {VARIANT_HEADER_NAME, made.variant->header, 0};
  real->request.headers = &header;
  real->request.header_count = 1;
  for (size_t i = 0; i < 2; i++) {
    real->request.arch = archs[i];
    const kjit_status status = real_nvrtc_compile(real, kernel);
    if (status != KJIT_OK || *real->result.log)
      print_error("%s / %s\n%s\n%s", score ? score : "", mask ? mask : "", made.variant->header, real->result.log);
    assert_status(KJIT_OK, status, &real->error);
    assert_string_equal("", real->result.log);
  }
  kjit_attention_variant_free(made.variant);
}

static void test_variant_codegen__masks_compile_without_a_warning(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
    check(real, NULL, masks[i]);
}

static void test_variant_codegen__scores_compile_without_a_warning(void **state) {
  struct real_nvrtc *real = real_nvrtc_or_skip(state, NULL);
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
    check(real, scores[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      REAL_NVRTC_TEST(test_variant_codegen__masks_compile_without_a_warning),
      REAL_NVRTC_TEST(test_variant_codegen__scores_compile_without_a_warning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
