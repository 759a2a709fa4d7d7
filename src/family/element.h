/* Element types by name: of dtype fields, of the arrays that a kernel takes, and of its numbers. */
#ifndef KJIT_FAMILY_ELEMENT_H
#define KJIT_FAMILY_ELEMENT_H

#include <kjit/common.h>

struct element {
  const char *name;      /* "fp16" */
  const char *others[2]; /* other spellings, "half"; "" where there is none */
  const char *cuda;      /* the type's name in CUDA C++ */
  int32_t number;        /* PyTorch's ScalarType, which is what a dtype field holds */
  uint8_t bytes;         /* of one element */
  uint8_t is_integer;
  uint8_t is_signed;
};

/* NULL: there is no such type. Names in any case. */
const struct element *element_from_name(const char *name, size_t bytes);
const struct element *element_from_number(int64_t number);

/* Row by row; NULL behind the last. */
const struct element *element_at(size_t index);

#endif
