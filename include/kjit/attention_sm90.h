/**
 * @file
 * The family `attention_sm90`: attention forward for Hopper by TMA and wgmma, in 13 fields. sm_90a alone.
 *
 * KJIT_ATTENTION_SM90_FIELDS is the one description of a config. The struct below, equality, order, hash, the kernel's
 * #define lines, the text form, JSON and the field list of kjit_attention_sm90_field() all come from it.
 *
 * kjit_attention_forward() uses this family by itself; what is here is for choosing the config by hand.
 */
#ifndef KJIT_ATTENTION_SM90_H
#define KJIT_ATTENTION_SM90_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * X(name, kind, text): the fields in their order; kind is DTYPE, INT or BOOL. The kernel sees each as
 * `#define KJIT_<name> <value>`.
 */
#define KJIT_ATTENTION_SM90_FIELDS(X)                                                                                  \
  X(dtype, DTYPE, "element type of q, k, v and o: FP16 (5) or BF16 (15)")                                              \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(consumers, INT, "warpgroups that compute, 1 to 3; each owns 64 query rows of a tile")                              \
  X(tile_n, INT, "key rows per step: a multiple of 16 from 16 to 256")                                                 \
  X(stages, INT, "tiles of K and of V in shared memory: 2 to 4")                                                       \
  X(q_buffers, INT, "tiles of Q in shared memory: 1, or 2 to overlap a tile's end with the next one's start")          \
  X(o_chunks, INT,                                                                                                     \
    "with q_buffers 1: 64-column chunks of O with shared memory of their own, 0 to 4; overlaps likewise")              \
  X(ping_pong, BOOL, "consumers take turns: one's products run under another's softmax")                               \
  X(rescale_slack, INT,                                                                                                \
    "log2 of a sum of probabilities that leaves the output unscaled: 1 to 15; 0: follow the maximum")                  \
  X(packed, INT, "query heads that share a key head and lie in one tile's rows: a power of two from 1 to 64")          \
  X(split, BOOL, "the key blocks of a tile may be shared out among several blocks")

/** One configuration. 52 bytes, no padding: compare with kjit_attention_sm90_config_compare(). */
typedef struct kjit_attention_sm90_config {
#define KJIT_ATTENTION_SM90_MEMBER(name, kind, text) int32_t name;
  KJIT_ATTENTION_SM90_FIELDS(KJIT_ATTENTION_SM90_MEMBER)
#undef KJIT_ATTENTION_SM90_MEMBER
} kjit_attention_sm90_config;

/**
 * The family's fields in order.
 * @return row `index`, static storage; NULL past the end
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_field_info *kjit_attention_sm90_field(size_t index);

/** -1, 0 or 1: lexicographic in field order. Thread-safe. */
KJIT_API int kjit_attention_sm90_config_compare(const kjit_attention_sm90_config *a,
                                                const kjit_attention_sm90_config *b);

/** Hash over all fields; equal configs hash equal, in one version of the library. Thread-safe. */
KJIT_API uint64_t kjit_attention_sm90_config_hash(const kjit_attention_sm90_config *config);

/**
 * Read a config: `dtype=bf16,head_dim=128,head_dim_v=128,causal=0,consumers=2,tile_n=128,stages=2,q_buffers=2,
 * o_chunks=0,ping_pong=1,rescale_slack=15,packed=1,split=0` on one line. Every field once, in any order; blanks may
 * stand around each word; a dtype is a name in any case or a number. Anything unknown, repeated, missing or trailing is
 * an error that says where. The values are read, not judged: kjit_attention_sm90_config_check() does that.
 *
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        the message has the column (from 1) and the offending word
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_config_parse(const char *text, kjit_attention_sm90_config *out,
                                                                     kjit_error *error);

/** Enough for every config in either spelling, with the NUL. */
#define KJIT_ATTENTION_SM90_TEXT_MAX 384

