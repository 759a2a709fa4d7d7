/**
 * @file
 * The family `flash_forward`: FlashAttention-2 forward with mma.sync for sm_80 and later, in 13 fields that say how.
 * What is computed besides (mask, grouped heads, head sizes) are a kernel's traits, taken from the problem.
 *
 * KJIT_FLASH_FORWARD_FIELDS is the one description of a config. The struct below, equality, order, hash, the kernel's
 * #define lines, the short form, JSON and the field list of kjit_flash_field() all come from it.
 */
#ifndef KJIT_FLASH_FORWARD_H
#define KJIT_FLASH_FORWARD_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * X(name, kind, token, text): the fields in their order.
 *   kind   DTYPE, INT, BOOL or LOAD (one of the three counts that the short form prints as load_Q_K_V_tiles)
 *   token  the feature name in the short form; "" for members of the tuple and of the load group
 * The kernel sees each as `#define KJIT_<name> <value>`.
 */
#define KJIT_FLASH_FORWARD_FIELDS(X)                                                                                   \
  X(dtype, DTYPE, "", "element type of q, k, v and o: FP16 (5) or BF16 (15)")                                          \
  X(d_head, INT, "", "the larger head size in whole 16s: a multiple of 16 from 32 to 256")                             \
  X(B_r, INT, "", "query rows per block: a multiple of 16 * n_warps up to 256")                                        \
  X(B_c, INT, "", "key rows per step: a multiple of 16 up to 256")                                                     \
  X(n_warps, INT, "", "warps per block: 1, 2, 4 or 8; each owns B_r / n_warps query rows")                             \
  X(async_copy, BOOL, "async", "global to shared by cp.async; off: through registers")                                 \
  X(eager_load_blocks, BOOL, "eager", "load V while K is in use and the next K while V is")                            \
  X(swizzled, BOOL, "swizzled", "XOR-swizzled shared memory: no bank conflicts")                                       \
  X(Q_mma_load_K_tiles, LOAD, "", "8-wide Q fragments loaded at a time along d_head; 0: all, once, kept")              \
  X(K_mma_load_K_tiles, LOAD, "", "8-wide K fragments loaded at a time along d_head; 0: all before the product")       \
  X(V_mma_load_K_tiles, LOAD, "", "8-wide V fragments loaded at a time along B_c; 0: all before the product")          \
  X(mma_double_buffer_loads, BOOL, "buffer", "load the next slice of fragments before multiplying this one")           \
  X(optimized_softmax, BOOL, "opt_softmax", "exp2 with the scale folded in, and a peeled first block")

/** One configuration. 52 bytes, no padding: compare with kjit_flash_config_compare(). */
typedef struct kjit_flash_config {
#define KJIT_FLASH_FORWARD_MEMBER(name, kind, token, text) int32_t name;
  KJIT_FLASH_FORWARD_FIELDS(KJIT_FLASH_FORWARD_MEMBER)
#undef KJIT_FLASH_FORWARD_MEMBER
} kjit_flash_config;

/**
 * X(name, kind, text): what a kernel computes, in their order; kind is BOOL or INT. The kernel sees each as
 * `#define KJIT_<name> <value>`, beside the fields.
 */
#define KJIT_FLASH_FORWARD_TRAITS(X)                                                                                   \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(grouped, BOOL, "several query heads share each of several key and value heads")                                    \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")

/**
 * What a kernel computes. It follows from a problem; nobody chooses it. 16 bytes, no padding. One key and value head
 * for all query heads is not `grouped`: a stride of 0 does it.
 */
typedef struct kjit_flash_traits {
#define KJIT_FLASH_FORWARD_MEMBER(name, kind, text) int32_t name;
  KJIT_FLASH_FORWARD_TRAITS(KJIT_FLASH_FORWARD_MEMBER)
#undef KJIT_FLASH_FORWARD_MEMBER
} kjit_flash_traits;

/**
 * One kernel of the family: how and what. config.d_head is the larger of the traits' head sizes in whole 16s, at least
 * 32. 68 bytes, no padding.
 */
typedef struct kjit_flash_variant {
  kjit_flash_config config;
  kjit_flash_traits traits;
} kjit_flash_variant;

/** A config's plain kernel, which is what its name alone stands for: no mask, no groups, both head sizes its d_head. */
static inline kjit_flash_variant kjit_flash_variant_plain(const kjit_flash_config *config) {
  kjit_flash_variant variant = {*config, {0, 0, config->d_head, config->d_head}};
  return variant;
}

/**
 * The family's fields in order.
 * @return row `index`, static storage; NULL past the end
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_field_info *kjit_flash_field(size_t index);

/** -1, 0 or 1: lexicographic in field order. Thread-safe. */
KJIT_API int kjit_flash_config_compare(const kjit_flash_config *a, const kjit_flash_config *b);

/** Hash over all fields; equal configs hash equal, in one version of the library. Thread-safe. */
KJIT_API uint64_t kjit_flash_config_hash(const kjit_flash_config *config);

