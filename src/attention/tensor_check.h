/* What a kernel asks of one tensor, whatever the family. Pure: no memory is read, no driver is asked. Each failure is
 * KJIT_ERR_INVALID_ARG: "<tensor>.<member> is <value>: must be <rule>". */
#ifndef KJIT_ATTENTION_TENSOR_CHECK_H
#define KJIT_ATTENTION_TENSOR_CHECK_H

#include <stdbool.h>

#include <kjit/attention.h>

struct tensor_rule {
  const char *name;         /* "q" */
  const char *const *axes;  /* names, outermost first */
  uint32_t rank;            /* 1 to 4; the last axis is contiguous */
  uint32_t element_bytes;   /* 2 or 4 */
  uint32_t stride_multiple; /* of the other axes, elements; a power of two */
  uint32_t alignment;       /* of data, bytes; a power of two */
  bool written;             /* then no two elements may share memory */
  uint32_t empty_axes;      /* bits of the axes that may have no element */
};

/* Whether the tensor has no element. Its data may then be NULL, as PyTorch's is. */
bool tensor_is_empty(const struct tensor_rule *rule, const kjit_tensor *tensor);

/* There is memory, unless the tensor may be empty and is; and it is on the device `device`. */
kjit_status tensor_check_place(const struct tensor_rule *rule, const kjit_tensor *tensor, int32_t device,
                               kjit_error *error);

/* The rank, and at least one element along each axis that may not be empty. */
kjit_status tensor_check_shape(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error);

/* One axis is as long as `wanted`, which is the length of `other`'s axis of that name. */
kjit_status tensor_check_length(const struct tensor_rule *rule, const kjit_tensor *tensor, uint32_t axis,
                                int64_t wanted, const char *other, kjit_error *error);

/* Alignment and strides. The stride of an axis of length 1 is never used and not looked at. The shape must have passed.
 * If a stride and the length of the last axis both break the multiple, the message names the length.
 * A written tensor's axes must nest: each stride clears all that the smaller strides reach. Not for
 * an empty tensor, which has no element that could be misplaced. */
kjit_status tensor_check_layout(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error);

/* The stride to hand to a kernel: 0 for an axis of length 1. */
int64_t tensor_stride(const kjit_tensor *tensor, uint32_t axis);

#endif
