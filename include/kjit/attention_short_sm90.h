/**
 * @file
 * The family `attention_short_sm90`: attention forward for Hopper over few keys (up to 256), as with short sequences
 * and in cross attention, in 9 fields. All keys of a head lie in shared memory, whole rows of scores in registers.
 * sm_90a alone.
 *
 * KJIT_ATTENTION_SHORT_SM90_FIELDS is the one description of a config. The struct below, order, the kernel's #define
 * lines, the text form, JSON and the fields of kjit_family_find("attention_short_sm90") all come from it.
 *
 * kjit_attention_choose() and kjit_attention_forward() use this family by themselves. To choose the config by hand,
 * read one with kjit_config_parse():
 *
 *     dtype=bf16,head_dim=64,head_dim_v=64,causal=0,tile_n=128,consumers=2,stages=2,q_buffers=2,blocks_per_sm=2
 */
#ifndef KJIT_ATTENTION_SHORT_SM90_H
#define KJIT_ATTENTION_SHORT_SM90_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * X(name, kind, text): the fields in their order; kind is DTYPE, INT or BOOL. The kernel sees each as
 * `#define KJIT_<name> <value>`.
 */
#define KJIT_ATTENTION_SHORT_SM90_FIELDS(X)                                                                            \
  X(dtype, DTYPE, "element type of q, k, v and o: FP16 (5) or BF16 (15)")                                              \
  X(head_dim, INT, "columns of q and k: a multiple of 8 from 8 to 256")                                                \
  X(head_dim_v, INT, "columns of v and o: a multiple of 8 from 8 to 256")                                              \
  X(causal, BOOL, "row i sees keys up to i + seq_kv - seq_q")                                                          \
  X(tile_n, INT, "most keys of a head: a multiple of 16 from 16 to 256")                                               \
  X(consumers, INT, "warpgroups of a block of threads, which take tiles of 64 queries in turn: 1 to 4")                \
  X(stages, INT, "heads whose K and V are in shared memory: 1 to 8")                                                   \
  X(q_buffers, INT, "tiles of Q in shared memory for each consumer: 1 to 8")                                           \
  X(blocks_per_sm, INT, "blocks of threads that an SM runs at the same time: 1 to 4")

/** One configuration, with a member for each of the family's kjit_config.values, in their order. 36 bytes, no padding.
 */
typedef struct kjit_attention_short_sm90_config {
#define KJIT_ATTENTION_SHORT_SM90_MEMBER(name, kind, text) int32_t name;
  KJIT_ATTENTION_SHORT_SM90_FIELDS(KJIT_ATTENTION_SHORT_SM90_MEMBER)
#undef KJIT_ATTENTION_SHORT_SM90_MEMBER
} kjit_attention_short_sm90_config;

#ifdef __cplusplus
}
#endif
#endif
