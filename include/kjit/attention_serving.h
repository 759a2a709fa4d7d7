/**
 * @file
 * Attention as inference servers call it: ragged batches, paged caches, few query rows on long caches, new keys
 * appended on the way. Lengths, offsets and page tables lie in device memory and are never read by the host, so a call
 * can be captured into a graph and replayed with other lengths. docs/serving.md has the semantics in full.
 *
 * The kernels are those of the family `attention_serving`, for sm_80 and later, and on Hopper those of
 * `attention_serving_sm90`, for few rows of q, and of `attention_prefill_sm90`, for many. Which one a call gets depends
 * on dtypes, head sizes, heads, pages, which features are used (softcap, windows, ...), and how many rows of q and
 * sequences there are, and not on lengths on the device: a model needs a handful, which
 * kjit_attention_serving_kernels() lists. A call that is captured into a graph needs its kernel built before.
 */
#ifndef KJIT_ATTENTION_SERVING_H
#define KJIT_ATTENTION_SERVING_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/** kjit_attention_serving_args.flags: rotary pairs are columns (2i, 2i + 1), and not (i, i + rotary_columns / 2). */
#define KJIT_SERVING_ROTARY_INTERLEAVED 0x100u

/**
 * Arguments of attention for serving. For each sequence b and head, row i of q, at position i + keys - rows among the
 * sequence's keys, gives o = softmax(scale · q·kᵀ)·v over the keys that it sees.
 *
 * | tensor | shape | without | with |
 * | --- | --- | --- | --- |
 * | q, o | (batch, rows, heads_q, columns) | cu_seqlens_q | (total rows, heads_q, columns) |
 * | lse | (batch, heads_q, rows) | cu_seqlens_q | (heads_q, total rows) |
 * | k, v | (cache rows, positions, heads_kv, columns) | cu_seqlens_k | (total positions, heads_kv, columns) |
 * | k, v | | page_table | (pages, page size, heads_kv, columns) |
 * | k_new, v_new | (batch, new, heads_kv, columns) | cu_seqlens_k_new | (total new, heads_kv, columns) |
 *
 * q, k, v, o, k_new, v_new are of one 16-bit dtype, on the current device, the last axis contiguous, data 16-byte
 * aligned, the other strides multiples of 16 bytes; heads_q is a multiple of heads_kv. lse is fp32. k and v may both be
 * KJIT_FP8_E4M3 instead, with columns that are multiples of 16: keys then count as k · k_descale, values as
 * v · v_descale, and new ones are divided by it and rounded to nearest even, to 448 where they are larger. The int32
 * arrays are contiguous device memory; NULL where they do not apply. Rows and keys of sequence b:
 *
 *  - rows: seqused_q[b], else cu_seqlens_q[b + 1] - cu_seqlens_q[b], else q's;
 *  - keys: seqused_k[b], else cu_seqlens_k[b + 1] - cu_seqlens_k[b], else the cache's positions; less leftpad_k[b];
 *    plus the new ones.
 *
 * Negative lengths and leftpads count as 0. Rows of q beyond are not written. Entries of the page table beyond a
 * sequence's keys, slots that hold no key, and rows that belong to no sequence may hold anything. A row that sees no
 * key gives o = 0 and lse = -inf, or the sink where there are sinks.
 */
