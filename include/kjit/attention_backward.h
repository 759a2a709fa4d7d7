/**
 * @file
 * Attention backward: the gradients of q, k and v from what attention forward read and wrote, the choice of kernels,
 * the call itself, and plans. The families are `attention_backward_sm90` (Hopper) and `flash_backward` (sm_80 and
 * later).
 *
 * A call launches one to four kernels, one after the other on the caller's stream. Either one for dq (and delta) and
 * one for dk and dv, or one for each of these two: every sum has a fixed order, so equal inputs on equal cards give
 * equal bits, and the one scratch tensor, delta, is the caller's. Or three kernels of attention_backward_sm90 (passes
 * 8, 7 and 16), which make fewer products and sum dq in fp32 in device memory that the library holds, 4 bytes for each
 * element of dq, at most 1 GiB where the library chooses: in any order, so that the last bits of dq differ from run to
 * run, or with KJIT_ATTENTION_DETERMINISTIC in a fixed one. The library takes the way that was faster on the card.
 */
#ifndef KJIT_ATTENTION_BACKWARD_H
#define KJIT_ATTENTION_BACKWARD_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A bit of kjit_attention_backward_args.flags and of the problem's flags in kjit_attention_backward_choose(): equal
 * inputs on equal cards give equal bits. */
#define KJIT_ATTENTION_DETERMINISTIC 0x4u

#define KJIT_GRADIENT_Q       0x1u  /**< dq */
#define KJIT_GRADIENT_K       0x2u  /**< dk */
#define KJIT_GRADIENT_V       0x4u  /**< dv */
#define KJIT_GRADIENT_TENSORS 0x40u /**< those of the tensors that a score function reads */

/** The most kernels of one call. */
#define KJIT_ATTENTION_BACKWARD_KERNELS_MAX 4

/**
 * Arguments of attention backward. With P = exp(scale·Q·Kᵀ − lse), delta = rowsum(dO∘O) − dLSE and
 * dS = P∘(dO·Vᵀ − delta): dv = Pᵀ·dO, dk = scale·dSᵀ·Q, dq = scale·dS·K, sums in fp32, each gradient rounded once.
 *
 * q, k, v, o, lse, scale and flags are those of the forward call, with its shapes and its rules for strides. dout has
 * o's shape; it is only read, so its strides may be 0 (expanded). dq, dk and dv have the shapes of q, k and v and the
 * rules for strides of a tensor that is written. dk and dv of a key head are the sums over the query heads that share
 * it. What a mask hides entirely has a gradient of 0. All 16-bit tensors have one dtype.
 */
typedef struct kjit_attention_backward_args {
  size_t struct_size;
  kjit_tensor q, k, v, o;
  kjit_tensor lse; /**< ln Σ exp(scale·q·k) of the forward: (batch, heads_q, seq_q) fp32, seq_q contiguous          */
  kjit_tensor dout;  /**< the gradient of o                                                                          */
  kjit_tensor dlse;  /**< the gradient of lse, where lse was a result too: as lse; data NULL: 0                      */
  kjit_tensor dq;    /**< written; data NULL: not wanted, and its kernel does not run                                */
  kjit_tensor dk;    /**< written; data NULL: not wanted                                                             */
  kjit_tensor dv;    /**< written; data NULL: not wanted                                                             */
  kjit_tensor delta; /**< scratch, written: as lse, memory of its own; data may be NULL where dv alone is wanted     */
  float scale;    /**< softmax scale, > 0 and finite; 0: 1/√head_dim                                              */
  uint32_t flags; /**< KJIT_ATTENTION_CAUSAL, KJIT_ATTENTION_WINDOW, KJIT_ATTENTION_DETERMINISTIC                 */

  /** @name Attention variants
   * Those of the forward call. `variant_gradients`, `dalibi_slopes` and `dbias` are the gradients of what the score
   * function reads: fp32, of the shapes of those tensors, any strides, memory of their own. To each element is added
   * what the pairs that read it give it, in any order, so the caller writes zeros first; an axis of one element that
   * all pairs share is summed over. They are not computed with KJIT_ATTENTION_DETERMINISTIC: KJIT_ERR_UNSUPPORTED.
   * What masks read has no gradient. With `sinks` the lse is that of the forward call with them, and the gradient of
   * the sink of head h is the sum over batch and rows of -exp(sinks[h] - lse)·delta. Lists of blocks have no gradients:
   * KJIT_ERR_UNSUPPORTED.
   * @{ */
  const kjit_attention_variant *variant; /**< NULL: none. Borrowed for the call, or for the making of a plan         */
  const int32_t *scalar_values;          /**< of the variant's scalars                                               */
  const kjit_tensor *variant_tensors;    /**< the variant's tensors                                                  */
  const kjit_block_lists *blocks;        /**< must be NULL                                                           */
  const kjit_tensor *sinks;              /**< as for the forward call; NULL: none                                    */
  const kjit_tensor *alibi_slopes;       /**< as for the forward call; NULL: none                                    */
  const kjit_tensor *bias;               /**< as for the forward call; NULL: none                                    */
  int32_t window_left, window_right;     /**< with KJIT_ATTENTION_WINDOW                                             */
  int32_t attention_chunk;               /**< 0: none                                                                */
  float softcap;                         /**< 0: none                                                                */
  const kjit_tensor *variant_gradients;  /**< as many as variant_tensors, data NULL: not wanted; NULL: none is       */
  const kjit_tensor *dalibi_slopes;      /**< NULL: not wanted                                                       */
  const kjit_tensor *dbias;              /**< NULL: not wanted                                                       */
  /** @} */
} kjit_attention_backward_args;

