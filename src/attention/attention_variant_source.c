/* The variant that changes nothing, as its generated header would be, but for the functions that no kernel calls where
 * all macros are 0. Kernels include one header with or without a variant, so that they have one text. Constant data. */
#include "attention/attention_variant_source.h"

const struct attention_variant_source attention_variant_none = {
    .header =
        "#pragma once\n"
        "#include <kjit/attention/variant_arguments.h>\n"
        "#define KJIT_VARIANT_SCORE 0\n"
        "#define KJIT_VARIANT_AFFINE 0\n"
        "#define KJIT_VARIANT_CORE 0\n"
        "#define KJIT_VARIANT_LINEAR 0\n"
        "#define KJIT_VARIANT_TILE 0\n"
        "#define KJIT_VARIANT_MASK 0\n"
        "#define KJIT_VARIANT_INTERVALS 0\n"
        "__device__ inline float kjit_variant_score(const kjit_variant_arguments &, float s, int, int, int, int) {\n"
        "  return s;\n"
        "}\n"
        "__device__ inline bool kjit_variant_mask(const kjit_variant_arguments &, int, int, int, int) {\n"
        "  return true;\n"
        "}\n"
        "struct kjit_variant_keys {\n"
        "  int none;\n"
        "};\n"
        "struct kjit_variant_queries {\n"
        "  int none;\n"
        "};\n"
        "__device__ inline int kjit_variant_block(const kjit_variant_arguments &, int, int, int, int, int, int) {\n"
        "  return 2;\n"
        "}\n"};
