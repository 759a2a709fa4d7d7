/* The stand-ins' texts. Those over the toolkit's cuda/std bring its names into std; the others say in a few lines what
 * does not need it. What NVRTC has without any header (printf, assert, the functions of math.h) has an empty one. */
#include "jit/source/std_shims.h"

#include <string.h>

/* The integer types and their limits, which <stdint.h> has in the global namespace and <cstdint> in std too. */
#define INTEGER_TYPES                                                                                                  \
  "typedef signed char int8_t;\n"                                                                                      \
  "typedef unsigned char uint8_t;\n"                                                                                   \
  "typedef short int16_t;\n"                                                                                           \
  "typedef unsigned short uint16_t;\n"                                                                                 \
  "typedef int int32_t;\n"                                                                                             \
  "typedef unsigned int uint32_t;\n"                                                                                   \
  "typedef long int64_t;\n"                                                                                            \
  "typedef unsigned long uint64_t;\n"                                                                                  \
  "typedef long intptr_t;\n"                                                                                           \
  "typedef unsigned long uintptr_t;\n"                                                                                 \
  "typedef long intmax_t;\n"                                                                                           \
  "typedef unsigned long uintmax_t;\n"                                                                                 \
  "#define INT8_MIN (-128)\n"                                                                                          \
  "#define INT8_MAX 127\n"                                                                                             \
  "#define UINT8_MAX 255\n"                                                                                            \
  "#define INT16_MIN (-32767 - 1)\n"                                                                                   \
  "#define INT16_MAX 32767\n"                                                                                          \
  "#define UINT16_MAX 65535\n"                                                                                         \
  "#define INT32_MIN (-2147483647 - 1)\n"                                                                              \
  "#define INT32_MAX 2147483647\n"                                                                                     \
  "#define UINT32_MAX 4294967295U\n"                                                                                   \
  "#define INT64_MIN (-9223372036854775807L - 1)\n"                                                                    \
  "#define INT64_MAX 9223372036854775807L\n"                                                                           \
  "#define UINT64_MAX 18446744073709551615UL\n"

static const char text_types[] = "#pragma once\n" INTEGER_TYPES;

static const char text_types_std[] = "#pragma once\n" INTEGER_TYPES "namespace std {\n"
                                     "using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;\n"
                                     "using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;\n"
                                     "using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;\n"
                                     "}\n";

static const char text_cint[] =
    "#pragma once\n"
    "#include <cuda/std/cstdint>\n"
    "namespace std { using namespace ::cuda::std; }\n"
    "using ::cuda::std::int8_t; using ::cuda::std::int16_t; using ::cuda::std::int32_t; using ::cuda::std::int64_t;\n"
    "using ::cuda::std::uint8_t; using ::cuda::std::uint16_t; using ::cuda::std::uint32_t; using "
    "::cuda::std::uint64_t;\n"
    "using ::cuda::std::intptr_t; using ::cuda::std::uintptr_t; using ::cuda::std::intmax_t; using "
    "::cuda::std::uintmax_t;\n";

static const char text_lim[] = "#pragma once\n"
                               "#define CHAR_BIT 8\n"
                               "#define SCHAR_MIN (-128)\n"
                               "#define SCHAR_MAX 127\n"
                               "#define UCHAR_MAX 255\n"
                               "#define SHRT_MIN (-32767 - 1)\n"
                               "#define SHRT_MAX 32767\n"
                               "#define USHRT_MAX 65535\n"
                               "#define INT_MIN (-2147483647 - 1)\n"
                               "#define INT_MAX 2147483647\n"
                               "#define UINT_MAX 4294967295U\n"
                               "#define LONG_MIN (-9223372036854775807L - 1)\n"
                               "#define LONG_MAX 9223372036854775807L\n"
                               "#define ULONG_MAX 18446744073709551615UL\n"
                               "#define LLONG_MIN (-9223372036854775807LL - 1)\n"
                               "#define LLONG_MAX 9223372036854775807LL\n"
                               "#define ULLONG_MAX 18446744073709551615ULL\n";