static inline kjit_attention_backward_args kjit_attention_backward_args_default(void) {
  kjit_attention_backward_args args = KJIT_ZERO;
  args.struct_size = sizeof args;
  return args;
}

/**
 * Choose the kernels for a problem, in the order in which they run.
 * @param      problem    the problem, as for kjit_attention_choose()
 * @param      gradients  KJIT_GRADIENT_*, at least one
 * @param      arch       "sm_90a", "sm_80", ...
 * @param[out] configs    room for KJIT_ATTENTION_BACKWARD_KERNELS_MAX; canonical; those behind `count` are all zero
 * @param[out] count      how many kernels the call launches; 0 on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  no family computes this problem there; says why
 * @retval KJIT_ERR_INVALID_ARG  names the member of the problem, or the argument
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_backward_choose(const kjit_attention_problem *problem,
                                                                   uint32_t gradients, const char *arch,
                                                                   kjit_config *configs, size_t *count,
                                                                   kjit_error *error);

/**
 * Run attention backward. Asynchronous; on the caller's stream, in the current context. Everything is checked before
 * anything is compiled or launched. The kernels are built and loaded by the first call that needs them; so the first
 * call of a kind must not be the one that is captured into a graph.
 *
 * @param runtime  the runtime
 * @param configs  NULL for those that kjit_attention_backward_choose() gives on the current device. Otherwise the
 *                 kernels in the order in which they run; together they must compute each wanted gradient once, and
 *                 delta before dk. What follows from the tensors (dtype, head sizes, mask) must be theirs.
 * @param count    of configs; 0 with NULL
 * @param args     the tensors; borrowed for the call, while their memory is used until the kernels have run
 * @param stream   a stream of the current context
 * @retval KJIT_OK                  enqueued
 * @retval KJIT_ERR_INVALID_ARG     a tensor's rank, shape, stride, alignment, device or dtype, which the message names;
 *                                  or no gradient is wanted
 * @retval KJIT_ERR_INVALID_CONFIG  a config breaks a rule, or does not fit the tensors or the other configs
 * @retval KJIT_ERR_UNSUPPORTED     the current device cannot run it, or no family computes it there
 * @retval KJIT_ERR_DRIVER          besides: the device has no memory for the sums of dq
 * @retval those of kjit_kernel_get() and kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_backward(kjit_runtime *runtime, const kjit_config *configs,
                                                            size_t count, const kjit_attention_backward_args *args,
                                                            CUstream stream, kjit_error *error);

/**
 * Prepare a backward call for the current device, as kjit_attention_plan_create() does a forward call. The plan runs
 * all kernels of the call.
 * @param[out] out      ended with kjit_attention_plan_destroy(), before the runtime
 * @param      runtime  the runtime
 * @param      configs  as for kjit_attention_backward()
 * @param      count    of configs; 0 with NULL
 * @param      args     the tensors; their memory is used whenever the plan runs
 * @retval those of kjit_attention_backward()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_backward_plan_create(kjit_attention_plan **out,
                                                                        kjit_runtime *runtime,
                                                                        const kjit_config *configs, size_t count,
                                                                        const kjit_attention_backward_args *args,
                                                                        kjit_error *error);

/**
 * X(name, kind, text): the fields of the family `flash_backward` in their order; kind is DTYPE, INT or BOOL. The kernel
 * sees each as `#define KJIT_<name> <value>`, and kjit_config_parse() reads them as `name=value,...`.
 */
