/* The limits of a launch: those of CUDA first, which need no device, then those of the device and of the kernel on it.
 */
#include "runtime/launch_check.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* Limits that are the same for every device (CUDA C++ Programming Guide, "Technical Specifications per Compute
 * Capability"). */
#define GRID_X_MAX         0x7fffffffu
#define GRID_YZ_MAX        65535u
#define BLOCK_XY_MAX       1024u
#define BLOCK_Z_MAX        64u
#define BLOCK_THREADS_MAX  1024u
#define CLUSTER_BLOCKS_MAX 16u /* what sm_90 and sm_100 can do when they are asked to */
#define CLUSTER_PORTABLE   8u  /* what every device with clusters does */
#define CLUSTER_CAPABILITY 90u

#define CALLERS_ATTRIBUTES_MAX 32u

/* Every flag of a launch; others are refused. */
#define LAUNCH_FLAGS (KJIT_LAUNCH_COOPERATIVE | KJIT_LAUNCH_PROGRAMMATIC | KJIT_LAUNCH_PRIORITY | KJIT_LAUNCH_CARVEOUT)

_Static_assert((int)KJIT_CLUSTER_POLICY_SPREAD == (int)CU_CLUSTER_SCHEDULING_POLICY_SPREAD &&
                   (int)KJIT_CLUSTER_POLICY_LOAD_BALANCING == (int)CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING,
               "the public numbers are the driver's");

/* The limits by axis, as resolve() goes through them. */
static const uint32_t grid_max[3] = {GRID_X_MAX, GRID_YZ_MAX, GRID_YZ_MAX};
static const uint32_t block_max[3] = {BLOCK_XY_MAX, BLOCK_XY_MAX, BLOCK_Z_MAX};
static const uint32_t cluster_max[3] = {CLUSTER_BLOCKS_MAX, CLUSTER_BLOCKS_MAX, CLUSTER_BLOCKS_MAX};

/* -- Without a device --------------------------------------------------------------------------------------------- */

static kjit_status refuse_axis(const char *name, int axis, uint32_t given, uint32_t max, kjit_error *error) {
  return error_set(error, KJIT_ERR_INVALID_ARG, "launch.%s[%d]: %u; CUDA allows at most %u", name, axis, given, max);
}

/* The numbers of one member: 0 stands for 1, as callers leave out the axes that they do not use. */
static kjit_status resolve(const char *name, const uint32_t given[3], const uint32_t max[3], uint32_t out[3],
                           kjit_error *error) {
  for (int i = 0; i < 3; i++) {
    out[i] = given[i] ? given[i] : 1;
    if (out[i] > max[i]) return refuse_axis(name, i, out[i], max[i], error);
  }
  return KJIT_OK;
}

/* Of the grid 0 is refused instead, because such a grid is usually a size that was rounded down, and a launch of
 * nothing would hide it. */
static kjit_status resolve_grid(const kjit_launch *launch, struct launch_shape *shape, kjit_error *error) {
  for (int i = 0; i < 3; i++) {
    shape->grid[i] = launch->grid[i];
    if (!shape->grid[i]) {
      return error_set(
          error, KJIT_ERR_INVALID_ARG,
          "launch.grid[%d]: 0; an empty grid runs nothing: leave the launch out, or set 1 for an axis that "
          "is not used (kjit_launch_default() does)",
          i);
    }
    if (shape->grid[i] > grid_max[i]) return refuse_axis("grid", i, shape->grid[i], grid_max[i], error);
  }
  return KJIT_OK;
}

/* The driver would refuse a grid that is no multiple of its clusters too, but with one number for every cause. */
static kjit_status resolve_cluster(const kjit_launch *launch, struct launch_shape *shape, kjit_error *error) {
  const kjit_status status = resolve("cluster", launch->cluster, cluster_max, shape->cluster, error);
  if (status != KJIT_OK) return status;
  shape->cluster_blocks = shape->cluster[0] * shape->cluster[1] * shape->cluster[2];
  if (shape->cluster_blocks > CLUSTER_BLOCKS_MAX) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.cluster: %u x %u x %u = %u blocks; CUDA allows at most %u",
                     shape->cluster[0], shape->cluster[1], shape->cluster[2], shape->cluster_blocks,
                     CLUSTER_BLOCKS_MAX);
  }
  for (int i = 0; i < 3; i++) {
    if (shape->grid[i] % shape->cluster[i] == 0) continue;
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.grid[%d]: %u; must be a multiple of launch.cluster[%d], %u",
                     i, shape->grid[i], i, shape->cluster[i]);
  }
  return KJIT_OK;
}

