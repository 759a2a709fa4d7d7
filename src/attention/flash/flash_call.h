/* One call of flash_forward, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CALL_H
#define KJIT_ATTENTION_FLASH_FLASH_CALL_H

#include "attention/attention_family.h"
#include "attention/flash/flash_config.h"
#include "flash_forward/params.h"

struct flash_call {
  const struct config_kernel *kernel;
  uint32_t grid[3]; /* tiles of B_r query rows, heads, batch; x is innermost, so that blocks that read the same K and V
                       run together. More than 65,535 heads or batch entries become several launches */
  struct flash_forward_variant_params params; /* a dense kernel takes params.base alone */
};

extern const struct attention_family flash_attention;

#endif
