/* The gradients of what a score function reads: checked beside the tensors that they are the gradients of, and laid out
 * as the kernels take them.
 *
 * Threads: everything here is pure. */
#include "attention/backward/backward_gradients.h"

#include <string.h>

#include "attention/variant/variant.h"
#include "base/error.h"

bool backward_gradients_are_asked(const kjit_attention_backward_args *args) {
  if ((args->dalibi_slopes && args->dalibi_slopes->data) || (args->dbias && args->dbias->data)) return true;
  const size_t count = args->variant && args->variant_gradients ? args->variant->tensor_count : 0;
  for (size_t i = 0; i < count; i++)
    if (args->variant_gradients[i].data) return true;
  return false;
}

/* What a gradient is called in messages, and the tensor that it is the gradient of. */
struct pair {
  const char *name;
  const kjit_tensor *gradient, *of;
};

static kjit_status check(const struct pair *pair, int32_t device, kjit_error *error) {
  const kjit_tensor *const gradient = pair->gradient;
  if (gradient->dtype != KJIT_FP32)
    return error_set(error, KJIT_ERR_INVALID_ARG, "the gradient of %s: its dtype is %d: must be FP32 (6)", pair->name,
                     (int)gradient->dtype);
  if (gradient->device != device)
    return error_set(error, KJIT_ERR_INVALID_ARG, "the gradient of %s: is on device %d, and device %d writes it",
                     pair->name, (int)gradient->device, (int)device);
  if (gradient->rank != pair->of->rank || memcmp(gradient->shape, pair->of->shape, gradient->rank * sizeof(int64_t)))
    return error_set(error, KJIT_ERR_INVALID_ARG, "the gradient of %s: must have its shape", pair->name);
  if ((uintptr_t)gradient->data % sizeof(float) == 0) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "the gradient of %s: data must be a multiple of 4", pair->name);
}

static kjit_status take(const struct pair *pair, int32_t device, struct kjit_variant_tensor_argument *out,
                        kjit_error *error) {
  if (!pair->gradient || !pair->gradient->data) return KJIT_OK;
  if (!pair->of) return error_set(error, KJIT_ERR_INVALID_ARG, "d%s: is given without %s", pair->name, pair->name);
  const kjit_status status = check(pair, device, error);
  if (status != KJIT_OK) return status;
  *out = (struct kjit_variant_tensor_argument){.data = pair->gradient->data};
  for (uint32_t axis = 0; axis < 4; axis++) {
    out->size[axis] = axis < pair->gradient->rank ? (int)pair->gradient->shape[axis] : 1;
    out->stride[axis] = axis < pair->gradient->rank ? pair->gradient->stride[axis] : 0;
  }
  return KJIT_OK;
}

static kjit_status take_of_variant(const kjit_attention_backward_args *args, int32_t device,
                                   struct kjit_variant_tensor_argument *out, kjit_error *error) {
  const kjit_attention_variant *const variant = args->variant;
  kjit_status status = KJIT_OK;
  if (!variant->has_gradients)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "variant_gradients: the score function reads more than %d elements, or its derivatives have too "
                     "many operations",
                     VARIANT_GRADIENTS_MAX);
  for (size_t i = 0; i < variant->tensor_count && status == KJIT_OK; i++) {
    const struct pair pair = {variant->tensor_names[i], &args->variant_gradients[i], &args->variant_tensors[i]};
    if (pair.gradient->data && variant->tree.tensor_types[i] != TYPE_real)
      return error_set(error, KJIT_ERR_INVALID_ARG, "the gradient of %s: it holds no real numbers", pair.name);
    status = take(&pair, device, &out[i], error);
  }
  return status;
}

/* The tensors of the library's own variants: the slopes, and behind them the bias (variant/builtin.c). */
static kjit_status take_of_members(const kjit_attention_backward_args *args, int32_t device,
                                   struct kjit_variant_tensor_argument *out, kjit_error *error) {
  const struct pair slopes = {"alibi_slopes", args->dalibi_slopes, args->alibi_slopes};
  const struct pair bias = {"bias", args->dbias, args->bias};
  const kjit_status status = take(&slopes, device, &out[0], error);
  return status == KJIT_OK ? take(&bias, device, &out[args->alibi_slopes ? 1 : 0], error) : status;
}

kjit_status backward_gradients_take(const kjit_attention_backward_args *args, int32_t device,
                                    struct kjit_variant_tensor_argument out[KJIT_VARIANT_TENSORS_MAX],
                                    kjit_error *error) {
  memset(out, 0, KJIT_VARIANT_TENSORS_MAX * sizeof *out);
  if (args->flags & KJIT_ATTENTION_DETERMINISTIC)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "KJIT_ATTENTION_DETERMINISTIC: the gradients of what a score function reads are summed in any "
                     "order");
  return args->variant ? take_of_variant(args, device, out, error) : take_of_members(args, device, out, error);
}
