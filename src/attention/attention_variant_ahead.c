/* Builds the kernel that finds a variant's key blocks on a thread of its own, while the call that needs it builds the
 * attention kernel. The two compiles have nothing in common but NVRTC, which serialises no more than its front end.
 *
 * The thread works in the device's primary context, because a new thread has none. In a context of cuCtxCreate() the
 * call builds one kernel after the other.
 *
 * Threads: one for each first call of a variant with lists; it ends before the call goes on. Both read the launch,
 * which nobody writes meanwhile. */
#include "attention/attention_variant_ahead.h"

#include "attention/attention_variant_kernels.h"
#include "base/threads/quiet_thread.h"
#include "runtime/runtime_internal.h"

static void *build(void *user) {
  const struct attention_variant_ahead *ahead = user;
  const struct config_kernel *kernel;
  kjit_error unread;
  runtime_thread_leaves_captures(ahead->runtime);
  if (!runtime_primary_enter(ahead->runtime, ahead->device)) return NULL;
  (void)config_kernel_get(ahead->runtime, &attention_block_list_family, attention_no_fields, ahead->device,
                          &ahead->launch->extra, 0, &kernel, &unread);
  runtime_primary_leave(ahead->runtime, ahead->device);
  return NULL;
}

void attention_variant_ahead_begin(struct attention_variant_ahead *ahead, kjit_runtime *runtime,
                                   const struct attention_variant_launch *launch, const kjit_device_info *device) {
  *ahead = (struct attention_variant_ahead){.runtime = runtime, .launch = launch, .device = device};
  if (!launch || !launch->is_listed) return;
  if (config_kernel_is_resident(runtime, &attention_block_list_family, attention_no_fields, device, &launch->extra))
    return;
  if (!runtime_primary_is_current(runtime, device)) return;
  ahead->has_thread = quiet_thread_start(&ahead->thread, build, ahead);
}

void attention_variant_ahead_end(struct attention_variant_ahead *ahead) {
  if (ahead->has_thread) (void)pthread_join(ahead->thread, NULL);
}
