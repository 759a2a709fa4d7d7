/* A call's variant, from checked arguments to what its launches take besides the family's own arguments: the functions'
 * header as a part of the kernel's request, the numbers and tensors that they read, and the kernels that find the key
 * blocks before the attention kernel runs. */
#ifndef KJIT_ATTENTION_ATTENTION_VARIANT_LAUNCH_H
#define KJIT_ATTENTION_ATTENTION_VARIANT_LAUNCH_H

#include "attention/attention_variant_source.h"
#include "attention/stream_workspace.h"
#include "attention_variant/list_params.h"
#include "family/config_kernel.h"

/* The tiles that a config divides a problem into, as lists of key blocks count them. */
struct attention_tiling {
  int query_tiles;  /* of a head */
  int tile_queries; /* queries of a tile */
  int heads;        /* heads as tiles count them: query heads, or packs of those that share a key head */
  int packed;       /* query heads in a tile's rows */
  int heads_per_kv; /* heads, so counted, that share a key head */
  int key_rows;     /* keys of a block */
  int parts;        /* of its queries: attention_block_list_params */
  bool takes_words; /* lists may have keep words */
  bool takes_order; /* tiles may be taken in an order of the lists' */
  bool awaits_each; /* each list may be waited for by itself: every tile reads its list once */
  uint32_t batch;
};

struct attention_variant_launch {
  struct attention_variant_source source;
  struct attention_variant_params params; /* complete but for the lists and the map's memory */
  bool is_listed, is_mapped;
  bool has_pairs;            /* the terms of KJIT_VARIANT_TILE can be loaded two at a time */
  bool has_chunks;           /* they can be copied 16 bytes at a time */
  bool has_boxes;            /* a tensor map can describe them; with has_chunks */
  int gathered;              /* elements that the score function loads for each pair, one by one */
  struct config_extra extra; /* for looking kernels up; not used by a launch */
  /* What runs before the attention kernel; NULL where nothing does. */
  const struct config_kernel *list_kernel, *map_kernel;
  struct attention_block_list_params list; /* without `variant` */
  struct attention_block_map_params map;   /* without `states` */
  uint32_t list_grid[3], map_grid[3];
  /* Sizes of the parts of `memory`, in the order in which they lie there; multiples of 16. */
  size_t map_bytes, count_bytes, order_bytes, ahead_bytes, entry_bytes, word_bytes;
  size_t made; /* counters of lists that are waited for one by one, beside that memory */
  struct stream_workspace *memory;
  kjit_runtime *runtime;
  kjit_kept_blocks *kept; /* of the caller's; NULL: none */
  bool has_dependents;    /* of the device: programmatic dependent launches */
};

/* Are the members of a variant set? Every launch asks. */
static inline bool attention_variant_is_asked(const kjit_attention_args *args) {
  return args->variant || args->blocks || args->sinks || args->alibi_slopes || args->bias ||
         args->attention_chunk != 0 || args->softcap != 0 || (args->flags & KJIT_ATTENTION_WINDOW);
}

/* Take the variant of checked arguments. KJIT_ERR_INVALID_ARG names the member and the rule. */
kjit_status attention_variant_take(struct attention_variant_launch *launch, const kjit_attention_args *args,
                                   const struct attention_variant_source *source,
                                   const struct kjit_variant_arguments *arguments, kjit_error *error);

/* Leave out what finds blocks and what adds sinks, for kernels that do neither. Before a kernel is looked up. */
void attention_variant_leave_blocks(struct attention_variant_launch *launch);

/* Choose how the tiles of a config find their key blocks, and find or build the kernels for it. */
kjit_status attention_variant_prepare(struct attention_variant_launch *launch, kjit_runtime *runtime,
                                      const kjit_attention_args *args, const struct attention_tiling *tiling,
                                      const kjit_device_info *device, kjit_error *error);

/* Put the variant behind a family's own arguments. The family's two scales, of the exponent and its base 2 form, become
 * those of scores that were scaled before the variant's function. */
void attention_variant_fill(const struct attention_variant_launch *launch, float *scale, float *scale_log2,
                            struct attention_variant_params *params);

/* What a launch's key blocks lie in. */
struct attention_variant_blocks {
  struct attention_block_lists lists;
  const unsigned char *states;
  bool may_depend; /* a launch right behind may be a programmatic dependent of the kernel that makes the lists */
  struct stream_space space; /* held until attention_variant_end(), because two or three launches use it */
};

/* Enqueue what runs before the attention kernel, and the end of its memory's use behind it. */
kjit_status attention_variant_begin(const struct attention_variant_launch *launch, CUstream stream,
                                    struct attention_variant_blocks *out, kjit_error *error);
/* Where the attention kernel could not be enqueued: clear the counters that it would have. Before the end. */
void attention_variant_abandon(const struct attention_variant_launch *launch, CUstream stream,
                               const struct attention_variant_blocks *blocks);
void attention_variant_end(const struct attention_variant_launch *launch, CUstream stream,
                           const struct attention_variant_blocks *blocks);

#endif
