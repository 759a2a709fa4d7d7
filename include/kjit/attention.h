/**
 * @file
 * Attention forward: the arguments of a call, the choice of a kernel, the call itself, and plans. The families are
 * attention_decode_sm90.h (Hopper, few query rows), attention_short_sm90.h (few keys), attention_sm90.h (Hopper),
 * flash_forward.h (sm_80 and later), and attention_serving_sm90 (Hopper, few tiles), whose configs have `one_part` 1.
 */
#ifndef KJIT_ATTENTION_H
#define KJIT_ATTENTION_H

#include <kjit/family.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Head sizes of the kernels: multiples of KJIT_HEAD_DIM_STEP columns up to KJIT_HEAD_DIM_MAX. */
#define KJIT_HEAD_DIM_STEP 8
#define KJIT_HEAD_DIM_MAX  256

/** Row i of q sees keys up to i + seq_kv - seq_q (aligned bottom right). A row that sees none gives 0 and -inf. */
#define KJIT_ATTENTION_CAUSAL 0x1u

/** window_left and window_right of the arguments are read. */
#define KJIT_ATTENTION_WINDOW 0x2u

/** A score function and a mask that the caller wrote, compiled into the kernel: kjit/attention_variant.h. */
typedef struct kjit_attention_variant kjit_attention_variant;

/**
 * Which blocks of scores are computed, in the layout of PyTorch's BlockMask: for each row of blocks how many blocks of
 * keys are partial, and which; and how many are full, and which. A partial block is judged by the variant's mask (all
 * of it is seen where there is none); a full block is seen as a whole, whatever the mask says; a block in neither list
 * is not seen. The order within a row is free, and entries behind a row's count are not read. Device memory, int32.
 */
typedef struct kjit_block_lists {
  kjit_tensor counts;       /**< (batch or 1, heads_q or 1, rows); the last axis contiguous                    */
  kjit_tensor indices;      /**< (batch or 1, heads_q or 1, rows, columns); the last axis contiguous           */
  kjit_tensor full_counts;  /**< as counts; data NULL: no block is full                                        */
  kjit_tensor full_indices; /**< as indices                                                                    */
  int32_t query_rows;       /**< queries of a block, at least 1: rows · query_rows covers seq_q                */
  int32_t key_rows;         /**< keys of a block, at least 1: columns · key_rows covers seq_kv                 */
} kjit_block_lists;

/**
 * Memory of the caller's in which the key blocks that a call finds for its mask stay, so that calls of the same mask
 * need not find them again: which blocks each tile visits, and which scores of a partial block count. Zero it, give it
 * to a call, then give it `wanted` bytes of memory: the next call fills them, and those behind it read them.
 *
 * A call reads what another one found where the mask, its numbers, the addresses of its tensors and of the lists of
 * blocks, the sizes and the kernel are the same; otherwise it fills the memory anew. Whether what tensors and lists
 * hold is the same only the caller knows, who sets `filled_for` to zeros after a change. Calls with one such struct
 * come one after the other, on one stream. A call that is captured into a graph leaves the struct alone and finds its
 * blocks whenever the graph runs.
 */
typedef struct kjit_kept_blocks {
  void *data;             /**< device memory, 16-byte aligned; NULL: none yet                                      */
  size_t bytes;           /**< of it; with fewer than `wanted` the call finds its blocks as if there were no struct */
  size_t wanted;          /**< written by a call with a variant: the bytes that its blocks take; 0: it finds none   */
  uint64_t filled_for[2]; /**< what the memory was filled for, written by the call that fills it; zeros: nothing    */
} kjit_kept_blocks;

/**
 * Arguments of attention forward: O = softmax(scale · Q·Kᵀ)·V for each (batch, head), in fp32, rounded once.
 *
 * q: (batch, seq_q, heads_q, head_dim); k: (batch, seq_kv, heads_kv, head_dim); v: (batch, seq_kv, heads_kv,
 * head_dim_v); o: (batch, seq_q, heads_q, head_dim_v), all of one dtype, on the current device, the last axis
 * contiguous, data 16-byte aligned and the other strides multiples of 16 bytes. heads_q is a multiple of heads_kv:
 * query head h reads key and value head h / (heads_q / heads_kv).
 *
 * Every axis but the columns may have length 0; the data of a tensor without elements may be NULL. Without a query, a
 * head or a batch entry nothing is launched; without a key o becomes zeros and lse -inf. batch and heads_q are each
 * below 2^31 and together below 2^32. Head sizes are multiples of 8 up to 256: a caller with others pads q, k and v
 * with columns of zeros, passes the scale of the size before, and cuts o, as the Python package does.
 */
