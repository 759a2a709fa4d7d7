/* The element types of tensors that variants read. */
#ifndef KJIT_ATTENTION_VARIANT_DTYPES_H
#define KJIT_ATTENTION_VARIANT_DTYPES_H

/* X(name, PyTorch's number, what a load gives): kjit_load_<name>() reads it. */
#define VARIANT_DTYPES(X)                                                                                              \
  X(uint8, 0, integer)                                                                                                 \
  X(int8, 1, integer)                                                                                                  \
  X(int16, 2, integer)                                                                                                 \
  X(int32, 3, integer)                                                                                                 \
  X(int64, 4, integer)                                                                                                 \
  X(fp16, 5, real)                                                                                                     \
  X(fp32, 6, real)                                                                                                     \
  X(fp64, 7, real)                                                                                                     \
  X(bool, 11, truth)                                                                                                   \
  X(bf16, 15, real)

enum variant_dtype {
#define ROW(name, number, type) VARIANT_DTYPE_##name = (number),
  VARIANT_DTYPES(ROW)
#undef ROW
};

#endif
