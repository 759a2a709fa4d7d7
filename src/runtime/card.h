/* What kernels are chosen by, card by card: published figures, and what the driver states of other cards. Pure. */
#ifndef KJIT_RUNTIME_CARD_H
#define KJIT_RUNTIME_CARD_H

#include <kjit/kernel.h>

/* The card that the planners' constants were measured on. */
#define CARD_USUAL_DEVICE "NVIDIA H200"
enum {
  CARD_USUAL_L2_BYTES = 62914560,
  CARD_USUAL_MEMORY_GB_S = 4800,
  CARD_USUAL_LOAD_MHZ = 1600,
  CARD_USUAL_TENSOR_FLOPS = 4096
};

/* Fill memory_gb_s, load_mhz and tensor_flops of a described device: by its name where that is known, else by what the
 * driver states, `memory_gb_s` of which was worked out from the memory's clock and width. What no card has, because a
 * driver does not state it, becomes 0. */
void card_fill(kjit_device_info *info, uint32_t capability, uint32_t memory_gb_s);

/* Can a card have these multiprocessors, this memory, clock and tensor cores? Of a device that a program describes:
 * planners multiply these figures, and rely on their bounds. KJIT_ERR_INVALID_ARG. */
kjit_status card_check(const kjit_device_info *info, kjit_error *error);

#endif
