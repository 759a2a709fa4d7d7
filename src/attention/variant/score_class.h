/* What a score function is made of, and its derivative. */
#ifndef KJIT_ATTENTION_VARIANT_SCORE_CLASS_H
#define KJIT_ATTENTION_VARIANT_SCORE_CLASS_H

#include "attention/variant/variant.h"

/* Splits where(c, x, -inf), also as an addend, into x and the condition c, which is and-ed to *mask (VARIANT_NONE:
 * every key is seen). */
void variant_split_mask(struct variant_tree *tree, variant_node_index *score, variant_node_index *mask);

/* Adds the slope and the term of an affine score to the tree. */
void variant_classify_score(struct variant_tree *tree, variant_node_index score, struct variant_score_class *out);

/* d score / d x, by the usual rules; steps have 0, an extreme that of the side taken. x is s, or a load of a real
 * number. VARIANT_NONE: too large. */
variant_node_index variant_derive(struct variant_tree *tree, variant_node_index score, variant_node_index by);

/* Finds the loads of real numbers that the score depends on and derives it by each: variant->gradients. False: out of
 * memory. */
bool variant_find_gradients(kjit_attention_variant *variant);
void variant_release_gradients(kjit_attention_variant *variant);

#endif