static const char text_flt[] = "#pragma once\n"
                               "#define FLT_RADIX 2\n"
                               "#define FLT_MANT_DIG 24\n"
                               "#define FLT_DIG 6\n"
                               "#define FLT_MIN 1.17549435e-38f\n"
                               "#define FLT_MAX 3.40282347e+38f\n"
                               "#define FLT_EPSILON 1.19209290e-7f\n"
                               "#define DBL_MANT_DIG 53\n"
                               "#define DBL_DIG 15\n"
                               "#define DBL_MIN 2.2250738585072014e-308\n"
                               "#define DBL_MAX 1.7976931348623157e+308\n"
                               "#define DBL_EPSILON 2.2204460492503131e-16\n";

static const char text_empty[] = "#pragma once\n";

/* A stand-in that brings all names of cuda/std/<name> into std. */
#define OVER(name) "#pragma once\n#include <cuda/std/" name ">\nnamespace std {\nusing namespace ::cuda::std;\n}\n"
#define TEXT(name, text)                                                                                               \
  { name, text, sizeof(text) - 1 }
#define ALONE(name, text)                                                                                              \
  { name, NULL, {name, NULL, 0}, TEXT(name, text) }
#define EITHER(name, text)                                                                                             \
  { name, "cuda/std/" name, TEXT(name, OVER(name)), TEXT(name, text) }
#define INTEGERS(name, text)                                                                                           \
  { name, "cuda/std/cstdint", TEXT(name, text_cint), TEXT(name, text) }
#define NEEDS_BASE(name)                                                                                               \
  {                                                                                                                    \
    name, "cuda/std/" name, TEXT(name, OVER(name)), {                                                                  \
      name, NULL, 0                                                                                                    \
    }                                                                                                                  \
  }

static const struct std_shim shims[] = {
    NEEDS_BASE("algorithm"),
    NEEDS_BASE("array"),
    ALONE("assert.h", text_empty),
    NEEDS_BASE("atomic"),
    NEEDS_BASE("barrier"),
    NEEDS_BASE("bit"),
    NEEDS_BASE("bitset"),
    ALONE("cassert", text_empty),
    ALONE("cfloat", text_flt),
    NEEDS_BASE("chrono"),
    INTEGERS("cinttypes", text_types_std),
    ALONE("climits", text_lim),
    EITHER("cmath", text_empty),
    NEEDS_BASE("compare"),
    NEEDS_BASE("complex"),
    NEEDS_BASE("concepts"),
    EITHER(
        "cstddef",
        "#pragma once\nnamespace std {\nusing size_t = decltype(sizeof 0);\nusing nullptr_t = decltype(nullptr);\n}\n"),
    INTEGERS("cstdint", text_types_std),
    ALONE("cstdio", text_empty),
    ALONE("cstdlib", text_empty),
    NEEDS_BASE("cstring"),
    NEEDS_BASE("ctime"),
    NEEDS_BASE("expected"),
    ALONE("float.h", text_flt),
    NEEDS_BASE("functional"),
    NEEDS_BASE("initializer_list"),
    INTEGERS("inttypes.h", text_types),
    NEEDS_BASE("iterator"),
    NEEDS_BASE("latch"),
    NEEDS_BASE("limits"),
    ALONE("limits.h", text_lim),
    ALONE("math.h", text_empty),
    NEEDS_BASE("mdspan"),
    NEEDS_BASE("memory"),
    NEEDS_BASE("numbers"),
    NEEDS_BASE("numeric"),
    NEEDS_BASE("optional"),
    NEEDS_BASE("ranges"),
    NEEDS_BASE("ratio"),
    NEEDS_BASE("semaphore"),
    NEEDS_BASE("span"),
    ALONE("stdbool.h", text_empty),
    ALONE("stddef.h", text_empty),
    INTEGERS("stdint.h", text_types),
    ALONE("stdio.h", text_empty),
    ALONE("stdlib.h", text_empty),
    ALONE("string.h", text_empty),
    NEEDS_BASE("string_view"),
    ALONE("time.h", text_empty),
    NEEDS_BASE("tuple"),
    NEEDS_BASE("type_traits"),
    NEEDS_BASE("utility"),
    NEEDS_BASE("variant"),
};

/* A name that is looked for in vain is the usual case and costs some fifty comparisons, next to which a file would have
 * to be opened. */
const struct std_shim *std_shim_find(const char *name) {
  for (size_t i = 0; i < sizeof shims / sizeof *shims; i++) {
    if (strcmp(shims[i].name, name) != 0) continue;
    return &shims[i];
  }
  return NULL;
}