/**
 * Read a config. Accepted: the short form `(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer`
 * (dtype by name in any case or by number; features in any order; load_…_tiles required), and the two demangled
 * spellings `FlashForwardKernelConfig{5, 128, …}` with 13 values, plain or with casts `(int)128`, `(bool)1`,
 * `(c10::ScalarType)5`. Anything unknown, repeated, missing or trailing is an error that says where.
 * The values are read, not judged: kjit_flash_config_check() does that.
 *
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        the message has the column (from 1) and the offending word
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_parse(const char *text, kjit_flash_config *out,
                                                            kjit_error *error);

#define KJIT_PRINT_NO_D_HEAD 0x1u /**< leave d_head out of the tuple; does not parse back   */
#define KJIT_PRINT_NO_TUPLE  0x2u /**< features only; does not parse back                   */

/** Enough for every config in every spelling, with the NUL. */
#define KJIT_FLASH_CONFIG_TEXT_MAX 512

/**
 * Write a config's short form (or JSON) with a NUL.
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small; KJIT_FLASH_CONFIG_TEXT_MAX never is
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_print(const kjit_flash_config *config, uint32_t flags, char *text,
                                                            size_t capacity, kjit_error *error);

/**
 * Check every rule of a config's plain kernel that does not need a device; with `arch`, also that architecture's shared
 * memory and features.
 * @param arch  "sm_80", … or NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  names the field, its value and the rule
 * @retval KJIT_ERR_UNSUPPORTED     arch is older than sm_80, unknown, or has too little shared memory
 * @retval KJIT_ERR_INVALID_ARG     config is NULL, or arch is not the name of an architecture
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_check(const kjit_flash_config *config, const char *arch,
                                                            kjit_error *error);

/**
 * The config whose machine code is the same and whose fields that mean nothing here are at their plain value.
 * Idempotent; equal code, equal canonical config, equal key. The config must pass the check.
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_flash_config kjit_flash_config_canonical(const kjit_flash_config *config);

/** Numbers that follow from a config. */
typedef struct kjit_flash_geometry {
  uint32_t threads;       /**< per block: 32 * n_warps                             */
  uint32_t shared_bytes;  /**< dynamic, per block: (B_r + 2 * B_c) * d_head * 2; for unequal head sizes, d and dv in
                               whole 16s: (B_r * max(d, dv) + B_c * (d + dv)) * 2  */
  uint32_t rows_per_warp; /**< B_r / n_warps                                       */
} kjit_flash_geometry;

/** Thread-safe. The config must pass the check. */
KJIT_API kjit_flash_geometry kjit_flash_config_geometry(const kjit_flash_config *config);

/**
 * Blocks of a kernel that fit one multiprocessor at once: the least of what registers, shared memory, threads and the
 * block limit allow, by the allocation granularities of the CUDA C++ Programming Guide's table of compute
 * capabilities.
 * @param registers  per thread, from kjit_artifact_info
 * @return 0 if it does not fit, or arch is unknown
 * @par Thread safety  Thread-safe.
 */
KJIT_API uint32_t kjit_flash_config_ctas_per_sm(const kjit_flash_config *config, uint32_t registers, const char *arch);

/**
 * The named sets of configs, sorted ("progression": in its own order): "progression" (7), "autotune" (80),
 * "prebuilt" (85), "progression_all" (56).
 * @param      name      the set
 * @param[out] configs   may be NULL to ask for the count
 * @param      capacity  of configs
 * @param[out] count     how many the set has
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no set of that name; the message lists them
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_set(const char *name, kjit_flash_config *configs, size_t capacity,
                                                          size_t *count, kjit_error *error);

/**
 * Compile (or find) the plain kernel of a config: check, canonicalise, kjit_build(). No GPU needed.
 * @param flags  KJIT_BUILD_*
 * @retval those of kjit_flash_config_check() and kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_build(kjit_runtime *runtime, const kjit_flash_config *config,
                                                     const char *arch, uint32_t flags, kjit_artifact **out,
                                                     kjit_error *error);

/**
 * The source that would be compiled for a config's plain kernel, prologue first. For people.
 * @param      arch  NULL: not checked against one
 * @param[out] text  NUL-terminated; freed with kjit_text_free()
 * @retval KJIT_OK, KJIT_ERR_NO_MEMORY, and those of kjit_flash_config_check()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_source(kjit_runtime *runtime, const kjit_flash_config *config,
                                                      const char *arch, char **text, kjit_error *error);

/**
 * The config used where none is given and both head sizes are head_dim: by dtype, head_dim, sequence lengths and
 * architecture, by rules written in docs/performance.md.
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  no config of this family fits, or arch as for kjit_flash_config_check()
 * @retval KJIT_ERR_INVALID_ARG  a length below 1, or arch is not the name of an architecture; out is then all zero
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_choose(int32_t dtype, int64_t seq_q, int64_t seq_kv,
                                                             int64_t head_dim, const char *arch, kjit_flash_config *out,
                                                             kjit_error *error);

/**
 * The kernel that a problem gets with this config.
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  the config does not fit the problem (dtype, head sizes), or breaks a rule with it
 * @retval KJIT_ERR_INVALID_ARG     names the member of the problem, or the argument that is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_of(const kjit_flash_config *config,
                                                          const kjit_attention_problem *problem,
                                                          kjit_flash_variant *out, kjit_error *error);

/**
 * The kernel that a problem gets where no config is given.
 * @retval those of kjit_flash_config_choose(), and KJIT_ERR_INVALID_ARG for a member of the problem
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_choose(const kjit_attention_problem *problem, const char *arch,
                                                              kjit_flash_variant *out, kjit_error *error);

/** -1, 0 or 1: lexicographic, the config's fields first. Thread-safe. */
KJIT_API int kjit_flash_variant_compare(const kjit_flash_variant *a, const kjit_flash_variant *b);

