/* The tiered build: calls are served by a first-tier kernel, which is quick to compile, while the chosen kernel is
 * built and loaded by a thread of its own. Only where a runtime asks for it (kjit_runtime_options.tiered). */
#ifndef KJIT_ATTENTION_ATTENTION_TIER_H
#define KJIT_ATTENTION_ATTENTION_TIER_H

#include "attention/attention_choose.h"

/* What a call does that no remembered decision answers. */
enum tier_turn {
  TIER_CHOSEN, /* take the chosen kernel: it is there, or the call builds it itself */
  TIER_FIRST   /* take the first-tier kernel, and do not remember it */
};

/* Say what a call does that chose this config; with `has_front` it launches another kernel in front (struct
 * attention_family), which is built together with the config's. With kjit_runtime_options.tier_calls it may wait for
 * the config's kernel. Thread-safe. */
enum tier_turn attention_tier_turn(kjit_runtime *runtime, const struct attention_choice *chosen, bool has_front,
                                   const kjit_device_info *device);

/* Let the config's kernel be built, now that the first tier has its own. Every call that was told TIER_FIRST says so.
 * Thread-safe. */
void attention_tier_release(kjit_runtime *runtime, const struct attention_choice *chosen,
                            const kjit_device_info *device);

/* The first-tier config for a problem: flash_forward's with the least code. False when there is none that is quicker to
 * compile than the chosen one. */
bool attention_tier_first(const kjit_attention_problem *problem, const struct attention_choice *chosen,
                          const kjit_device_info *device, struct attention_choice *out);

#endif
