/* What a variant reads at a launch: its tensors are checked, and its argument struct is filled.
 *
 * Threads: nothing is shared. */
#include <string.h>

#include "attention/variant/variant.h"
#include "base/error.h"

void variant_fill_arguments(const kjit_attention_variant *variant, const struct variant_problem *problem,
                            const int32_t *scalar_values, const kjit_tensor *tensors,
                            struct kjit_variant_arguments *out) {
  memset(out, 0, sizeof *out);
  out->seq_q = problem->seq_q;
  out->seq_kv = problem->seq_kv;
  out->heads_q = problem->heads_q;
  out->heads_kv = problem->heads_kv;
  /* The numbers of the text have slots behind those of the declared scalars, so the caller's values go over the
   * front. */
  memcpy(out->scalars, variant->slots.bits, sizeof out->scalars);
  if (variant->scalar_count) memcpy(out->scalars, scalar_values, variant->scalar_count * sizeof *scalar_values);
  for (size_t i = 0; i < variant->tensor_count; i++) {
    struct kjit_variant_tensor_argument *const tensor = &out->tensors[i];
    tensor->data = tensors[i].data;
    for (size_t axis = 0; axis < 4; axis++) {
      const bool used = axis < variant->tree.tensor_ranks[i];
      tensor->size[axis] = used ? (int)tensors[i].shape[axis] : 1;
      tensor->stride[axis] = used ? tensors[i].stride[axis] : 0;
    }
  }
}

static kjit_status check_tensor(const kjit_attention_variant *variant, size_t index, const kjit_tensor *tensor,
                                int32_t device, kjit_error *error) {
  const char *const name = variant->tensor_names[index];
  const unsigned rank = variant->tree.tensor_ranks[index];
  if (tensor->dtype != variant->tensor_dtypes[index])
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: its dtype is %d, and the variant was made for %d", name,
                     (int)tensor->dtype, (int)variant->tensor_dtypes[index]);
  if (tensor->rank != rank)
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: has %u axes, and the variant was made for %u", name,
                     (unsigned)tensor->rank, rank);
  for (unsigned axis = 0; axis < rank; axis++)
    if (tensor->shape[axis] < 1 || tensor->shape[axis] > INT32_MAX)
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s: axis %u must have 1 to 2147483647 elements", name, axis);
  if (!tensor->data) return error_set(error, KJIT_ERR_INVALID_ARG, "%s: data must not be NULL", name);
  if (tensor->device != device)
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: is on device %d, and device %d reads it", name,
                     (int)tensor->device, (int)device);
  return KJIT_OK;
}

kjit_status variant_check_tensors(const kjit_attention_variant *variant, const int32_t *scalar_values,
                                  const kjit_tensor *tensors, int32_t device, kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (variant->scalar_count && !scalar_values) return error_invalid(error, "scalar_values", "must not be NULL");
  if (variant->tensor_count && !tensors) return error_invalid(error, "tensors", "must not be NULL");
  for (size_t i = 0; i < variant->tensor_count && status == KJIT_OK; i++)
    status = check_tensor(variant, i, &tensors[i], device, error);
  return status;
}
