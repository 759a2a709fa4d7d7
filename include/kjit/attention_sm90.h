/**
 * @file
 * The family `attention_sm90`: attention forward for Hopper by TMA and wgmma, in 13 fields. sm_90a alone.
 *
 * KJIT_ATTENTION_SM90_FIELDS is the one description of a config. The struct below, order, the kernel's #define lines,
 * the text form, JSON and the fields of kjit_family_find("attention_sm90") all come from it.
 *
 * kjit_attention_choose() and kjit_attention_forward() use this family by themselves. To choose the config by hand,
 * read one with kjit_config_parse():
 *
 *     dtype=bf16,head_dim=128,head_dim_v=128,causal=0,consumers=2,tile_n=128,stages=2,q_buffers=2,o_chunks=0,
 *     ping_pong=1,rescale_slack=15,packed=1,split=0
 */
#ifndef KJIT_ATTENTION_SM90_H
#define KJIT_ATTENTION_SM90_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * X(name, kind, text): the fields in their order; kind is DTYPE, INT or BOOL. The kernel sees each as
 * `#define KJIT_<name> <value>`.
 */
#define KJIT_ATTENTION_SM90_FIELDS(X)                                                                                  \
  X(dtype, DTYPE, "element type of q, k, v and o: FP16 (5) or BF16 (15)")                                              \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(consumers, INT, "warpgroups that compute, 1 to 4; each owns 64 query rows of a tile; 4: two and two have a tile")  \
  X(tile_n, INT, "key rows per step: a multiple of 16 from 16 to 256")                                                 \
  X(stages, INT, "tiles of K and of V in shared memory: 2 to 4")                                                       \
  X(q_buffers, INT, "tiles of Q in shared memory: 1, or 2 to overlap a tile's end with the next one's start")          \
  X(o_chunks, INT,                                                                                                     \
    "64-column chunks of O with shared memory of their own, 0 to 4; with q_buffers 1 overlaps likewise, with 2 "       \
    "all or none, for tiles of few key blocks")                                                                        \
  X(ping_pong, BOOL, "consumers take turns: one's products run under another's softmax")                               \
  X(rescale_slack, INT, "rescale threshold, log2: 1 to 15; 0 rescales the output whenever the running maximum rises")  \
  X(packed, INT, "pack_gqa: query heads that share a key head, packed into one tile's rows: a power of two up to 64")  \
  X(split, BOOL, "split-KV: a tile's key blocks may be divided among several blocks of threads")

/** One configuration, with a member for each of the family's kjit_config.values, in their order. 52 bytes, no padding.
 */
typedef struct kjit_attention_sm90_config {
#define KJIT_ATTENTION_SM90_MEMBER(name, kind, text) int32_t name;
  KJIT_ATTENTION_SM90_FIELDS(KJIT_ATTENTION_SM90_MEMBER)
#undef KJIT_ATTENTION_SM90_MEMBER
} kjit_attention_sm90_config;

#ifdef __cplusplus
}
#endif
#endif
