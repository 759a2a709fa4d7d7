/* Checks of one tensor of a call, each with a message of its own: device, shape, lengths that must agree, alignment and
 * strides. They run on every launch by arguments, so they compute little: no division, no allocation. Pure functions;
 * any thread. */
#include "attention/tensor_check.h"

#include <inttypes.h>

#include "base/error.h"

#define MAX_RANK 4

static kjit_status wrong(const struct tensor_rule *rule, const char *member, int64_t value, const char *wanted,
                         int64_t number, kjit_error *error) {
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.%s is %" PRId64 ": must be %s%" PRId64, rule->name, member, value,
                   wanted, number);
}

static kjit_status wrong_axis(const struct tensor_rule *rule, const char *member, uint32_t axis, int64_t value,
                              const char *wanted, int64_t number, kjit_error *error) {
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.%s[%u] (%s) is %" PRId64 ": must be %s%" PRId64, rule->name, member,
                   axis, rule->axes[axis], value, wanted, number);
}

bool tensor_is_empty(const struct tensor_rule *rule, const kjit_tensor *tensor) {
  for (uint32_t axis = 0; axis < rule->rank; axis++) {
    if (tensor->shape[axis] == 0) return true;
  }
  return false;
}

/* NULL is the address of what has no element, where the rule allows that. */
static bool may_be_null(const struct tensor_rule *rule, const kjit_tensor *tensor) {
  return rule->empty_axes && tensor->rank == rule->rank && tensor_is_empty(rule, tensor);
}

kjit_status tensor_check_place(const struct tensor_rule *rule, const kjit_tensor *tensor, int32_t device,
                               kjit_error *error) {
  if (!tensor->data && !may_be_null(rule, tensor)) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.data is NULL: must be memory of device %d", rule->name,
                     (int)device);
  }
  if (tensor->device == KJIT_DEVICE_HOST) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.device is the host: must be the current device, %d", rule->name,
                     (int)device);
  }
  if (tensor->device != device) return wrong(rule, "device", tensor->device, "the current device, ", device, error);
  if (tensor->reserved != 0) return wrong(rule, "reserved", tensor->reserved, "", 0, error);
  return KJIT_OK;
}

kjit_status tensor_check_shape(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error) {
  if (tensor->rank != rule->rank) return wrong(rule, "rank", tensor->rank, "", rule->rank, error);
  for (uint32_t axis = 0; axis < rule->rank; axis++) {
    if (tensor->shape[axis] >= 1) continue;
    const int64_t least = rule->empty_axes >> axis & 1 ? 0 : 1;
    if (tensor->shape[axis] < least)
      return wrong_axis(rule, "shape", axis, tensor->shape[axis], "at least ", least, error);
  }
  return KJIT_OK;
}

kjit_status tensor_check_length(const struct tensor_rule *rule, const kjit_tensor *tensor, uint32_t axis,
                                int64_t wanted, const char *other, kjit_error *error) {
  if (tensor->shape[axis] == wanted) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.shape[%u] (%s) is %" PRId64 ": must equal that of %s, %" PRId64,
                   rule->name, axis, rule->axes[axis], tensor->shape[axis], other, wanted);
}

/* True when `value` is a multiple of `power`, a power of two. Masks are used because these checks run on every launch,
 * where a dozen divisions would be noticeable. */
static bool is_multiple(uint64_t value, uint32_t power) {
  return (value & (power - 1)) == 0;
}

static kjit_status check_stride(const struct tensor_rule *rule, const kjit_tensor *tensor, uint32_t axis,
                                kjit_error *error) {
  const int64_t stride = tensor->stride[axis], least = rule->written ? 1 : 0;
  if (tensor->shape[axis] == 1) return KJIT_OK;
  if (axis == rule->rank - 1) return stride == 1 ? KJIT_OK : wrong_axis(rule, "stride", axis, stride, "", 1, error);
  if (stride < least) return wrong_axis(rule, "stride", axis, stride, "at least ", least, error);
  if (is_multiple((uint64_t)stride, rule->stride_multiple)) return KJIT_OK;
  /* Strides of a tensor without gaps follow from the length of its last axis, which is then what is wrong. */
  const uint32_t last = rule->rank - 1;
  if (!is_multiple((uint64_t)tensor->shape[last], rule->stride_multiple))
    return wrong_axis(rule, "shape", last, tensor->shape[last], "a multiple of ", rule->stride_multiple, error);
  return wrong_axis(rule, "stride", axis, stride, "a multiple, in elements, of ", rule->stride_multiple, error);
}

/* Check that the offset in bytes of every element fits int64_t. Strides are not negative here. */
static kjit_status check_reach(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error) {
  int64_t reach = rule->element_bytes;
  for (uint32_t axis = 0; axis < rule->rank; axis++) {
    int64_t bytes;
    if (tensor->shape[axis] == 1) continue;
    if (__builtin_mul_overflow(tensor->stride[axis], tensor->shape[axis] - 1, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)rule->element_bytes, &bytes) ||
        __builtin_add_overflow(reach, bytes, &reach)) {
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s: shape and stride reach 2^63 bytes or more", rule->name);
    }
  }
  return KJIT_OK;
}

/* Sort the axes that are longer than 1 by their strides, the smallest first. Returns how many there are. */
static uint32_t sort_axes(const struct tensor_rule *rule, const kjit_tensor *tensor, uint32_t order[MAX_RANK]) {
  uint32_t count = 0;
  for (uint32_t axis = 0; axis < rule->rank; axis++) {
    if (tensor->shape[axis] == 1) continue;
    uint32_t at = count++;
    for (; at > 0 && tensor->stride[order[at - 1]] > tensor->stride[axis]; at--)
      order[at] = order[at - 1];
    order[at] = axis;
  }
  return count;
}

/* Check that no two elements share memory, because a kernel would then write one of them twice: along the sorted axes
 * each stride must clear the extent of the axes before it. check_reach() has passed, so nothing overflows. */
static kjit_status check_nesting(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error) {
  uint32_t order[MAX_RANK];
  const uint32_t count = sort_axes(rule, tensor, order);
  int64_t extent = 1;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t axis = order[i];
    const int64_t stride = tensor->stride[axis];
    if (stride < extent)
      return wrong_axis(rule, "stride", axis, stride, "large enough to clear the axes inside it: ", extent, error);
    extent += stride * (tensor->shape[axis] - 1);
  }
  return KJIT_OK;
}

kjit_status tensor_check_layout(const struct tensor_rule *rule, const kjit_tensor *tensor, kjit_error *error) {
  const uintptr_t address = (uintptr_t)tensor->data;
  kjit_status status = KJIT_OK;
  if (!is_multiple(address, rule->alignment)) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.data is 0x%" PRIxPTR ": must be a multiple of %u bytes",
                     rule->name, address, rule->alignment);
  }
  for (uint32_t axis = 0; axis < rule->rank && status == KJIT_OK; axis++)
    status = check_stride(rule, tensor, axis, error);
  if (status == KJIT_OK) status = check_reach(rule, tensor, error);
  if (status == KJIT_OK && rule->written) status = check_nesting(rule, tensor, error);
  return status;
}

int64_t tensor_stride(const kjit_tensor *tensor, uint32_t axis) {
  return tensor->shape[axis] == 1 ? 0 : tensor->stride[axis];
}
