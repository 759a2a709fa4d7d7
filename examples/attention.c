#include <kjit/kjit.h>
#include <stdio.h>

/* o = softmax(q kᵀ / √128) v for fp16 tensors of shape (batch, seq, heads, 128) on CUDA device 0, on your stream. */
int attention(kjit_runtime *kjit, void *q, void *k, void *v, void *o, int64_t batch, int64_t seq, int64_t heads,
              CUstream stream) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(q, KJIT_FP16, 0, batch, seq, heads, 128);
  args.k = kjit_tensor_bshd(k, KJIT_FP16, 0, batch, seq, heads, 128);
  args.v = kjit_tensor_bshd(v, KJIT_FP16, 0, batch, seq, heads, 128);
  args.o = kjit_tensor_bshd(o, KJIT_FP16, 0, batch, seq, heads, 128);

  kjit_error error;
  if (kjit_attention_forward(kjit, NULL, &args, stream, &error) == KJIT_OK) return 0;
  fprintf(stderr, "%s\n", error.message);
  return 1;
}