typedef struct kjit_attention_args {
  size_t struct_size;
  kjit_tensor q, k, v;
  kjit_tensor o;   /**< written                                                                                */
  kjit_tensor lse; /**< ln Σ exp(scale·q·k): (batch, heads_q, seq_q) fp32, seq_q contiguous; data NULL: not wanted */
  float scale;     /**< softmax scale, > 0 and finite; 0: 1/√head_dim                                          */
  uint32_t flags;  /**< KJIT_ATTENTION_* or 0                                                                  */

  /** @name Attention variants
   * All zero for dense attention. A score is scaled first, then goes through the score function, then the mask decides
   * whether it counts; what they are is written in one text (variant) or follows from the members behind it.
   * @{ */
  const kjit_attention_variant *variant; /**< NULL: none. Borrowed for the call, or for the making of a plan.        */
  const int32_t *scalar_values;          /**< of the variant's scalars, in their order; floats by their bits         */
  const kjit_tensor *variant_tensors;    /**< the variant's tensors, in their order                                  */
  const kjit_block_lists *blocks;        /**< NULL: the mask alone says which blocks are computed                    */
  const kjit_tensor *sinks;              /**< (heads_q) fp32: one more logit a row, not scaled, without a value. A row
                                            that sees no key gives 0 and the sink. NULL: none                        */
  const kjit_tensor *alibi_slopes;       /**< (heads_q) or (batch, heads_q) fp32: adds -slope·|i + seq_kv - seq_q - j|.
                                            NULL: none. Not beside `variant`, as those below                         */
  const kjit_tensor *bias; /**< (batch, heads_q, seq_q, seq_kv), fp16, bf16 or fp32, any strides, an axis of
                              length 1 for all: added to the scaled scores. NULL: none                 */
  int32_t window_left;     /**< with KJIT_ATTENTION_WINDOW: row i sees keys from i + seq_kv - seq_q - left */
  int32_t window_right;    /**< up to i + seq_kv - seq_q + right; -1: no bound on that side            */
  int32_t attention_chunk; /**< a row sees keys of its own chunk of so many positions alone; 0: all    */
  float softcap;           /**< scores become softcap·tanh(score / softcap); 0: they stay              */
  kjit_kept_blocks *kept;  /**< borrowed as the tensors' memory is. NULL: each call finds its blocks   */
  /** @} */
} kjit_attention_args;

static inline kjit_attention_args kjit_attention_args_default(void) {
  kjit_attention_args args = KJIT_ZERO;
  args.struct_size = sizeof args;
  return args;
}

/** A problem without its tensors: what the choice of a kernel depends on. */
typedef struct kjit_attention_problem {
  size_t struct_size;
  int32_t dtype;      /**< KJIT_FP16 or KJIT_BF16                 */
  uint32_t flags;     /**< as in kjit_attention_args              */
  int64_t batch;      /**< 0: 1                                   */
  int64_t heads_q;    /**< 0: 1                                   */
  int64_t heads_kv;   /**< 0: as heads_q                          */
  int64_t seq_q;      /**< at least 1                             */
  int64_t seq_kv;     /**< 0: as seq_q                            */
  int64_t head_dim;   /**< columns of q and k, at least 1         */
  int64_t head_dim_v; /**< columns of v and o; 0: as head_dim     */
  int64_t seen_keys;  /**< keys that a row sees on average where a mask leaves some out: an estimate, by which kernels
                         are chosen; 0: what the flags say */
} kjit_attention_problem;

static inline kjit_attention_problem kjit_attention_problem_default(void) {
  kjit_attention_problem problem = KJIT_ZERO;
  problem.struct_size = sizeof problem;
  return problem;
}

