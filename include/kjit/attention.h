/**
 * @file
 * Attention forward: the arguments of a call, and the call that chooses the kernel by itself. The
 * families are attention_sm90.h (Hopper) and flash_forward.h (sm_80 and later).
 */
#ifndef KJIT_ATTENTION_H
#define KJIT_ATTENTION_H

#include <kjit/kernel.h>
#include <kjit/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Row i of q sees keys up to i + seq_kv - seq_q (aligned bottom right). A row that sees none gives 0 and -inf. */
#define KJIT_ATTENTION_CAUSAL 0x1u

/**
 * Arguments of attention forward: O = softmax(scale · Q·Kᵀ)·V for each (batch, head), in fp32, rounded once.
 *
 * q: (batch, seq_q, heads_q, head_dim); k: (batch, seq_kv, heads_kv, head_dim); v: (batch, seq_kv, heads_kv,
 * head_dim_v); o: (batch, seq_q, heads_q, head_dim_v), all of one dtype, on the current device, the last axis
 * contiguous, data 16-byte aligned and the other strides multiples of 16 bytes. heads_q is a multiple of heads_kv:
 * query head h reads key and value head h / (heads_q / heads_kv).
 */
typedef struct kjit_attention_args {
  size_t struct_size;
  kjit_tensor q, k, v;
  kjit_tensor o;   /**< written                                                                                */
  kjit_tensor lse; /**< ln Σ exp(scale·q·k): (batch, heads_q, seq_q) fp32, seq_q contiguous; data NULL: not wanted */
  float scale;     /**< softmax scale, > 0 and finite; 0: 1/√head_dim                                          */
  uint32_t flags;  /**< KJIT_ATTENTION_CAUSAL or 0                                                             */
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
} kjit_attention_problem;

static inline kjit_attention_problem kjit_attention_problem_default(void) {
  kjit_attention_problem problem = KJIT_ZERO;
  problem.struct_size = sizeof problem;
  return problem;
}

/** One row of a family's field table, for bindings in other languages. */
typedef struct kjit_field_info {
  const char *name;  /**< as in the struct                                 */
  const char *kind;  /**< "dtype", "int", "bool" or "load"                 */
  const char *token; /**< feature name in the short form, "" if it has none */
  const char *text;  /**< one line of documentation                        */
  uint32_t offset;   /**< of the int32 in the struct, bytes                */
} kjit_field_info;

/** Print a config as one JSON object, fields in order. */
#define KJIT_PRINT_JSON 0x4u

/** Enough for what kjit_attention_describe() writes, with the NUL. */
#define KJIT_ATTENTION_TEXT_MAX 512

/**
 * Which kernel a problem gets: the family's name, a blank, and the config's text. attention_sm90 where it can compute
 * the problem, else flash_forward.
 * @param arch  "sm_90a", "sm_80", …; NULL: of the current context's device
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  no family computes this problem there; says why
 * @retval KJIT_ERR_INVALID_ARG  names the member of the problem, or capacity is below KJIT_ATTENTION_TEXT_MAX
 * @retval KJIT_ERR_NO_DRIVER    arch is NULL and there is no context
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_describe(kjit_runtime *runtime,
                                                            const kjit_attention_problem *problem, const char *arch,
                                                            char *text, size_t capacity, kjit_error *error);

/**
 * Compile (or find) the kernel that a problem gets on an architecture. No GPU needed.
 * @param flags  KJIT_BUILD_*
 * @retval those of kjit_attention_describe() and kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_build(kjit_runtime *runtime, const kjit_attention_problem *problem,
                                                         const char *arch, uint32_t flags, kjit_artifact **out,
                                                         kjit_error *error);

/**
 * Run attention forward with the kernel that kjit_attention_describe() names. Asynchronous; on the caller's stream, in
 * the current context. Everything is checked before anything is compiled or launched. The kernel is built and loaded
 * by the first call that needs it; so the first call of a kind must not be the one that is captured into a graph.
 *
 * @retval KJIT_OK               enqueued
 * @retval KJIT_ERR_INVALID_ARG  a tensor's rank, shape, stride, alignment, device or dtype; the message names it
 * @retval KJIT_ERR_UNSUPPORTED  no family computes it on the current device
 * @retval those of kjit_kernel_get() and kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_forward(kjit_runtime *runtime, const kjit_attention_args *args,
                                                           CUstream stream, kjit_error *error);

/**
 * The same, timed: waits for the kernel and returns the time between two events around it.
 * @param[out] milliseconds  set to 0 on failure
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_forward_timed(kjit_runtime *runtime, const kjit_attention_args *args,
                                                                 CUstream stream, float *milliseconds,
                                                                 kjit_error *error);

/** A checked call with everything looked up: running it is one launch. Thread-safe. */
typedef struct kjit_attention_plan kjit_attention_plan;

/**
 * Prepare a call for the current device. Also asks the driver whether each pointer is memory that this device can use.
 * @param[out] out  ended with kjit_attention_plan_destroy(), before the runtime
 * @retval those of kjit_attention_forward()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_plan_create(kjit_runtime *runtime, const kjit_attention_args *args,
                                                               kjit_attention_plan **out, kjit_error *error);

/**
 * One launch on the tensors that the plan was made with. The device that it was made on must be current. May be
 * captured into a graph.
 * @retval KJIT_OK, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_plan_run(const kjit_attention_plan *plan, CUstream stream,
                                                            kjit_error *error);

/** Ends a plan. Accepts NULL. */
KJIT_API void kjit_attention_plan_destroy(kjit_attention_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
