/**
 * @file
 * Attention variants: a score function and a mask, given as text at run time and compiled into the attention kernels.
 *
 *     softmax(score(scale · q·k, b, h, q, k), over the keys with mask(b, h, q, k)) · v
 *
 * docs/variants.md is the manual of the language. A text is parsed and never pasted: what is compiled is printed from
 * the expression tree. Numbers in a text are parameters of the launch, so that another window, cap or slope is the same
 * kernel; only divisors, counts of shifts, bit masks and -1, 0, 1, 2 are part of the code.
 *
 *     kjit_variant_scalar window = {"window", KJIT_VARIANT_INT32};
 *     kjit_attention_variant_text text = kjit_attention_variant_text_default();
 *     text.mask = "q - k <= window and q >= k";
 *     text.scalars = &window;
 *     text.scalar_count = 1;
 *     kjit_attention_variant *variant;
 *     kjit_attention_variant_create(&variant, &text, &error);
 */
#ifndef KJIT_ATTENTION_VARIANT_H
#define KJIT_ATTENTION_VARIANT_H

#include <kjit/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most scalars that a variant declares; numbers in its text share them. */
#define KJIT_VARIANT_SCALAR_COUNT_MAX 32
/** The most tensors that a variant declares. */
#define KJIT_VARIANT_TENSOR_COUNT_MAX 8

/** How the value of a scalar is read. */
typedef enum kjit_variant_kind {
  KJIT_VARIANT_INT32 = 1, /**< an int32                              */
  KJIT_VARIANT_FP32 = 2   /**< a float; its bits stand in the int32  */
} kjit_variant_kind;

/** A number that a call gives. */
typedef struct kjit_variant_scalar {
  const char *name; /**< a C identifier that is no word of the language */
  int32_t kind;     /**< a ::kjit_variant_kind                          */
} kjit_variant_scalar;

/** A tensor that a call gives. */
typedef struct kjit_variant_tensor {
  const char *name; /**< a C identifier that is no word of the language */
  int32_t dtype;    /**< PyTorch's ScalarType: uint8 0, int8 1, int16 2, int32 3, int64 4 (of which the low 32 bits are
                         used), fp16 5, fp32 6, fp64 7, bool 11, bf16 15                                              */
  uint32_t rank; /**< number of indices, 0 to 4                                                                     */
} kjit_variant_tensor;

/** The text of a variant. Borrowed by kjit_attention_variant_create() for the call. */
typedef struct kjit_attention_variant_text {
  size_t struct_size;
  const char *score; /**< a number for each (score, b, h, q, k); NULL: score, the scaled product itself      */
  const char *mask;  /**< a condition for each (b, h, q, k), true where the key is seen; NULL: every key is  */
  const kjit_variant_scalar *scalars; /**< `scalar_count`, at most KJIT_VARIANT_SCALAR_COUNT_MAX             */
  size_t scalar_count;
  const kjit_variant_tensor *tensors; /**< `tensor_count`, at most KJIT_VARIANT_TENSOR_COUNT_MAX             */
  size_t tensor_count;
  const char *file; /**< where the text stands, for messages; NULL: they have line and column of the text     */
  uint32_t line;    /**< of `file`, from 1                                                                   */
} kjit_attention_variant_text;

static inline kjit_attention_variant_text kjit_attention_variant_text_default(void) {
  kjit_attention_variant_text text = KJIT_ZERO;
  text.struct_size = sizeof text;
  return text;
}

/** A checked variant. Immutable, thread-safe, reference-counted. */
typedef struct kjit_attention_variant kjit_attention_variant;

/**
 * Read a variant.
 * @param[out] out   ended with kjit_attention_variant_free(); NULL on failure
 * @param      text  the text, its scalars and tensors
 * @param[out] error may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        "<file>:<line>:<column>: score|mask: …", and what to write instead; also for more than
 *                               1,000 operations
 * @retval KJIT_ERR_INVALID_ARG  an argument, or a declared name, kind, dtype or rank, which the message names
 * @retval KJIT_ERR_UNSUPPORTED  the struct is newer than this library, and says more
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_variant_create(kjit_attention_variant **out,
                                                                  const kjit_attention_variant_text *text,
                                                                  kjit_error *error);

/**
 * End a variant. Calls that were enqueued with it may still run.
 * @param variant  may be NULL
 * @par Thread safety  Thread-safe for other variants; nobody else may be using this one.
 */
