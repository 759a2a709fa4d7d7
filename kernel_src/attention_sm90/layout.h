/* Sizes by which the host reckons a launch's memory and the attention_sm90 kernel lays it out: one truth for both. Read
 * by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_SM90_LAYOUT_H

enum {
  SM90_GROUP_ROWS = 64,     /* query rows of a consumer warpgroup: wgmma's M                                  */
  SM90_GROUP_THREADS = 128, /* of a warpgroup                                                                 */
  SM90_CHUNK_COLUMNS = 64,  /* of 16 bits: a tile lies in shared memory as chunks of so many columns          */
  SM90_ROW_BYTES = 128,     /* of a chunk, as the 128-byte swizzle needs                                      */
  SM90_ALIGNMENT = 1024,    /* of the swizzle's pattern; dynamic shared memory starts anywhere                */
  SM90_BARRIER_BYTES = 8,   /* of an mbarrier                                                                 */
  SM90_TILE_BYTES = 16,     /* by which consumers hear where a tile is; as much again, if split, which part   */
  SM90_WORD_BYTES = 4,      /* by which a consumer's threads hear whether they are to merge                   */
  SM90_MERGED_AT_ONCE = 16, /* parts of a split tile: two rounds of them are the 256 parts that there may be  */
  SM90_PIECE_COLUMNS = 16,  /* of O, that a part's result is kept in                                          */
  SM90_STATISTICS = 4       /* floats that a row of a part's result has besides O: two of maximum and sum     */
};

#endif
