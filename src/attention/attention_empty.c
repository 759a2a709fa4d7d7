/* Attention of tensors without elements, as PyTorch has them.
 *
 * 1. Without a query, a head or an entry of the batch the output has no element, so a launch does nothing.
 * 2. Without a key each row sees no key, so o becomes zeros and lse -inf, by memsets of the driver's. They go onto the
 *    stream as a kernel would, and into a graph that is captured.
 *
 * A tensor of any strides is filled with few memsets: axes that lie in memory without a gap are one axis, a memset
 * covers the two innermost of those that are left, and loops go over the rest.
 *
 * Threads: pure, but for the driver's memsets on the caller's stream. */
#include "attention/attention_empty.h"

#include <stdbool.h>

#include "attention/attention_arguments.h"
#include "attention/rule.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

enum { MAX_AXES = 4, WORD_BYTES = 4 };

/* Longest distance between two rows of one memset, in bytes: the driver's bound on a pitch. */
#define MAX_PITCH INT64_C(0x7fffffff)

#define MINUS_INFINITY 0xff800000u

/* A tensor as words of 4 bytes: axes from the innermost on, of which the first is without gaps. */
struct words {
  uint64_t address;
  int64_t length[MAX_AXES]; /* of axis 0 in words */
  int64_t pitch[MAX_AXES];  /* bytes from one to the next; of axis 0: of a word */
  int axes;
};

/* Sort the tensor's axes by stride and join each with the one inside it where nothing lies between. A row of a 16-bit
 * tensor is a multiple of 8 elements, so that all is whole words. */
static struct words words_of(const kjit_tensor *tensor, int64_t element_bytes) {
  struct words words = {.address = (uintptr_t)tensor->data};
  int64_t length[MAX_AXES], pitch[MAX_AXES];
  int count = 0;
  for (uint32_t axis = 0; axis < tensor->rank; axis++) {
    if (tensor->shape[axis] == 1) continue;
    int at = count++;
    for (; at > 0 && pitch[at - 1] > tensor->stride[axis] * element_bytes; at--) {
      pitch[at] = pitch[at - 1];
      length[at] = length[at - 1];
    }
    pitch[at] = tensor->stride[axis] * element_bytes;
    length[at] = tensor->shape[axis];
  }
  int64_t bytes = element_bytes; /* of what is joined so far */
  int axis = 0;
  for (; axis < count && pitch[axis] == bytes; axis++)
    bytes *= length[axis];
  words.length[0] = bytes / WORD_BYTES;
  words.pitch[0] = WORD_BYTES;
  words.axes = 1;
  for (; axis < count; axis++) {
    const int outer = words.axes - 1;
    if (outer > 0 && words.pitch[outer] * words.length[outer] == pitch[axis]) {
      words.length[outer] *= length[axis];
      continue;
    }
    words.length[words.axes] = length[axis];
    words.pitch[words.axes++] = pitch[axis];
  }
  return words;
}

/* Fill the axes from `axis` inwards, at an offset that the outer axes' loops have reached. */
static kjit_status fill_from(kjit_runtime *runtime, const struct words *words, int axis, uint64_t address,
                             uint32_t value, CUstream stream, kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (axis == 0 || (axis == 1 && words->pitch[1] <= MAX_PITCH)) {
    const struct runtime_rows rows = {.address = address,
                                      .words = (uint64_t)words->length[0],
                                      .rows = axis == 0 ? 1 : (uint64_t)words->length[1],
                                      .pitch = axis == 0 ? 0 : (uint64_t)words->pitch[1]};
    return runtime_memory_fill(runtime, &rows, value, stream, error);
  }
  for (int64_t i = 0; i < words->length[axis] && status == KJIT_OK; i++)
    status = fill_from(runtime, words, axis - 1, address + (uint64_t)(i * words->pitch[axis]), value, stream, error);
  return status;
}

static kjit_status fill(kjit_runtime *runtime, const kjit_tensor *tensor, int64_t element_bytes, uint32_t value,
                        CUstream stream, kjit_error *error) {
  if (tensor->rank == 0) return KJIT_OK;
  const struct words words = words_of(tensor, element_bytes);
  return fill_from(runtime, &words, words.axes - 1, words.address, value, stream, error);
}

static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct empty_call *call = user;
  (void)blocks; /* there are none */
  const kjit_status status = fill(call->runtime, &call->o, 2, 0, stream, error);
  return status == KJIT_OK ? fill(call->runtime, &call->lse, 4, MINUS_INFINITY, stream, error) : status;
}

kjit_status attention_empty_prepare(struct empty_call *call, kjit_runtime *runtime, const kjit_attention_args *args,
                                    kjit_error *error) {
  const int64_t *const q = args->q.shape, columns = args->v.shape[3];
  *call = (struct empty_call){.runtime = runtime};
  if (columns % 8 != 0 || q[3] % 8 != 0)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "head_dim is %lld and head_dim_v %lld: must be multiples of 8; pad q, k and v with zeros",
                     (long long)q[3], (long long)columns);
  if (q[0] == 0 || q[1] == 0 || q[2] == 0) return KJIT_OK;
  if (args->sinks && args->lse.data)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "k.shape[1] (seq) is 0: lse must not be wanted beside sinks");
  call->o = args->o;
  if (args->lse.data) call->lse = args->lse;
  return KJIT_OK;
}

const struct attention_family empty_attention = {.enqueue = enqueue};
