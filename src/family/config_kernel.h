/* From configs to loaded kernels: the look-up that every launch makes, for any family. */
#ifndef KJIT_FAMILY_CONFIG_KERNEL_H
#define KJIT_FAMILY_CONFIG_KERNEL_H

#include <stdbool.h>

#include "family/family.h"

struct config_extra; /* family/config_build.h */

/* A kernel and the numbers of its launch. It does not change. */
struct config_kernel {
  kjit_kernel *kernel; /* owned by the runtime */
  kjit_geometry geometry;
};

/* The kernel of a config on a device, ready to launch with `geometry`, to which `more_shared` bytes of dynamic shared
 * memory were added. `extra` is what is generated beside the config; NULL: nothing, and no bytes are added. The first
 * call with a config on a device checks it, compiles or finds its cubin and loads it; later calls are one look-up, some
 * tens of nanoseconds. The statuses are those of kjit_config_check(), kjit_build() and kjit_kernel_get(). Thread-safe.
 */
kjit_status config_kernel_get(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                              const kjit_device_info *device, const struct config_extra *extra, uint32_t more_shared,
                              const struct config_kernel **out, kjit_error *error);

/* The same without an extra, for a caller in a hurry: what has to be compiled is written to the cache by a thread of
 * the runtime's, which this does not wait for. */
kjit_status config_kernel_get_early(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                                    const kjit_device_info *device, const struct config_kernel **out,
                                    kjit_error *error);

/* Is the kernel of a config, and of what is generated beside it, loaded, so that config_kernel_get() would only look it
 * up? Thread-safe. */
bool config_kernel_is_resident(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                               const kjit_device_info *device, const struct config_extra *extra);

/* Load the kernel of a config if memory or the cache has its cubin. False when it must be compiled. Thread-safe. */
bool config_kernel_is_cached(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                             const kjit_device_info *device);

#endif
