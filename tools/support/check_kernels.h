/* The CUDA kernels that check others: compiled from tools/support/reference through kjit's own public API, as a user's
 * kernels would be. */
#ifndef KJIT_TOOLS_SUPPORT_CHECK_KERNELS_H
#define KJIT_TOOLS_SUPPORT_CHECK_KERNELS_H

#include "support/card.h"
#include "support/reference/params.h"

struct check_kernels {
  kjit_runtime *runtime;
  const struct card *card;
  kjit_kernel *reference64;  /* attention in float64                      */
  kjit_kernel *reference16;  /* attention as eager PyTorch computes it    */
  kjit_kernel *compare;      /* compares an output with both              */
  kjit_kernel *fill;         /* fills inputs with random numbers          */
  kjit_kernel *census;       /* counts the words that still hold a pattern */
  struct card_buffer result; /* of compare and census; on card->stream   */
};

/* The card's context must be current. Runtime and card are borrowed and must outlive this. */
kjit_status check_kernels_create(struct check_kernels *kernels, kjit_runtime *runtime, const struct card *card,
                                 kjit_error *error);
void check_kernels_destroy(struct check_kernels *kernels); /* accepts a zeroed one */

/* These two enqueue on the card's stream and do not wait. */
kjit_status check_fill_normal(const struct check_kernels *kernels, const struct fill_normal_params *params,
                              kjit_error *error);
kjit_status check_reference(const struct check_kernels *kernels, kjit_kernel *variant, int64_t batch,
                            const struct attention_reference_params *params, kjit_error *error);

/* These wait for their result. */
kjit_status check_compare(const struct check_kernels *kernels, struct attention_compare_params params,
                          struct attention_compare_result *result, kjit_error *error);
kjit_status check_census(const struct check_kernels *kernels, struct card_buffer memory, int word_bytes,
                         struct census_result *result, kjit_error *error);

#endif
