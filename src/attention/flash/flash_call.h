/* One call, from arguments as the caller gives them to all that a launch takes. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CALL_H
#define KJIT_ATTENTION_FLASH_FLASH_CALL_H

#include <kjit/flash_forward.h>

#include "attention/flash/flash_resident.h"
#include "flash_forward/params.h"

struct flash_call {
  const struct flash_resident_kernel *resident;
  int32_t device; /* that is current, and that it is for */
  uint32_t grid[3];
  struct flash_forward_params params;
};

/* Check everything, then find the kernel, or build and load it. Resets the error. `config` NULL: one is chosen. */
kjit_status flash_call_prepare(struct flash_call *call, kjit_runtime *runtime, const kjit_flash_config *config,
                               const kjit_attention_args *args, kjit_error *error);

kjit_status flash_call_enqueue(const struct flash_call *call, CUstream stream, kjit_error *error);

#endif
