/* Any text as a score and as a mask: it is refused with file, line and column on one line, or it is a variant whose
 * functions have one value at each place, whose blocks are never wrong about those values, and whose kernel text holds
 * nothing but what the printer writes. */
#include <stdint.h>
#include <string.h>

#include "attention/variant/create.h"
#include "fuzz/require.h"

#define TEXT_MAX 2048

static int64_t documents[16] = {0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, INT64_MAX, INT32_MIN, 5, 5, 5};
static float slopes[2] = {0.5f, -3};
static uint8_t bits[16][4] = {{1, 0, 1, 1}, {0}, {1, 1, 1, 1}};

static const kjit_variant_scalar scalars[] = {{"w", KJIT_VARIANT_INT32}, {"c", KJIT_VARIANT_FP32}};
static const kjit_variant_tensor tensors[] = {{"d", 4, 1}, {"m", 6, 1}, {"g", 11, 2}};
static const kjit_tensor views[] = {{documents, 4, KJIT_DEVICE_HOST, 1, 0, {16}, {1}},
                                    {slopes, 6, KJIT_DEVICE_HOST, 1, 0, {2}, {1}},
                                    {bits, 11, KJIT_DEVICE_HOST, 2, 0, {16, 4}, {4, 1}}};

static int is_equal(double a, double b) {
  return a == b || (a != a && b != b);
}

static void check_places(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments) {
  for (int q = 0; q < 16; q += 5)
    for (int k = 0; k < 16; k += 3) {
      const struct variant_place place = {q & 1, k & 1, q, k};
      const double score = variant_score_at(variant, arguments, 0.25 * k, &place);
      require(is_equal(score, variant_score_at(variant, arguments, 0.25 * k, &place)));
      (void)variant_score_grad_at(variant, arguments, 0.25 * k, &place);
      (void)variant_mask_at(variant, arguments, &place);
    }
}

static void check_block(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                        const struct variant_block *block) {
  const int answer = variant_block_at(variant, arguments, block);
  for (int q = block->q0; q < block->q1 && answer != 1; q++)
    for (int k = block->k0; k < block->k1; k++) {
      const struct variant_place place = {block->b, block->h, q, k};
      require(variant_mask_tree_at(variant, arguments, &place) == (answer == 2));
    }
}

static void check_text(const kjit_attention_variant *variant) {
  static const char *const foreign[] = {"asm", "__global__", "printf", "/*", "\\", "\"", "'", "@"};
  require(variant->header_bytes == strlen(variant->header));
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    require(!strstr(variant->header, foreign[i]));
}

static void check(const kjit_attention_variant *variant) {
  static const struct variant_problem problem = {16, 16, 2, 1};
  const float cap = 2.5f;
  int32_t values[2] = {5, 0};
  struct kjit_variant_arguments arguments;
  memcpy(&values[1], &cap, sizeof cap);
  variant_fill_arguments(variant, &problem, values, views, &arguments);
  check_text(variant);
  check_places(variant, &arguments);
  for (int q = 0; q < 16; q += 8)
    for (int k = 0; k < 16; k += 4) {
      const struct variant_block block = {1, 0, q, q + 8, k, k + 4};
      check_block(variant, &arguments, &block);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char buffer[TEXT_MAX + 1];
  const size_t length = size < TEXT_MAX ? size : TEXT_MAX;
  memcpy(buffer, data, length);
  buffer[length] = '\0';
  for (int is_mask = 0; is_mask < 2; is_mask++) {
    kjit_attention_variant_text text = kjit_attention_variant_text_default();
    kjit_attention_variant *variant;
    kjit_error error = {0};
    text.score = is_mask ? NULL : buffer;
    text.mask = is_mask ? buffer : NULL;
    text.scalars = scalars;
    text.scalar_count = 2;
    text.tensors = tensors;
    text.tensor_count = 3;
    text.file = "fuzz.py";
    text.line = 3;
    const kjit_status status = kjit_attention_variant_create(&variant, &text, &error);
    if (status == KJIT_OK) {
      input_is_taken();
      check(variant);
    } else {
      require(status == KJIT_ERR_PARSE && !variant && !strchr(error.message, '\n'));
      require(!strncmp(error.message, "fuzz.py:", strlen("fuzz.py:")));
    }
    kjit_attention_variant_free(variant);
  }
  return 0;
}