/* Everything but the shape; few launches have any of it (is_plain()). */
static kjit_status check_rest(const kjit_launch *launch, kjit_error *error) {
  if (launch->flags & ~LAUNCH_FLAGS)
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.flags: 0x%x; only KJIT_LAUNCH_* may be set", launch->flags);
  if (launch->shared_carveout > 100)
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.shared_carveout: %u; is a percentage, at most 100",
                     launch->shared_carveout);
  if (launch->cluster_policy > KJIT_CLUSTER_POLICY_LOAD_BALANCING)
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.cluster_policy: %u; must be a kjit_cluster_policy, 0 to %d",
                     launch->cluster_policy, KJIT_CLUSTER_POLICY_LOAD_BALANCING);
  if (launch->sync_domain > KJIT_SYNC_DOMAIN_REMOTE)
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.sync_domain: %u; must be a kjit_sync_domain, 0 to %d",
                     launch->sync_domain, KJIT_SYNC_DOMAIN_REMOTE);
  if (launch->attribute_count > CALLERS_ATTRIBUTES_MAX)
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.attribute_count: %u; at most %u", launch->attribute_count,
                     CALLERS_ATTRIBUTES_MAX);
  if (launch->attribute_count && !launch->attributes)
    return error_invalid(error, "launch.attributes", "must not be NULL when attribute_count is not 0");
  return launch->reserved ? error_invalid(error, "launch.reserved", "must be zero") : KJIT_OK;
}

/* One test over the or of all members, because nearly every launch passes by here. */
static bool is_plain(const kjit_launch *launch) {
  return !(launch->flags | launch->shared_carveout | launch->cluster_policy | launch->sync_domain |
           launch->attribute_count | launch->reserved);
}

/* A launch with all six numbers given and right, and with nothing besides: nearly every one. A 0 wraps to a number
 * beyond every limit. Without branches, because all of it is true nearly always. */
static bool is_usual(const kjit_launch *launch) {
  const uint32_t *const grid = launch->grid, *const block = launch->block, *const cluster = launch->cluster;
  const bool fits = (grid[0] - 1 < GRID_X_MAX) & (grid[1] - 1 < GRID_YZ_MAX) & (grid[2] - 1 < GRID_YZ_MAX) &
                    (block[0] - 1 < BLOCK_XY_MAX) & (block[1] - 1 < BLOCK_XY_MAX) & (block[2] - 1 < BLOCK_Z_MAX);
  return fits && !(cluster[0] | cluster[1] | cluster[2]) && is_plain(launch);
}

kjit_status launch_check_shape(const kjit_launch *launch, struct launch_shape *shape, kjit_error *error) {
  if (is_usual(launch) && launch->block[0] * launch->block[1] * launch->block[2] <= BLOCK_THREADS_MAX) {
    memcpy(shape->grid, launch->grid, sizeof shape->grid);
    memcpy(shape->block, launch->block, sizeof shape->block);
    shape->threads = launch->block[0] * launch->block[1] * launch->block[2];
    shape->cluster_blocks = 0;
    return KJIT_OK;
  }
  kjit_status status = resolve_grid(launch, shape, error);
  if (status == KJIT_OK) status = resolve("block", launch->block, block_max, shape->block, error);
  if (status != KJIT_OK) return status;
  shape->threads = shape->block[0] * shape->block[1] * shape->block[2];
  if (shape->threads > BLOCK_THREADS_MAX) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.block: %u x %u x %u = %u threads; CUDA allows at most %u",
                     shape->block[0], shape->block[1], shape->block[2], shape->threads, BLOCK_THREADS_MAX);
  }
  shape->cluster_blocks = 0;
  if (launch->cluster[0] | launch->cluster[1] | launch->cluster[2]) status = resolve_cluster(launch, shape, error);
  return status != KJIT_OK || is_plain(launch) ? status : check_rest(launch, error);
}

/* A launch of this library's own size is used where it lies; one of an older or newer header is copied with its missing
 * members filled in. */
const kjit_launch *launch_intake(const kjit_launch *given, kjit_launch *local, kjit_error *error) {
  if (given && given->struct_size == sizeof *given) return given;
  const kjit_status status = struct_intake(local, sizeof *local, given, sizeof *local, "launch", error);
  return status == KJIT_OK ? local : NULL;
}

/* -- On a device -------------------------------------------------------------------------------------------------- */

/* Allow clusters of more than 8 blocks, once for each kernel and device. Two threads that come at once both ask, which
 * does no harm. */
static kjit_status allow_large_clusters(struct kjit_kernel *kernel, const struct device *device, kjit_error *error) {
  struct kernel_on_device *const here = &kernel->on_device[device->info.ordinal];
  if (atomic_load_explicit(&here->large_clusters, memory_order_relaxed)) return KJIT_OK;
  const CUresult result = kernel->cu->KernelSetAttribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
                                                         kernel->handle, device->handle);
  if (result != CUDA_SUCCESS) {
    return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error,
                       "kernel \"%.80s\" on device %d: allowing clusters of more than %u blocks", kernel->name,
                       device->info.ordinal, CLUSTER_PORTABLE);
  }
  atomic_store_explicit(&here->large_clusters, 1, memory_order_relaxed);
  return KJIT_OK;
}

