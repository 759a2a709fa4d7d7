/* From configs to loaded kernels. A runtime has one table for all families, from (family, device, values as given) to
 * the loaded kernel and its launch numbers.
 *
 * 1. A look-up in the table answers every launch but the first. What is generated beside a config is told apart by its
 *    digest, which stands behind the values of the key.
 * 2. A miss goes through the rules, the builder and the driver; the result is added and stays until the runtime ends.
 *    Two configs of equal code have an entry each and share the kernel.
 *
 * kjit_config_get_kernel() goes by no table: its kernels are counted, so that those of a family with many configs can
 * be unloaded, and a kernel of the table is not.
 *
 * Threads: readers take no lock (base/threads/push_table.h). Two threads that miss at the same time both ask the
 * builder, which compiles once; the second one's entry is dropped. */
#include "family/config_kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/threads/push_table.h"
#include "family/config.h"
#include "family/config_build.h"
#include "runtime/runtime_internal.h"

/* The key of an entry. Hashed and compared up to the family's last field or, for a kernel with an extra, to the digest
 * right behind that field; there is no padding up to there. */
struct key {
  const kjit_family *family;
  uint64_t serial; /* of the family, because a released one's address may become another's */
  int32_t device;
  int32_t values[KJIT_FIELD_COUNT_MAX + sizeof(struct digest) / sizeof(int32_t)];
};

_Static_assert(offsetof(struct key, values) == sizeof(void *) + sizeof(uint64_t) + sizeof(int32_t),
               "a key has no padding");

static void *create_table(kjit_runtime *runtime) {
  struct push_table *table = mem_alloc(runtime_mem(runtime), sizeof *table);
  if (table) push_table_init(table, runtime_mem(runtime), sizeof(struct config_kernel));
  return table;
}

static void destroy_table(kjit_runtime *runtime, void *state) {
  push_table_finish(state);
  mem_free(runtime_mem(runtime), state);
}

static const struct runtime_slot kernels = {create_table, destroy_table};

/* How a kernel is made beside its config. */
struct how {
  const struct config_extra *extra; /* NULL: nothing is generated */
  uint32_t more_shared;             /* bytes of dynamic shared memory beside the config's */
  uint32_t flags;                   /* KJIT_BUILD_* */
  bool publishes_later;             /* struct jit_request says what that is */
};

struct wanted_kernel {
  kjit_runtime *runtime;
  bool publishes_later;
  struct config_kernel *out;
};

static kjit_status get_kernel(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_kernel *wanted = user;
  struct jit_request now = *request;
  now.publishes_later = wanted->publishes_later;
  return runtime_kernel_get(wanted->runtime, &now, &wanted->out->kernel, error);
}

/* Step 2 of the head: check, build, load, and make the numbers of a launch. */
static kjit_status load(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                        const kjit_device_info *device, const struct how *how, struct config_kernel *out,
                        kjit_error *error) {
  const struct family_place place = family_place_of_device(device);
  kjit_status status = config_check(family, values, &place, error);
  if (status != KJIT_OK) return status;
  const bool is_specific = family->is_arch_specific && family->is_arch_specific(family, values);
  struct wanted_kernel wanted = {runtime, how->publishes_later, out};
  const struct config_act act = {.run = get_kernel,
                                 .user = &wanted,
                                 .arch = is_specific ? device->arch_specific : device->arch,
                                 .flags = how->flags,
                                 .extra = how->extra};
  status = config_request_run(runtime, family, values, &act, error);
  if (status != KJIT_OK) return status;
  out->geometry = config_geometry(family, values);
  out->geometry.shared_bytes += how->more_shared;
  return runtime_kernel_prepare(out->kernel, device->ordinal, out->geometry.shared_bytes, error);
}

/* Fill in the key of a config's kernel. Returns its bytes. */
static size_t key_of(struct key *key, const kjit_family *family, const int32_t *values, const kjit_device_info *device,
                     const struct config_extra *extra) {
  const size_t bytes = offsetof(struct key, values) + family->table.config_bytes;
  key->family = family;
  key->serial = family->serial;
  key->device = device->ordinal;
  memcpy(key->values, values, family->table.config_bytes);
  if (!extra) return bytes;
  memcpy((char *)key + bytes, &extra->digest, sizeof extra->digest);
  return bytes + sizeof extra->digest;
}

