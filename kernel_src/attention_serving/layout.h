/* What config.cuh and the host agree on about a block's memory, beside the sizes of tiles. Read by both compilers. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SERVING_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_SERVING_LAYOUT_H

/* With K and V of 8 bits, head_dim + 2 * head_dim_v up to which Q lies in registers: a thread has head_dim / 4 of them
 * for its A operands and head_dim_v / 2 for O, here 144 together. Beyond it ptxas spills them in the loop over keys. */
enum { SERVING_NARROW_REGISTER_COLUMNS = 576 };

#endif