/**
 * Write a config's text form, fields in order and without blanks, with a NUL.
 * @param flags  KJIT_PRINT_JSON or 0
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small; KJIT_ATTENTION_SM90_TEXT_MAX never is
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_config_print(const kjit_attention_sm90_config *config,
                                                                     uint32_t flags, char *text, size_t capacity,
                                                                     kjit_error *error);

/**
 * Check every rule: values, registers of a consumer thread, shared memory of a block.
 * @param arch  "sm_90a", the only one that passes; NULL: not looked at
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  names the field, its value and the rule
 * @retval KJIT_ERR_UNSUPPORTED     arch is not sm_90a
 * @retval KJIT_ERR_INVALID_ARG     config is NULL, or arch is not the name of an architecture
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_config_check(const kjit_attention_sm90_config *config,
                                                                     const char *arch, kjit_error *error);

/**
 * The config whose machine code is the same and whose fields that mean nothing here are at their plain value.
 * Idempotent. The config must pass the check.
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_attention_sm90_config kjit_attention_sm90_config_canonical(const kjit_attention_sm90_config *config);

/** Numbers that follow from a config. */
typedef struct kjit_attention_sm90_geometry {
  uint32_t threads;      /**< per block: 128 * (consumers + 1)                        */
  uint32_t tile_m;       /**< rows of a tile: 64 * consumers                          */
  uint32_t shared_bytes; /**< dynamic, per block, with room to align it to 1024 bytes */
  uint32_t registers;    /**< that a consumer thread holds O, S and P in              */
  uint32_t positions;    /**< of the query sequence, in a tile: tile_m / packed       */
} kjit_attention_sm90_geometry;

/** Thread-safe. The config must pass the check. */
KJIT_API kjit_attention_sm90_geometry kjit_attention_sm90_config_geometry(const kjit_attention_sm90_config *config);

/**
 * The config that kjit_attention_forward() uses: by rules written in docs/attention.md, on a card with
 * `multiprocessors` of them. The same for the same arguments, always.
 * @param multiprocessors  0: those of an H200
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  the family does not compute this problem; says why
 * @retval KJIT_ERR_INVALID_ARG  names the member of the problem
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_choose(const kjit_attention_problem *problem,
                                                               uint32_t multiprocessors,
                                                               kjit_attention_sm90_config *out, kjit_error *error);

/**
 * Compile (or find) the kernel of a config for sm_90a: check, canonicalise, kjit_build(). No GPU needed.
 * @param flags  KJIT_BUILD_*
 * @retval those of kjit_attention_sm90_config_check() and kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_build(kjit_runtime *runtime,
                                                              const kjit_attention_sm90_config *config, uint32_t flags,
                                                              kjit_artifact **out, kjit_error *error);

/**
 * The source that would be compiled for a config, prologue first. For people.
 * @param[out] text  NUL-terminated; freed with kjit_text_free()
 * @retval KJIT_OK, KJIT_ERR_INVALID_CONFIG, KJIT_ERR_UNSUPPORTED, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_source(kjit_runtime *runtime,
                                                               const kjit_attention_sm90_config *config, char **text,
                                                               kjit_error *error);

/**
 * kjit_attention_forward() with a config.
 * @retval KJIT_ERR_INVALID_CONFIG  the config breaks a rule, or does not fit the tensors (dtype, head sizes, causal)
 * @retval KJIT_ERR_UNSUPPORTED     the current device is not sm_90, or the problem is too large
 * @retval those of kjit_attention_forward()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_forward(kjit_runtime *runtime,
                                                                const kjit_attention_sm90_config *config,
                                                                const kjit_attention_args *args, CUstream stream,
                                                                kjit_error *error);

/** kjit_attention_forward_timed() with a config. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_forward_timed(kjit_runtime *runtime,
                                                                      const kjit_attention_sm90_config *config,
                                                                      const kjit_attention_args *args, CUstream stream,
                                                                      float *milliseconds, kjit_error *error);

/** kjit_attention_plan_create() with a config. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_sm90_plan_create(kjit_runtime *runtime,
                                                                    const kjit_attention_sm90_config *config,
                                                                    const kjit_attention_args *args,
                                                                    kjit_attention_plan **out, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
