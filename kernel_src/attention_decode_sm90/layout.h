/* Numbers of the layout of shared memory that the host's geometry and the kernel share. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_DECODE_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_DECODE_SM90_LAYOUT_H

enum {
  DECODE_THREADS = 128,           /* one warpgroup                                                */
  DECODE_M = 64,                  /* rows of wgmma's A operand and accumulators                   */
  DECODE_BAND_COLUMNS = 64,       /* columns of a band: 128 bytes, the widest swizzle             */
  DECODE_ROW_BYTES = 128,         /* bytes of a band's row                                        */
  DECODE_ALIGNMENT = 1024,        /* of the start of shared memory: the pattern of the swizzle    */
  DECODE_BARRIER_BYTES = 8,       /* of an mbarrier                                               */
  DECODE_REGISTER_HEAD_DIM = 128, /* up to this head_dim Q lies in registers                      */
  DECODE_SCRATCH_FLOATS = 6,      /* floats of each thread for adding up partial results          */
  DECODE_MERGE_COUNTERS = 4       /* counters of a tile that lies in several runs (merge.cuh)     */
};

#endif