#define KJIT_FLASH_BACKWARD_FIELDS(X)                                                                                  \
  X(dtype, DTYPE, "element type of q, k, v, o and their gradients: FP16 (5) or BF16 (15)")                             \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(pass, INT, "what is computed: 1 dq and delta, 2 dk, 4 dv, 6 dk and dv, 8 delta alone, 64 what scores read")        \
  X(tile_m, INT, "query rows of a tile: a multiple of 16 up to 256, of 16 * n_warps for dq and delta")                 \
  X(tile_n, INT, "key rows of a tile: a multiple of 16 up to 256, of 16 * n_warps for dk and dv")                      \
  X(n_warps, INT, "warps per block: 1, 2, 4 or 8; each owns its share of the rows whose gradients are computed")       \
  X(stages, INT, "tiles of the other rows in shared memory: 2 to load one while another is used, or 1")

/** One configuration of flash_backward, with a member for each of the family's kjit_config.values, in their order. */
typedef struct kjit_flash_backward_config {
#define KJIT_FLASH_BACKWARD_MEMBER(name, kind, text) int32_t name;
  KJIT_FLASH_BACKWARD_FIELDS(KJIT_FLASH_BACKWARD_MEMBER)
#undef KJIT_FLASH_BACKWARD_MEMBER
} kjit_flash_backward_config;

/**
 * X(name, kind, text): the fields of the family `attention_backward_sm90` in their order; kind is DTYPE, INT or BOOL.
 * "Own" rows are those whose gradients a block computes: queries for dq, keys for dk and dv. A step takes rows of the
 * other side.
 */
#define KJIT_ATTENTION_BACKWARD_SM90_FIELDS(X)                                                                         \
  X(dtype, DTYPE, "element type of q, k, v, o and their gradients: FP16 (5) or BF16 (15)")                             \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(pass, INT, "1 dq and delta, 2 dk, 4 dv, 6 dk and dv; 7 dk, dv, dq in sums, 8 delta, sums of zero, 16 dq of sums")  \
  X(consumers, INT, "warpgroups that compute, 1 to 3; each owns 64 rows")                                              \
  X(tile, INT, "rows of a step: a multiple of 16 from 16 to 256")                                                      \
  X(stages, INT, "tiles of a step with head_dim columns in shared memory: 1 to 4, from 2 with pipelined")              \
  X(value_stages, INT, "the same with head_dim_v columns; from 2 with pipelined and dv")                               \
  X(pipelined, BOOL, "a step's sums run beside the next step's scores")                                                \
  X(direct, BOOL, "pass 7: dq is added to its sums from registers, not by the bulk copy engine; otherwise 0")          \
  X(staggered, BOOL, "pass 7: one consumer is half a step behind the other; 0 with head_dim above 128 and otherwise")  \
  X(persistent, BOOL, "pass 7: a block stays for tile after tile, which it counts in device memory; otherwise 0")      \
  X(stores, BOOL, "pass 7, 8: the first part of each tile of sums is stored, so that no zeros are written; otherwise 0")

/** One configuration of attention_backward_sm90, with a member for each of the family's kjit_config.values. */
typedef struct kjit_attention_backward_sm90_config {
#define KJIT_ATTENTION_BACKWARD_SM90_MEMBER(name, kind, text) int32_t name;
  KJIT_ATTENTION_BACKWARD_SM90_FIELDS(KJIT_ATTENTION_BACKWARD_SM90_MEMBER)
#undef KJIT_ATTENTION_BACKWARD_SM90_MEMBER
} kjit_attention_backward_sm90_config;

#ifdef __cplusplus
}
#endif
#endif
