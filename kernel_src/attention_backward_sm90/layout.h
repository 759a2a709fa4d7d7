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

#endif
