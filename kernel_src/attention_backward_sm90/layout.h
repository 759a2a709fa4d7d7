/* Numbers of the layout of shared memory that both compilers need. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_LAYOUT_H

#define BACKWARD_SM90_GROUP_ROWS    64   /* rows of a consumer warpgroup: M of wgmma          */
#define BACKWARD_SM90_GROUP_THREADS 128  /* threads of a warpgroup                            */
#define BACKWARD_SM90_BAND_COLUMNS  64   /* columns of a band: 128 bytes, the swizzle's width */
#define BACKWARD_SM90_ROW_BYTES     128  /* of a band                                         */
#define BACKWARD_SM90_BARRIER_BYTES 8    /* of an mbarrier                                    */
#define BACKWARD_SM90_ALIGNMENT     1024 /* of the swizzle's pattern                          */
#define BACKWARD_SM90_QUERY_BYTES   8    /* LSE and delta of a query                          */
#define BACKWARD_SM90_TILE_BARRIERS 13   /* of a persistent block, and places of its tiles    */

/* Passes besides the sums of gradients (FLASH_BACKWARD_*): the three kernels of five products a pair of tiles. */
#define BACKWARD_SM90_SUM   7  /* dk and dv; dq is summed in global memory */
#define BACKWARD_SM90_BEGIN 8  /* delta, and zeros where dq will be summed */
#define BACKWARD_SM90_END   16 /* dq from its sums                         */

/* Columns of dq that one of the two consumers of BACKWARD_SM90_SUM multiplies, and bytes of the sums of 64 queries. */
#define BACKWARD_SM90_DQ_COLUMNS(head_dim, tile)                                                                       \
  ((tile) == 128 ? (head_dim) : (head_dim) <= 64 ? (head_dim) / 2 : (head_dim) <= 128 ? 64 : 128)
#define BACKWARD_SM90_SUM_BYTES(head_dim, tile)                                                                        \
  (64 * 4 * BACKWARD_SM90_DQ_COLUMNS(head_dim, tile) * ((tile) == 128 ? 1 : 2))

#endif