KJIT_API void kjit_attention_variant_free(kjit_attention_variant *variant);

/** kjit_variant_info.terms: what a score adds to its function of s. */
typedef enum kjit_variant_term {
  KJIT_VARIANT_TERM_ROW = 1,      /**< the same for all keys of a row: only the LSE has it        */
  KJIT_VARIANT_TERM_KEY = 2,      /**< depends on the key                                         */
  KJIT_VARIANT_TERM_DISTANCE = 4, /**< depends on q - k                                           */
  KJIT_VARIANT_TERM_TILE = 8,     /**< tensors at [.., q, k]                                      */
  KJIT_VARIANT_TERM_GATHER = 16,  /**< tensors at other places that depend on q and k             */
  KJIT_VARIANT_TERM_OTHER = 32    /**< another function of q and k, or of s and one of them       */
} kjit_variant_term;

/** What was found out about a variant. */
typedef struct kjit_variant_info {
  size_t struct_size;
  uint32_t has_score;     /**< 1: the score is changed                                                              */
  uint32_t has_mask;      /**< 1: some keys are not seen; where(c, s, -inf) in a score counts                       */
  uint32_t affine;        /**< 1: score = s · slope(b, h, q) + term(b, h, q, k)                                     */
  uint32_t pointwise;     /**< 1: what is not a term is a function of s, b and h                                    */
  uint32_t terms;         /**< KJIT_VARIANT_TERM_*                                                                  */
  uint32_t intervals;     /**< 1 to 4: each row sees the keys of as many ranges, and blocks follow from their bounds;
                               0: blocks are found by evaluating the mask on ranges                                 */
  uint32_t operations;    /**< operations of both functions, equal ones counted once                                */
  uint32_t literal_count; /**< numbers of the text that are parameters of the launch                                */
  char digest[65];        /**< 64 hex digits and NUL: equal digests are one kernel                                  */
} kjit_variant_info;

/**
 * What was found out about a variant.
 * @param      variant  a variant
 * @param[out] info     its struct_size is set by the caller
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_variant_get_info(const kjit_attention_variant *variant,
                                                                    kjit_variant_info *info, kjit_error *error);

/**
 * The same for people: the canonical text, the classes, how blocks are found, the digest, the numbers that are
 * parameters.
 * @param      variant   a variant
 * @param[out] text      several lines, NUL-terminated; may be NULL when capacity is 0
 * @param      capacity  of `text`, in bytes, with the NUL
 * @param[out] needed    the size of the whole text with its NUL; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small: as much as fits was written; or variant is NULL
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_variant_explain(const kjit_attention_variant *variant, char *text,
                                                                   size_t capacity, size_t *needed, kjit_error *error);

/**
 * Print the header that kernels of a variant include: its functions as CUDA C++.
 * @param      variant   a variant
 * @param[out] text      NUL-terminated; may be NULL when capacity is 0
 * @param      capacity  of `text`, in bytes, with the NUL
 * @param[out] needed    the size of the whole text with its NUL; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  capacity is too small: as much as fits was written; or variant is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_variant_print_kernel(const kjit_attention_variant *variant,
                                                                        char *text, size_t capacity, size_t *needed,
                                                                        kjit_error *error);

/** One evaluation of a variant on the host. */
typedef struct kjit_variant_evaluation {
  size_t struct_size;
  int32_t seq_q, seq_kv;        /**< at least 1                                                         */
  int32_t heads_q, heads_kv;    /**< at least 1; 0 is read as 1                                         */
  const int32_t *scalar_values; /**< one for each declared scalar, floats by their bits              */
  const kjit_tensor *tensors;   /**< one for each declared tensor, in host memory                    */
  double score;                 /**< the scaled product                                              */
  int32_t b, h, q, k;           /**< batch, query head, query, key                                   */
  double new_score;             /**< written: the score function's, in double precision              */
  double score_grad;            /**< written: its derivative by the score                            */
  int32_t seen;                 /**< written: 1 where the mask is true                               */
} kjit_variant_evaluation;

/**
 * Evaluate both functions at one place, as the kernels do, but with real numbers in double precision. An index beyond
 * its axis is clamped into it.
 * @param         variant     a variant
 * @param[in,out] evaluation  the place and what is read there; new_score, score_grad and seen are written
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  a size, or a tensor's rank, dtype, size or memory, which the message names
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_attention_variant_evaluate(const kjit_attention_variant *variant,
                                                                    kjit_variant_evaluation *evaluation,
                                                                    kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
