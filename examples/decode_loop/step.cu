// The end of a step: logits of random weights, the largest of them is the next token, whose query, key and value are
// looked up in tables. One block of threads for each sequence.

static __device__ float value_of(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

struct step_params {
  const unsigned short *o;        // (batch, columns): attention's output
  const unsigned short *weights;  // (vocabulary, columns)
  const unsigned short *table_q;  // (vocabulary, columns)
  const unsigned short *table_kv; // (vocabulary, 2, kv columns)
  unsigned short *q;              // (batch, columns)
  unsigned short *k_new, *v_new;  // (batch, kv columns)
  int *lengths;                   // (batch): keys in the cache
  int *tokens;                    // (batch, most): what was generated
  int columns, kv_columns, vocabulary, most, prompt;
};

extern "C" __global__ void next_token(const step_params p) {
  __shared__ float best_logit[128];
  __shared__ int best_token[128];
  const int b = blockIdx.x, thread = threadIdx.x;
  float logit = -1e30f;
  int token = 0;
  for (int t = thread; t < p.vocabulary; t += 128) {
    float sum = 0;
    for (int i = 0; i < p.columns; i++)
      sum += value_of(p.o[b * p.columns + i]) * value_of(p.weights[t * p.columns + i]);
    if (sum > logit) logit = sum, token = t;
  }
  best_logit[thread] = logit;
  best_token[thread] = token;
  __syncthreads();
  if (thread == 0) {
    for (int i = 1; i < 128; i++)
      if (best_logit[i] > best_logit[0] || (best_logit[i] == best_logit[0] && best_token[i] < best_token[0]))
        best_logit[0] = best_logit[i], best_token[0] = best_token[i];
    const int position = p.lengths[b] + 1; // attention has appended one key
    p.lengths[b] = position;
    if (position - p.prompt - 1 < p.most) p.tokens[b * p.most + position - p.prompt - 1] = best_token[0];
  }
  __syncthreads();
  const int next = best_token[0];
  for (int i = thread; i < p.columns; i += 128)
    p.q[b * p.columns + i] = p.table_q[next * p.columns + i];
  for (int i = thread; i < p.kv_columns; i += 128) {
    p.k_new[b * p.kv_columns + i] = p.table_kv[(2 * next) * p.kv_columns + i];
    p.v_new[b * p.kv_columns + i] = p.table_kv[(2 * next + 1) * p.kv_columns + i];
  }
}
