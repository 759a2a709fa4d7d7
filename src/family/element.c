/* The table of element types. The numbers are PyTorch's, as those of kjit_dtype are, because configs of dtypes are
 * compared with what PyTorch prints. uint8 has PyTorch's 0, which is KJIT_DTYPE_NONE too.
 *
 * Threads: the table is constant. */
#include "family/element.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static const struct element elements[] = {
    {"fp16", {"half", "f16"}, "__half", 5, 2, 0, 1},
    {"bf16", {"bfloat16", ""}, "__nv_bfloat16", 15, 2, 0, 1},
    {"fp32", {"float", "f32"}, "float", 6, 4, 0, 1},
    {"fp64", {"double", "f64"}, "double", 7, 8, 0, 1},
    {"fp8_e4m3", {"e4m3", ""}, "__nv_fp8_e4m3", 24, 1, 0, 1},
    {"fp8_e5m2", {"e5m2", ""}, "__nv_fp8_e5m2", 23, 1, 0, 1},
    {"int8", {"i8", ""}, "signed char", 1, 1, 1, 1},
    {"int16", {"i16", "short"}, "short", 2, 2, 1, 1},
    {"int32", {"i32", "int"}, "int", 3, 4, 1, 1},
    {"int64", {"i64", ""}, "long long", 4, 8, 1, 1},
    {"uint8", {"u8", ""}, "unsigned char", 0, 1, 1, 0},
    {"uint16", {"u16", ""}, "unsigned short", 27, 2, 1, 0},
    {"uint32", {"u32", "unsigned"}, "unsigned int", 28, 4, 1, 0},
    {"uint64", {"u64", ""}, "unsigned long long", 29, 8, 1, 0},
    {"bool", {"", ""}, "bool", 11, 1, 1, 0},
};

#define ELEMENT_COUNT (sizeof elements / sizeof *elements)

const struct element *element_at(size_t index) {
  return index < ELEMENT_COUNT ? &elements[index] : NULL;
}

static bool is_spelt(const char *spelling, const char *name, size_t bytes) {
  return strlen(spelling) == bytes && bytes && strncasecmp(spelling, name, bytes) == 0;
}

const struct element *element_from_name(const char *name, size_t bytes) {
  for (size_t i = 0; i < ELEMENT_COUNT; i++) {
    const struct element *const element = &elements[i];
    if (is_spelt(element->name, name, bytes) || is_spelt(element->others[0], name, bytes) ||
        is_spelt(element->others[1], name, bytes))
      return element;
  }
  return NULL;
}

const struct element *element_from_number(int64_t number) {
  for (size_t i = 0; i < ELEMENT_COUNT; i++) {
    if (elements[i].number == number) return &elements[i];
  }
  return NULL;
}