/**
 * Choose the kernel for a problem: on Hopper attention_serving_sm90 for few tiles of query rows over many keys,
 * attention_decode_sm90 for more of them, attention_short_sm90 for many queries over few keys and attention_sm90 for
 * what else it can compute, otherwise flash_forward. The config is canonical.
 * @param      runtime     NULL to choose by the rules alone, without a tuned table; `arch` must be given then
 * @param      problem     the problem
 * @param      arch        "sm_90a", "sm_80", ...; NULL for that of the current context's device
 * @param[out] config      all zero on failure
 * @param[out] decided_by  a ::kjit_decided_by; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  no family computes this problem there; says why
 * @retval KJIT_ERR_INVALID_ARG  names the member of the problem, or the argument
 * @retval KJIT_ERR_NO_DRIVER    arch is NULL and there is no context
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_choose(kjit_runtime *runtime, const kjit_attention_problem *problem,
                                                          const char *arch, kjit_config *config, uint32_t *decided_by,
                                                          kjit_error *error);

/**
 * Choose the kernel for a problem on a card that need not be here, by the rules alone: the same choice as on that card
 * without a tuned table. Needs no GPU.
 * @param      problem  the problem
 * @param      device   from kjit_device_find() or kjit_device_get_info(), or filled by hand: arch_specific,
 *                      multiprocessors and max_shared_per_block must be set
 * @param[out] config   all zero on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  no family computes this problem there; says why
 * @retval KJIT_ERR_INVALID_ARG  names the member
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_choose_for(const kjit_attention_problem *problem,
                                                              const kjit_device_info *device, kjit_config *config,
                                                              kjit_error *error);

/**
 * The kernel that a call launches in front of its config's own, because it is faster from copies of K and V in another
 * layout: attention_sm90 where rows of K or V are no multiples of 128 bytes and many queries read them. A call finds
 * and builds it by itself; this tells what there is to be built beforehand. Needs no GPU.
 * @param      config   of a family that computes attention, which passes kjit_config_check()
 * @param      problem  NULL for any problem: which kernel may be launched
 * @param      device   the card, as for kjit_attention_choose_for(); not read where problem is NULL
 * @param[out] front    the kernel's config; all zero where there is none, and on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  names the argument, or the member of the problem
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_front(const kjit_config *config,
                                                         const kjit_attention_problem *problem,
                                                         const kjit_device_info *device, kjit_config *front,
                                                         kjit_error *error);

/**
 * Run attention forward. Asynchronous; on the caller's stream, in the current context. Everything is checked before
 * anything is compiled or launched. The kernel is built and loaded by the first call that needs it; so the first call
 * of a kind must not be the one that is captured into a graph.
 *
 * @param runtime  the runtime
 * @param config   NULL for the config that kjit_attention_choose() gives on the current device. Otherwise a config of
 *                 one of the families above: of Hopper's, whose dtype, head sizes and mask must be the arguments', or
 *                 of flash_forward, whose dtype and d_head must fit them; its traits follow from the arguments,
 *                 whatever the config says.
 * @param args     the tensors; borrowed for the call, while their memory is used until the kernel has run
 * @param stream   a stream of the current context
 * @retval KJIT_OK                  enqueued
 * @retval KJIT_ERR_INVALID_ARG     a tensor's rank, shape, stride, alignment, device or dtype, which the message names;
 *                                  or a config of a family that is none of these
 * @retval KJIT_ERR_INVALID_CONFIG  the config breaks a rule, or does not fit the tensors
 * @retval KJIT_ERR_UNSUPPORTED     the current device cannot run it, or no family computes it there
 * @retval those of kjit_kernel_get() and kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_forward(kjit_runtime *runtime, const kjit_config *config,
                                                           const kjit_attention_args *args, CUstream stream,
                                                           kjit_error *error);

/** A checked call with everything looked up: running it is one launch. Immutable, thread-safe. */
typedef struct kjit_attention_plan kjit_attention_plan;

/**
 * Prepare a call for the current device. Also asks the driver whether each pointer is memory that this device can use.
 * @param[out] out      ended with kjit_attention_plan_destroy(), before the runtime
 * @param      runtime  the runtime
 * @param      config   as for kjit_attention_forward()
 * @param      args     the tensors; their memory is used whenever the plan runs
 * @retval those of kjit_attention_forward()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_plan_create(kjit_attention_plan **out, kjit_runtime *runtime,
                                                               const kjit_config *config,
                                                               const kjit_attention_args *args, kjit_error *error);

/**
 * Launch once, on the tensors that the plan was made with. The device that it was made on must be current. May be
 * captured into a graph.
 * @param plan    the plan
 * @param stream  a stream of the current context
 * @retval KJIT_OK, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_plan_run(const kjit_attention_plan *plan, CUstream stream,
                                                            kjit_error *error);

/**
 * Launch once and wait: the time between two events around the kernel.
 * @param      plan          the plan
 * @param      stream        a stream of the current context, which is not being captured
 * @param[out] milliseconds  set to 0 on failure
 * @retval those of kjit_attention_plan_run(), and KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_plan_time(const kjit_attention_plan *plan, CUstream stream,
                                                             float *milliseconds, kjit_error *error);

/**
 * End a plan.
 * @param plan  may be NULL
 * @par Thread safety  Not thread-safe: nobody else may be using the plan. Launches that it enqueued may still run.
 */
KJIT_API void kjit_attention_plan_destroy(kjit_attention_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
