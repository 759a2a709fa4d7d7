/* Building the kernel that finds a variant's key blocks beside the attention kernel, so that a first call waits for the
 * longer of the two compiles and not for both. */
#ifndef KJIT_ATTENTION_ATTENTION_VARIANT_AHEAD_H
#define KJIT_ATTENTION_ATTENTION_VARIANT_AHEAD_H

#include <pthread.h>

#include "attention/attention_variant_launch.h"

/* A build under way; it lives on the stack of the call that waits for it. */
struct attention_variant_ahead {
  kjit_runtime *runtime;
  const struct attention_variant_launch *launch;
  const kjit_device_info *device;
  pthread_t thread;
  bool has_thread;
};

/* Start building the kernel that makes the launch's lists, if it has lists and the kernel is not loaded. `launch` may
 * be NULL and does not change before the end. Where no thread can do it, nothing is started. */
void attention_variant_ahead_begin(struct attention_variant_ahead *ahead, kjit_runtime *runtime,
                                   const struct attention_variant_launch *launch, const kjit_device_info *device);

/* Wait for it. Whether it succeeded tells attention_variant_prepare(), which asks for the kernel again. */
void attention_variant_ahead_end(struct attention_variant_ahead *ahead);

#endif
