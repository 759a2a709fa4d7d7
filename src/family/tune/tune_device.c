/* The card that a caller names: checked and copied; and what is known of its table. Any thread: the runtime's tables
 * are guarded by tune_store.h. */
#include "family/tune/tune_device.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/tune/tune_store.h"
#include "runtime/runtime_internal.h"

static kjit_status take_arch(const char *arch, kjit_device_info *out, kjit_error *error) {
  struct family_place place;
  if (!arch) return error_invalid(error, "arch", "must not be NULL where device is");
  const kjit_status status = family_place_of_arch(arch, &place, error);
  if (status == KJIT_OK) *out = tune_device_of_place(&place);
  return status;
}

kjit_status tune_device_take(const kjit_device_info *given, const char *arch, kjit_device_info *out,
                             kjit_error *error) {
  if (!given) return take_arch(arch, out, error);
  const kjit_status status = struct_intake(out, sizeof *out, given, sizeof *out, "device", error);
  if (status != KJIT_OK) return status;
  if (!memchr(out->name, '\0', sizeof out->name) || !memchr(out->arch, '\0', sizeof out->arch) ||
      !memchr(out->arch_specific, '\0', sizeof out->arch_specific))
    return error_invalid(error, "device", "its texts must end in NUL");
  return out->name[0] && out->arch_specific[0] ? KJIT_OK : error_invalid(error, "device", "has no name or arch");
}

static void count_rows(struct tune_table *table, kjit_tune_info *info) {
  info->user_rows = (uint32_t)table->rows_of[TUNE_USER];
  info->site_rows = (uint32_t)table->rows_of[TUNE_SITE];
  info->shipped_rows = (uint32_t)table->rows_of[TUNE_SHIPPED];
  info->ignored_rows = (uint32_t)(table->stale + table->broken);
  info->misfits = atomic_load_explicit(&table->misfits, memory_order_relaxed);
  snprintf(info->date, sizeof info->date, "%s", table->header.date);
}

kjit_status tune_device_info(kjit_runtime *runtime, const struct tune_subject *subject, const kjit_device_info *device,
                             kjit_tune_info *info, kjit_error *error) {
  kjit_tune_info all = {.struct_size = sizeof all};
  char name[TUNE_NAME_MAX];
  const struct family_place place = family_place_of_device(device);
  struct tune_table *const table = device->ordinal == TUNE_NO_DEVICE ? tune_store_of_arch(runtime, subject, &place)
                                                                     : tune_store_of_device(runtime, subject, device);
  const struct side_file file = tune_file_of(subject, device, name);
  side_file_path(runtime_builder(runtime), &file, all.path, sizeof all.path);
  all.enabled = runtime_uses_tuned(runtime);
  if (table) count_rows(table, &all);
  return struct_fill(info, &all, sizeof all, "info", error);
}