static kjit_status get(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                       const kjit_device_info *device, const struct how *how, const struct config_kernel **out,
                       kjit_error *error) {
  struct key key;
  struct config_kernel kernel;
  struct push_table *const table = runtime_slot_get(runtime, &kernels);
  if (!table) return error_no_memory(error);
  const size_t bytes = key_of(&key, family, values, device, how->extra);
  *out = push_table_find(table, &key, bytes);
  if (*out) return KJIT_OK;
  const kjit_status status = load(runtime, family, values, device, how, &kernel, error);
  if (status != KJIT_OK) return status;
  *out = push_table_add(table, &key, bytes, &kernel);
  return *out ? KJIT_OK : error_no_memory(error);
}

kjit_status config_kernel_get(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                              const kjit_device_info *device, const struct config_extra *extra, uint32_t more_shared,
                              const struct config_kernel **out, kjit_error *error) {
  const struct how how = {.extra = extra, .more_shared = more_shared};
  return get(runtime, family, values, device, &how, out, error);
}

kjit_status config_kernel_get_early(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                                    const kjit_device_info *device, const struct config_kernel **out,
                                    kjit_error *error) {
  const struct how how = {.publishes_later = true};
  return get(runtime, family, values, device, &how, out, error);
}

bool config_kernel_is_resident(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                               const kjit_device_info *device, const struct config_extra *extra) {
  struct key key;
  const struct push_table *const table = runtime_slot_get(runtime, &kernels);
  return table && push_table_find(table, &key, key_of(&key, family, values, device, extra));
}

bool config_kernel_is_cached(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                             const kjit_device_info *device) {
  const struct how how = {.flags = KJIT_BUILD_NO_COMPILE};
  const struct config_kernel *kernel;
  kjit_error unread = {0};
  return get(runtime, family, values, device, &how, &kernel, &unread) == KJIT_OK;
}

/* -- For callers who hold the kernel ------------------------------------------------------------------------------ */

static kjit_status take_kernel(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_kernel *wanted = user;
  return runtime_kernel_take(wanted->runtime, request, &wanted->out->kernel, error);
}

/* `error` is not NULL. */
static kjit_status take(kjit_runtime *runtime, const kjit_config *config, const char *arch, uint32_t flags,
                        kjit_kernel **out, kjit_error *error) {
  int32_t ordinal = 0;
  struct config_kernel kernel = {0};
  struct wanted_kernel wanted = {runtime, false, &kernel};
  kjit_status status = runtime_current_device(runtime, &ordinal, error);
  const kjit_device_info *const device = status == KJIT_OK ? runtime_device(runtime, ordinal, error) : NULL;
  if (!device) return (kjit_status)error->status;
  const struct config_act act = {
      .run = take_kernel, .user = &wanted, .arch = arch ? arch : device->arch_specific, .flags = flags};
  status = kjit_config_check(config, act.arch, error);
  if (status == KJIT_OK) status = config_request_run(runtime, config->family, config->values, &act, error);
  if (status != KJIT_OK) return status;
  const kjit_geometry geometry = config_geometry(config->family, config->values);
  status = runtime_kernel_prepare(kernel.kernel, ordinal, geometry.shared_bytes, error);
  if (status == KJIT_OK)
    *out = kernel.kernel;
  else
    kjit_kernel_release(kernel.kernel);
  return status;
}

kjit_status kjit_config_get_kernel(kjit_runtime *runtime, const kjit_config *config, const char *arch, uint32_t flags,
                                   kjit_kernel **out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (flags & ~JIT_REQUEST_FLAGS) return error_invalid(error, "flags", "only KJIT_BUILD_* may be set");
  if (flags & (KJIT_BUILD_KEY_ONLY | KJIT_BUILD_OBJECT))
    return error_invalid(error, "flags", "KJIT_BUILD_KEY_ONLY and KJIT_BUILD_OBJECT give no kernel");
  kjit_error found = {0};
  kjit_status status = config_take(config, &found);
  if (status == KJIT_OK) status = take(runtime, config, arch, flags, out, &found);
  if (error) *error = found;
  return status;
}