/* The first feature of a launch that needs sm_90; NULL when there is none. */
static const char *newer_feature(const kjit_launch *launch, const struct launch_shape *shape, const char **what) {
  *what = shape->cluster_blocks                            ? "clusters"
          : launch->flags & KJIT_LAUNCH_PROGRAMMATIC       ? "programmatic dependent launches"
          : launch->sync_domain != KJIT_SYNC_DOMAIN_STREAM ? "memory synchronization domains"
                                                           : NULL;
  return shape->cluster_blocks ? "cluster" : launch->flags & KJIT_LAUNCH_PROGRAMMATIC ? "flags" : "sync_domain";
}

/* A launch without newer features never asks for the device, which keeps it off the way of plain launches. */
static kjit_status check_features(struct kjit_kernel *kernel, int32_t ordinal, const kjit_launch *launch,
                                  const struct launch_shape *shape, kjit_error *error) {
  const char *what;
  const char *const field = newer_feature(launch, shape, &what);
  const struct device *device;
  if (!what) return KJIT_OK;
  const kjit_status status = gpu_device(kernel->gpu, ordinal, &device, error);
  if (status != KJIT_OK) return status;
  if (device->capability < CLUSTER_CAPABILITY) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "launch.%s: device %d (%s) has no %s; sm_%u and later do", field,
                     ordinal, device->info.arch, what, CLUSTER_CAPABILITY);
  }
  return shape->cluster_blocks > CLUSTER_PORTABLE ? allow_large_clusters(kernel, device, error) : KJIT_OK;
}

kjit_status launch_check_device(struct kjit_kernel *kernel, int32_t ordinal, const kjit_launch *launch,
                                const struct launch_shape *shape, kjit_error *error) {
  const kjit_status status = runtime_kernel_prepare(kernel, ordinal, launch->dynamic_shared_bytes, error);
  if (status != KJIT_OK) return status;
  const uint32_t max_threads = kernel->on_device[ordinal].max_threads;
  if (shape->threads > max_threads) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "launch.block: %u threads; kernel \"%.80s\" allows at most %u on device %d, by its registers and "
                     "__launch_bounds__",
                     shape->threads, kernel->name, max_threads, ordinal);
  }
  const bool newer = shape->cluster_blocks | launch->flags | launch->sync_domain;
  return newer ? check_features(kernel, ordinal, launch, shape, error) : KJIT_OK;
}

/* -- As the driver takes it --------------------------------------------------------------------------------------- */

static CUlaunchAttribute *put_cluster(const kjit_launch *launch, const struct launch_shape *shape,
                                      CUlaunchAttribute *at) {
  if (shape->cluster_blocks) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    at->value.clusterDim.x = shape->cluster[0];
    at->value.clusterDim.y = shape->cluster[1];
    at++->value.clusterDim.z = shape->cluster[2];
  }
  if (launch->cluster_policy) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE};
    at++->value.clusterSchedulingPolicyPreference = (CUclusterSchedulingPolicy)launch->cluster_policy;
  }
  return at;
}

static CUlaunchAttribute *put_flags(const kjit_launch *launch, CUlaunchAttribute *at) {
  if (launch->flags & KJIT_LAUNCH_COOPERATIVE) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
    at++->value.cooperative = 1;
  }
  if (launch->flags & KJIT_LAUNCH_PROGRAMMATIC) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    at++->value.programmaticStreamSerializationAllowed = 1;
  }
  if (launch->flags & KJIT_LAUNCH_PRIORITY) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    at++->value.priority = launch->priority;
  }
  if (launch->flags & KJIT_LAUNCH_CARVEOUT) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
    at++->value.sharedMemCarveout = launch->shared_carveout;
  }
  return at;
}

/* The caller's attributes come last and are handed on unread, so that an attribute of a newer driver needs no newer
 * kjit. */
unsigned launch_attributes(const kjit_launch *launch, const struct launch_shape *shape,
                           CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES_MAX]) {
  if (!shape->cluster_blocks && is_plain(launch)) return 0;
  CUlaunchAttribute *at = put_flags(launch, put_cluster(launch, shape, attributes));
  if (launch->sync_domain) {
    *at = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
    at++->value.memSyncDomain = launch->sync_domain == KJIT_SYNC_DOMAIN_REMOTE ? CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
                                                                               : CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
  }
  if (launch->attribute_count) memcpy(at, launch->attributes, launch->attribute_count * sizeof *at);
  return (unsigned)(at - attributes) + launch->attribute_count;
}

CUlaunchConfig launch_config(const kjit_launch *launch, const struct launch_shape *shape, CUstream stream,
                             CUlaunchAttribute *attributes, unsigned count) {
  return (CUlaunchConfig){.gridDimX = shape->grid[0],
                          .gridDimY = shape->grid[1],
                          .gridDimZ = shape->grid[2],
                          .blockDimX = shape->block[0],
                          .blockDimY = shape->block[1],
                          .blockDimZ = shape->block[2],
                          .sharedMemBytes = launch->dynamic_shared_bytes,
                          .hStream = stream,
                          .attrs = count ? attributes : NULL,
                          .numAttrs = count};
}
