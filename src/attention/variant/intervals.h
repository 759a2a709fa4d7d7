/* Row intervals: the keys that a row sees as at most four ranges lo <= k < hi, whose bounds do not depend on k. */
#ifndef KJIT_ATTENTION_VARIANT_INTERVALS_H
#define KJIT_ATTENTION_VARIANT_INTERVALS_H

#include "attention/variant/variant.h"

/* Adds the bounds to the tree. count is 0 where the mask has a part of which the keys cannot be told this way. Sums
 * with k in them are taken not to wrap. */
void variant_derive_intervals(struct variant_tree *tree, variant_node_index mask, struct variant_row_intervals *out);

#endif