/** Hash over all fields and traits; equal variants hash equal, in one version of the library. Thread-safe. */
KJIT_API uint64_t kjit_flash_variant_hash(const kjit_flash_variant *variant);

/**
 * Read a kernel's name: a config as kjit_flash_config_parse() takes it, then, behind a blank, the traits that are not
 * plain, in any order: `(BF16, 192, 128, 48, 4): async+…+opt_softmax causal=1,grouped=1,head_dim=192,head_dim_v=128`.
 * Left out, head_dim is d_head and head_dim_v is head_dim. The values are read, not judged.
 *
 * @retval those of kjit_flash_config_parse()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_parse(const char *text, kjit_flash_variant *out,
                                                             kjit_error *error);

/** Enough for every variant in every spelling, with the NUL. */
#define KJIT_FLASH_VARIANT_TEXT_MAX 640

/**
 * Write a kernel's name, as a manifest has it, with a NUL: of a plain one the config's short form alone.
 * @param flags  KJIT_PRINT_JSON (fields and traits in one object) or 0
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small; KJIT_FLASH_VARIANT_TEXT_MAX never is
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_print(const kjit_flash_variant *variant, uint32_t flags,
                                                             char *text, size_t capacity, kjit_error *error);

/** As kjit_flash_config_check(), by the sizes that the kernel really has. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_check(const kjit_flash_variant *variant, const char *arch,
                                                             kjit_error *error);

/** As kjit_flash_config_canonical(). Thread-safe. */
KJIT_API kjit_flash_variant kjit_flash_variant_canonical(const kjit_flash_variant *variant);

/** Thread-safe. The variant must pass the check. */
KJIT_API kjit_flash_geometry kjit_flash_variant_geometry(const kjit_flash_variant *variant);

/** As kjit_flash_build(). Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_build(kjit_runtime *runtime, const kjit_flash_variant *variant,
                                                             const char *arch, uint32_t flags, kjit_artifact **out,
                                                             kjit_error *error);

/** As kjit_flash_source(). Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_variant_source(kjit_runtime *runtime, const kjit_flash_variant *variant,
                                                              const char *arch, char **text, kjit_error *error);

/**
 * Run attention forward with a config. Asynchronous; on the caller's stream, in the current context. Everything is
 * checked before anything is compiled or launched. Mask, groups and head sizes are the arguments': the kernel is that
 * of kjit_flash_variant_of(), built and loaded by the first call that needs it.
 *
 * @param config  NULL: kjit_flash_variant_choose()
 * @retval KJIT_OK                  enqueued
 * @retval KJIT_ERR_INVALID_ARG     a tensor's rank, shape, stride, alignment, device or dtype; the message names it
 * @retval KJIT_ERR_INVALID_CONFIG  the config breaks a rule, or does not fit the tensors (dtype, head sizes)
 * @retval KJIT_ERR_UNSUPPORTED     the current device cannot run it
 * @retval those of kjit_kernel_get() and kjit_kernel_launch()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_forward(kjit_runtime *runtime, const kjit_flash_config *config,
                                                       const kjit_attention_args *args, CUstream stream,
                                                       kjit_error *error);

/**
 * The same, timed: waits for the kernel and returns the time between two events around it.
 * @param[out] milliseconds  set to 0 on failure
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_forward_timed(kjit_runtime *runtime, const kjit_flash_config *config,
                                                             const kjit_attention_args *args, CUstream stream,
                                                             float *milliseconds, kjit_error *error);

/** A checked call with everything looked up: running it is one launch. Immutable, thread-safe. */
typedef struct kjit_flash_plan kjit_flash_plan;

/**
 * Prepare a call for the current device. Also asks the driver whether each pointer is memory that this device can use.
 * @param[out] out  ended with kjit_flash_plan_destroy(), before the runtime
 * @retval those of kjit_flash_forward()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_plan_create(kjit_runtime *runtime, const kjit_flash_config *config,
                                                           const kjit_attention_args *args, kjit_flash_plan **out,
                                                           kjit_error *error);

/**
 * One launch on the tensors that the plan was made with. The device that it was made on must be current.
 * @retval KJIT_OK, KJIT_ERR_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_plan_run(const kjit_flash_plan *plan, CUstream stream,
                                                        kjit_error *error);

/** Ends a plan. Accepts NULL. */
KJIT_API void kjit_flash_plan_destroy(kjit_flash_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