typedef struct kjit_attention_serving_args {
  size_t struct_size;
  kjit_tensor q, k, v;
  kjit_tensor o;                    /**< written */
  kjit_tensor lse;                  /**< written: natural log, sinks included; data NULL: not wanted */
  kjit_tensor k_new, v_new;         /**< appended to the cache at seqused_k[b] + i before attention; data NULL: none.
                                         k and v are then written. Positions beyond the cache are skipped. */
  kjit_tensor k_descale, v_descale; /**< (batch, heads_kv) fp32, positive, any strides, 0 included: of a cache in
                                         KJIT_FP8_E4M3; data NULL: 1 */
  int64_t batch;                    /**< sequences; without a sequence, or a row of q, nothing is done, nor appended */
  int64_t max_seqlen_q; /**< no sequence has more rows: shapes the choice of the kernel, never the result; 0: q's */
  /** batch + 1 each; a sequence that begins at a negative offset has no rows, or no keys */
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *cu_seqlens_k_new;
  const int32_t *seqused_q, *seqused_k; /**< batch each; k_new needs seqused_k */
  const int32_t *cache_batch_idx;       /**< batch: row of the cache, or of the page table; NULL: b */
  const int32_t *leftpad_k;             /**< batch: the first so many slots hold no key */
  const int32_t *page_table;            /**< (rows, max_pages): key j lies in page page_table[row][j / page size] */
  int64_t page_table_stride;            /**< elements between rows of the page table */
  int64_t max_pages;                    /**< columns of the page table; times the page size at most 2^30 */
  const void *rotary_cos, *rotary_sin; /**< (rotary_rows, rotary_columns / 2), contiguous, of q's dtype: q and k_new are
                                            rotated; only with k_new */
  int64_t rotary_rows, rotary_columns; /**< columns: a multiple of 16 up to q's; those behind stay as they are */
  const int32_t *rotary_seqlens;       /**< batch: position of the first row; NULL: seqused_k */
  const void *sinks;                   /**< heads_q logits that take part in the softmax without a value; NULL: none */
  int32_t sinks_dtype;                 /**< KJIT_FP32 or q's */
  int32_t window_left, window_right;   /**< keys to the left and right of a row's position that it sees; -1: all */
  int32_t attention_chunk;             /**< a row sees keys of its own chunk of so many positions alone; 0: all */
  int32_t
      num_splits;    /**< 0: chosen; 1: a row's keys are summed in one piece, whatever the batch; n: at most n pieces */
  int32_t sm_margin; /**< multiprocessors that are left to other kernels */
  float scale;       /**< softmax scale, > 0 and finite; 0: 1/√head_dim */
  float softcap;     /**< > 0: scores become softcap · tanh(score / softcap); 0: none */
  uint32_t flags;    /**< KJIT_ATTENTION_CAUSAL (window_right = 0), KJIT_SERVING_ROTARY_INTERLEAVED */
  const void *schedule; /**< what kjit_attention_schedule() wrote for equal lengths; NULL: the kernel makes its own */
  void *workspace;      /**< device memory for this call, zeroed once before its first use; calls that share it must run
                             one after the other; NULL: the runtime's own (in a capture: allocated by the graph) */
  size_t schedule_bytes, workspace_bytes;
} kjit_attention_serving_args;

static inline kjit_attention_serving_args kjit_attention_serving_args_default(void) {
  kjit_attention_serving_args args = KJIT_ZERO;
  args.struct_size = sizeof args;
  args.window_left = args.window_right = -1;
  return args;
}

/**
 * Attention for serving. Asynchronous, on the caller's stream, in the current context; with k_new two kernels, else
 * one. Everything that the host can see is checked before anything is compiled or launched. The first call of a kind
 * builds its kernels, so it must not be the one that is captured into a graph.
 *
 * @param runtime  the runtime
 * @param args     borrowed for the call, while the memory is used until the kernels have run
 * @param stream   a stream of the current context
 * @retval KJIT_OK               enqueued; or nothing to do, without a sequence or a row
 * @retval KJIT_ERR_INVALID_ARG  the message names the argument and the rule
 * @retval KJIT_ERR_UNSUPPORTED  no kernel for these head sizes, or for this device
 * @retval those of kjit_kernel_get() and kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_serving(kjit_runtime *runtime,
                                                           const kjit_attention_serving_args *args, CUstream stream,
                                                           kjit_error *error);

/**
 * Write the schedule of a call into args->schedule: which multiprocessor works on what, made from the lengths by one
 * small kernel. Calls with equal lengths, heads, window, chunk, num_splits and kernel, such as the layers of a model in
 * one step, may use it in place of making their own. A call that does not fit it makes its own, so a wrong schedule
 * costs time and never a result; but its lengths must be those of the call.
 * @param runtime  the runtime
 * @param args     as for kjit_attention_serving(); the memory at schedule is written
 * @param stream   a stream of the current context
 * @retval those of kjit_attention_serving(); KJIT_ERR_INVALID_ARG also when schedule_bytes is too small
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_schedule(kjit_runtime *runtime,
                                                            const kjit_attention_serving_args *args, CUstream stream,
                                                            kjit_error *error);

/** How much memory calls take. Follows from the kernel and the card alone, never from batch or lengths. */
typedef struct kjit_attention_serving_sizes {
  size_t struct_size;
  size_t schedule_bytes;  /**< at args->schedule  */
  size_t workspace_bytes; /**< at args->workspace */
} kjit_attention_serving_sizes;

