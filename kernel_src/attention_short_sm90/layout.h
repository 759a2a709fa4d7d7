/* Sizes from which the host computes a launch's memory and by which the attention_short_sm90 kernel lays it out. Read
 * by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SHORT_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_SHORT_SM90_LAYOUT_H

enum {
  SHORT_ROWS = 64,                /* query rows of a tile: M of wgmma */
  SHORT_GROUP_THREADS = 128,      /* threads of a consumer: a warpgroup */
  SHORT_PRODUCER_THREADS = 32,    /* of the producer: a warp, but with three consumers a warpgroup */
  SHORT_CONSUMERS_WITH_GROUP = 3, /* so many consumers get registers of the producer's by setmaxnreg */
  SHORT_PRODUCER_REGISTERS = 24,
  SHORT_CONSUMER_REGISTERS = 160, /* of a thread then: three times that and the producer's are at most 512 */
  SHORT_BAND_COLUMNS = 64,        /* columns of a band, 16 bits each, as which tiles lie in shared memory */
  SHORT_ROW_BYTES = 128,          /* bytes of a band's row, as the 128-byte swizzle needs */
  SHORT_ALIGNMENT = 1024,         /* bytes: the swizzle's pattern repeats; dynamic shared memory may start anywhere */
  SHORT_BARRIER_BYTES = 8         /* bytes of an mbarrier */
};

#endif
