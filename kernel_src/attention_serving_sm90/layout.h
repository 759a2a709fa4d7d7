/* Numbers of the layout of shared memory that the host's geometry and the kernel share. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_LAYOUT_H

enum {
  SERVING_SM90_WORKERS = 128,      /* one warpgroup, which multiplies                              */
  SERVING_SM90_THREADS = 160,      /* and the warp that loads                                      */
  SERVING_SM90_M = 64,             /* rows of wgmma's A operand and accumulators                   */
  SERVING_SM90_BAND_COLUMNS = 64,  /* columns of a band: 128 bytes, the widest swizzle             */
  SERVING_SM90_ROW_BYTES = 128,    /* bytes of a band's row                                        */
  SERVING_SM90_ALIGNMENT = 1024,   /* of the start of shared memory: the pattern of the swizzle    */
  SERVING_SM90_BARRIER_BYTES = 8,  /* of an mbarrier                                               */
  SERVING_SM90_SCRATCH_BYTES = 24, /* of each worker for adding up partial results                 */
  SERVING_SM90_MERGE_COUNTERS = 4, /* counters of a tile in several runs (slice_merge.cuh)         */
  SERVING_SM90_JOBS = 4,           /* that the producer may be ahead of the workers                */
  SERVING_SM90_JOB_BYTES = 112,    /* of a job's description                                       */
  SERVING_SM90_JOB_SLOTS = 5,      /* those, and one of zeros                                      */
  SERVING_SM90_FEW_TILES = 4       /* tiles are few that have so many blocks of threads each       */
};

/* Bytes of a row of K or V, of so many bytes of columns, in a band of shared memory. With 8 bits an element half a row
 * is enough for heads of up to 64 columns. */
#define SERVING_SM90_CACHE_ROW_BYTES(columns_bytes, is_narrow)                                                         \
  ((is_narrow) && (columns_bytes) <= SERVING_SM90_ROW_BYTES / 2 ? SERVING_SM90_ROW_BYTES / 2 : SERVING_SM90_ROW_BYTES)

/* Threads of a kernel with one_part that multiply: a warpgroup for each 64 rows of a tile. With two, and where loading
 * is apart from that, there is a further one that loads. */
#define SERVING_SM90_ONE_PART_WORKERS(rows)        ((rows) > 64 ? 256 : 128)
#define SERVING_SM90_ONE_PART_THREADS(rows, apart) ((rows) > 64 ? 384 : (apart) ? 256 : 128)

#endif
