/**
 * @file
 * The family `flash_forward`: FlashAttention-2 forward with mma.sync for sm_80 and later, in 13 fields that say how.
 * What is computed besides (mask, grouped heads, head sizes) are a kernel's traits, which follow from the problem.
 *
 * KJIT_FLASH_FORWARD_FIELDS is the one description of a config. The struct below, order, the kernel's #define lines,
 * the short form, JSON and the first 13 fields of kjit_family_find("flash_forward") all come from it. The family has
 * four fields more, KJIT_FLASH_FORWARD_TRAITS. kjit_config_of_flash() makes a kjit_config of the 13, with which
 * kjit/family.h checks, prints and builds, and kjit_attention_forward() runs.
 *
 * The text of the family's kjit_config is the 13 fields' short form and, behind a blank, the traits that are not plain:
 * `(BF16, 192, 128, 48, 4): async+...+opt_softmax causal=1,grouped=1,head_dim=192,head_dim_v=128`. Left out, head_dim
 * is d_head and head_dim_v is head_dim.
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

/** One configuration. 52 bytes, no padding; kjit_config.values begin with it. */
typedef struct kjit_flash_config {
#define KJIT_FLASH_FORWARD_MEMBER(name, kind, token, text) int32_t name;
  KJIT_FLASH_FORWARD_FIELDS(KJIT_FLASH_FORWARD_MEMBER)
#undef KJIT_FLASH_FORWARD_MEMBER
} kjit_flash_config;

/**
 * X(name, kind, text): what a kernel computes, the family's fields behind the 13, in their order; kind is BOOL or INT.
 * They follow from a problem; nobody chooses them. One key and value head for all query heads is not `grouped`.
 */
#define KJIT_FLASH_FORWARD_TRAITS(X)                                                                                   \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(grouped, BOOL, "several query heads share each of several key and value heads")                                    \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")

/**
 * Read a config. Accepted: the short form `(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer`
 * (dtype by name in any case or by number; features in any order; load_…_tiles required), and the two demangled
 * spellings `FlashForwardKernelConfig{5, 128, …}` with 13 values, plain or with casts `(int)128`, `(bool)1`,
 * `(c10::ScalarType)5`. Anything unknown, repeated, missing or trailing is an error that says where.
 * Values are read; rules are checked by kjit_config_check().
 *
 * @param      text  one line, NUL-terminated
 * @param[out] out   on failure all its values are 0
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
 * Write a config's short form, or JSON.
 * @param      config    the config
 * @param      flags     KJIT_PRINT_*, or 0
 * @param[out] text      the text, NUL-terminated
 * @param      capacity  room in text, in bytes
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small; KJIT_FLASH_CONFIG_TEXT_MAX never is
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_flash_config_print(const kjit_flash_config *config, uint32_t flags, char *text,
                                                            size_t capacity, kjit_error *error);

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
 * Make the family's config of these 13 fields, which kjit/family.h and kjit_attention_forward() take.
 * @param      config   the 13 fields
 * @param      problem  NULL: the plain kernel, with no mask, no groups and both head sizes d_head; it is not checked.
 *                      Else the kernel that this problem gets with the config.
 * @param[out] out      on failure its values are all 0
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  the config does not fit the problem (dtype, head sizes), or breaks a rule with it
 * @retval KJIT_ERR_INVALID_ARG     names the member of the problem, or the argument that is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_of_flash(const kjit_flash_config *config,
                                                         const kjit_attention_problem *problem, kjit_config *out,
                                                         kjit_error *error);

/**
 * The plain kernel of a config: no mask, no groups, both head sizes d_head.
 * @param config  must not be NULL
 * @par Thread safety  Thread-safe.
 */
static inline kjit_config kjit_flash_config_plain(const kjit_flash_config *config) {
  kjit_config plain = KJIT_ZERO;
  const kjit_status status = kjit_config_of_flash(config, NULL, &plain, NULL);
  (void)status; /* only a NULL argument fails */
  return plain;
}

#ifdef __cplusplus
}
#endif
#endif
