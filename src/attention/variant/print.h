/* Prints a variant: its canonical text, and the header that kernels include. Nothing of the user's text is in either.
 */
#ifndef KJIT_ATTENTION_VARIANT_PRINT_H
#define KJIT_ATTENTION_VARIANT_PRINT_H

#include "attention/variant/variant.h"
#include "base/text.h"

/* The score and the mask in the language, which can be parsed again: scalars are s0, s1, …, tensors t0, t1, …, values
 * that are used twice n0, n1, …. Two lines. */
void variant_print_canonical(const kjit_attention_variant *variant, struct text *out);

/* What else decides the kernel: the types of scalars, the dtypes and ranks of tensors. One line. */
void variant_print_types(const kjit_attention_variant *variant, struct text *out);

/* VARIANT_HEADER_NAME:
 *   #define KJIT_VARIANT_SCORE 0|1, KJIT_VARIANT_AFFINE 0|1, KJIT_VARIANT_CORE 0|1, KJIT_VARIANT_LINEAR 0..2
 *   #define KJIT_VARIANT_PEAK 0|1
 *   #define KJIT_VARIANT_TILE 0|1, with it KJIT_VARIANT_TILE_TENSOR 0..7, KJIT_VARIANT_TILE_AXES 1..4, and
 *                                                          KJIT_VARIANT_TILE_ROWS -1..2, the axis whose index is q
 *   #define KJIT_VARIANT_MASK 0|1, KJIT_VARIANT_INTERVALS 0..4
 *   float kjit_variant_score(a, s, b, h, q, k); float kjit_variant_score_grad(a, s, b, h, q, k);
 *   float kjit_variant_slope(a, b, h, q); float kjit_variant_term(a, b, h, q, k);    with AFFINE, with CORE
 *   float kjit_variant_inner(a, b, h, q); float kjit_variant_core(x);                with CORE
 *   float kjit_variant_term_step(a, b, h, q);     with LINEAR 1; 2: the term is the same for all keys of a row
 *   const char *kjit_variant_tile_row(a, b, h, q); void kjit_variant_tile_pair(pair, &low, &high);    with TILE: where
 *                                                          a row's terms begin, and the terms in 32 bits of them
 *   void kjit_variant_tile_axes(a, b, h, q, &axes);    with TILE_ROWS of 0 and more: the indices in front of k
 *   #define KJIT_VARIANT_GRADIENTS 1..16    where the score reads real numbers from tensors; with it, for each such
 * load template <> struct kjit_variant_gradient<0 .. 15> { enum { tensor, along_q, along_k }; static float at(a,
 * gradient of the tensor, s, b, h, q, k, &element); };    d score / d element bool  kjit_variant_mask(a, b, h, q, k);
 *   void  kjit_variant_interval(a, which, b, h, q, &lo, &hi);
 *   int   kjit_variant_block(a, b, h, q0, q1, k0, k1);    and its parts, of which the first two can be computed once:
 *   kjit_variant_queries kjit_variant_block_queries(a, b, h, q0, q1);
 *   kjit_variant_keys kjit_variant_block_keys(a, b, h, k0, k1);
 *   int   kjit_variant_block_meeting(a, queries, keys, b, h, q0, q1, k0, k1);
 * Real numbers are kjit_real, which is float in kernels. */
void variant_print_header(const kjit_attention_variant *variant, struct text *out);

/* kjit_variant_block() of it. */
void variant_print_block(const kjit_attention_variant *variant, struct text *out);

/* kjit_variant_gradient of it, or nothing. */
void variant_print_gradients(const kjit_attention_variant *variant, struct text *out);

/* One line for each node of a program: "  const <type> n<index> = ...;". */
void variant_print_body(const kjit_attention_variant *variant, const struct variant_program *program, struct text *out);

/* The name of an element type, as in kjit_load_<name>(). */
const char *variant_dtype_name(int32_t dtype);

#endif