/**
 * Ask how much memory a call takes on the current device. Nothing is compiled.
 * @param      runtime  the runtime
 * @param      args     as for kjit_attention_serving(); schedule and workspace are not looked at
 * @param[out] sizes    all zero on failure
 * @retval those of kjit_attention_serving()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_serving_get_sizes(kjit_runtime *runtime,
                                                                     const kjit_attention_serving_args *args,
                                                                     kjit_attention_serving_sizes *sizes,
                                                                     kjit_error *error);

/** What of a model its serving kernels depend on. */
typedef struct kjit_serving_model {
  size_t struct_size;
  int32_t dtype;      /**< KJIT_FP16 or KJIT_BF16                                */
  int32_t cache;      /**< of k and v: dtype, or KJIT_FP8_E4M3; 0: dtype          */
  int64_t heads_q;    /**< at least 1                                            */
  int64_t heads_kv;   /**< 0: as heads_q                                         */
  int64_t head_dim;   /**< columns of q and k                                    */
  int64_t head_dim_v; /**< columns of v and o; 0: as head_dim                    */
  int64_t page_size;  /**< positions of a page; 0: no pages                      */
  int64_t softcap;    /**< 1: scores are capped                                  */
} kjit_serving_model;

static inline kjit_serving_model kjit_serving_model_default(void) {
  kjit_serving_model model = KJIT_ZERO;
  model.struct_size = sizeof model;
  return model;
}

/** The most kernels that kjit_attention_serving_kernels() lists. */
#define KJIT_SERVING_KERNELS_MAX 8

/**
 * List every kernel that serving a model needs, whatever batch and lengths, for building them beforehand.
 * @param      model    the model
 * @param      arch     "sm_80", "sm_90", ...; on Hopper also "sm_90a", by which a device takes the kernels that need
 * its own features, and no others
 * @param[out] configs  at least KJIT_SERVING_KERNELS_MAX
 * @param[out] count    how many there are; 0 on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG, KJIT_ERR_UNSUPPORTED  as of kjit_attention_serving()
 * @retval KJIT_ERR_INTERNAL                           the model needs more than KJIT_SERVING_KERNELS_MAX kernels
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_serving_kernels(const kjit_serving_model *model, const char *arch,
                                                                   kjit_config *configs, size_t *count,
                                                                   kjit_error *error);

/** kjit_attention_serving_config.pass */
typedef enum kjit_serving_pass {
  KJIT_SERVING_ATTEND = 0, /**< attention                        */
  KJIT_SERVING_PLAN = 1,   /**< the schedule                     */
  KJIT_SERVING_APPEND = 2  /**< new keys and values to the cache */
} kjit_serving_pass;

/**
 * X(name, kind, text): the fields of the family `attention_serving` in their order; kind is DTYPE, INT, BOOL or PASS (a
 * ::kjit_serving_pass by its name in small letters). The kernel sees each as `#define KJIT_<name> <value>`.
 */
#define KJIT_ATTENTION_SERVING_FIELDS(X)                                                                               \
  X(pass, PASS, "attend, plan (the schedule) or append (new keys and values to the cache)")                            \
  X(dtype, DTYPE, "element type of q and o: FP16 (5) or BF16 (15)")                                                    \
  X(cache, DTYPE, "element type of k and v: dtype, or FP8_E4M3 (24)")                                                  \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(rows, INT, "query rows of a tile, query heads that share a key head packed into them: 16, 32, 64 or 128")          \
  X(keys, INT, "key rows per step: a multiple of 16 for each warp along them, up to 256")                              \
  X(warps, INT, "warps per block: rows / 16 of them along the rows, the others along the keys; up to 8")               \
  X(stages, INT, "tiles of K and V in shared memory: 2 to 4")                                                          \
  X(blocks_per_sm, INT, "blocks of threads that share a multiprocessor: 1 to 8")                                       \
  X(paged, BOOL, "keys and values lie in pages")                                                                       \
  X(softcap, BOOL, "scores are capped")

/** One configuration, with a member for each of the family's kjit_config.values, in their order. No padding. */
typedef struct kjit_attention_serving_config {
#define KJIT_ATTENTION_SERVING_MEMBER(name, kind, text) int32_t name;
  KJIT_ATTENTION_SERVING_FIELDS(KJIT_ATTENTION_SERVING_MEMBER)
#undef KJIT_ATTENTION_SERVING_MEMBER
} kjit_attention_serving_config;

#ifdef __cplusplus
}
#endif
#endif
