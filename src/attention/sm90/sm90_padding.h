/* K and V of attention_sm90 in rows that are whole lines of L2: the kernel that copies them there, when a call needs
 * it, and its launch in front of the attention kernel's. */
#ifndef KJIT_ATTENTION_SM90_SM90_PADDING_H
#define KJIT_ATTENTION_SM90_SM90_PADDING_H

#include <stdbool.h>
#include <stddef.h>

#include <kjit/attention_sm90.h>

#include "attention/sm90/sm90_tiles.h"
#include "attention_padding/params.h"
#include "attention_sm90/params.h"
#include "base/threads/recent.h"
#include "family/config_kernel.h"
#include "runtime/runtime_internal.h"

/* The kernel that copies, as a family. Its one field is the rows that a block of threads copies. */
extern const kjit_family attention_padding_family;

/* Most bytes of the copies of K and V: what they take of a stream's workspace. */
#define SM90_PADDING_MOST ((int64_t)256 << 20)

/* May calls with this config copy K or V? Then `values` become those of the config that copies. */
bool sm90_padding_is_possible(const kjit_attention_sm90_config *config, int32_t *values);

/* Does copying K and V cost less than it spares, by the model of sm90_tiles.h, for tiles that are not split? A pure
 * function of the problem, so that it can be told without the tensors. */
bool sm90_padding_pays(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                       const struct sm90_card *card);

/* All that copying K and V of one call takes but the memory. */
struct sm90_padding {
  const struct config_kernel *kernel;
  kjit_runtime *runtime;
  struct recent *maps;
  struct attention_padding_params params; /* with tensors[].to as offsets into the memory */
  struct runtime_tensor tensors[2];       /* what the maps of K and V are made of, with addresses likewise; all zero
                                             where a tensor is not copied */
  uint32_t grid[3];
  size_t bytes; /* of memory */
};

/* Maps of copies, which are kept as those of tensors are. NULL when out of memory. `mem` must outlive it. */
struct recent *sm90_padding_maps_create(const struct mem *mem);

/* Prepare for checked arguments. False where nothing is to be copied, because K and V have whole lines already. */
bool sm90_padding_prepare(struct sm90_padding *padding, const kjit_attention_args *args,
                          const kjit_attention_sm90_config *config, const struct config_kernel *kernel);

/* Enqueue the copy into `memory`, and let the parameters' maps be those of the copies. */
kjit_status sm90_padding_enqueue(const struct sm90_padding *padding, void *memory, struct attention_sm90_params *params,
                                 CUstream stream, kjit_error *error);

#endif
