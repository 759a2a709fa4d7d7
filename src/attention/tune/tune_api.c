/* The public functions of include/kjit/tune.h. Each checks and copies its arguments and hands them to the files beside
 * this one. Any thread: everything belongs to the call, except the runtime's tables, which tune_store.h guards. */
#include <kjit/tune.h>

#include <stdio.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/tune/tune_candidates.h"
#include "attention/tune/tune_store.h"
#include "attention/tune/tune_text.h"
#include "attention/tune/tune_update.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "runtime/runtime_internal.h"

_Static_assert(KJIT_TUNE_CLASS_TEXT_MAX == TUNE_CLASS_TEXT_MAX, "every class as text fits");

/* The smallest kjit_device_info that is accepted. */
#define DEVICE_OLDEST_BYTES sizeof(kjit_device_info)

static kjit_status take_device(const kjit_runtime *runtime, const kjit_device_info *given, kjit_device_info *out,
                               kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  const kjit_status status = struct_intake(out, sizeof *out, given, DEVICE_OLDEST_BYTES, "device", error);
  if (status != KJIT_OK) return status;
  if (!memchr(out->name, '\0', sizeof out->name) || !memchr(out->arch, '\0', sizeof out->arch) ||
      !memchr(out->arch_specific, '\0', sizeof out->arch_specific))
    return error_invalid(error, "device", "its texts must end in NUL");
  return out->name[0] && out->arch_specific[0] ? KJIT_OK : error_invalid(error, "device", "has no name or arch");
}

/* ---- The table in use ---- */

static void count_rows(struct tune_table *table, kjit_tune_info *info) {
  info->user_rows = (uint32_t)table->rows_of[TUNE_USER];
  info->site_rows = (uint32_t)table->rows_of[TUNE_SITE];
  info->shipped_rows = (uint32_t)table->rows_of[TUNE_SHIPPED];
  info->ignored_rows = (uint32_t)(table->stale + table->broken);
  info->misfits = atomic_load_explicit(&table->misfits, memory_order_relaxed);
  snprintf(info->date, sizeof info->date, "%s", table->header.date);
}

kjit_status kjit_tune_get_info(kjit_runtime *runtime, const kjit_device_info *device, kjit_tune_info *info,
                               kjit_error *error) {
  kjit_tune_info all = {.struct_size = sizeof all};
  kjit_device_info known;
  char name[TUNE_NAME_MAX];
  error_clear(error);
  const kjit_status status = take_device(runtime, device, &known, error);
  if (status != KJIT_OK) return status;
  struct tune_table *table = tune_store_of_device(runtime, &known);
  const struct side_file file = tune_file_of(&known, name);
  side_file_path(runtime_builder(runtime), &file, all.path, sizeof all.path);
  all.enabled = runtime_uses_tuned(runtime);
  if (table) count_rows(table, &all);
  return struct_fill(info, &all, sizeof all, "info", error);
}

kjit_status kjit_tune_class(const kjit_attention_problem *problem, char *text, size_t capacity, kjit_error *error) {
  kjit_attention_problem taken;
  struct tune_class class;
  error_clear(error);
  if (!text || capacity < KJIT_TUNE_CLASS_TEXT_MAX)
    return error_invalid(error, "text", "must have room for KJIT_TUNE_CLASS_TEXT_MAX bytes");
  *text = '\0';
  const kjit_status status = attention_problem_take(&taken, problem, error);
  if (status != KJIT_OK) return status;
  tune_class_of(&taken, &class);
  tune_text_print_class(&class, text);
  return KJIT_OK;
}

/* ---- Candidates ---- */

struct kjit_tune_candidates {
  const struct mem *mem;
  struct tune_candidates made;
  kjit_tune_candidate *shown; /* made.count */
};

static kjit_status show(kjit_tune_candidates *list, kjit_error *error) {
  const struct tune_candidates *made = &list->made;
  list->shown = mem_alloc_array(list->mem, made->count, sizeof *list->shown);
  if (!list->shown) return error_no_memory(error);
  for (size_t i = 0; i < made->count; i++) {
    kjit_tune_candidate *shown = &list->shown[i];
    shown->config.family = made->family->family;
    memcpy(shown->config.values, made->items[i].values, sizeof made->items[i].values);
    shown->refused = made->items[i].refused;
    shown->changes = made->items[i].changes;
  }
  return KJIT_OK;
}

static kjit_status find_place(kjit_runtime *runtime, const kjit_device_info *device, const char *arch,
                              kjit_device_info *known, struct family_place *place, kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!device && !arch) return error_invalid(error, "arch", "must not be NULL where device is");
  if (!device) return family_place_of_arch(arch, place, error);
  const kjit_status status = take_device(runtime, device, known, error);
  *place = family_place_of_device(known);
  return status;
}

kjit_status kjit_tune_candidates_create(kjit_tune_candidates **out, kjit_runtime *runtime,
                                        const kjit_attention_problem *problem, const kjit_device_info *device,
                                        const char *arch, kjit_error *error) {
  kjit_attention_problem taken;
  kjit_device_info known = {0};
  struct family_place place;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  kjit_status status = find_place(runtime, device, arch, &known, &place, error);
  if (status == KJIT_OK) status = attention_problem_take(&taken, problem, error);
  if (status != KJIT_OK) return status;
  kjit_tune_candidates *list = mem_alloc(runtime_mem(runtime), sizeof *list);
  if (!list) return error_no_memory(error);
  list->mem = runtime_mem(runtime);
  status = tune_candidates_make(&list->made, list->mem, &taken, &place, error);
  if (status == KJIT_OK) status = show(list, error);
  if (status == KJIT_OK)
    *out = list;
  else
    kjit_tune_candidates_destroy(list);
  return status;
}

const kjit_tune_candidate *kjit_tune_candidates_get(const kjit_tune_candidates *list, size_t index) {
  return list && index < list->made.count ? &list->shown[index] : NULL;
}

void kjit_tune_candidates_destroy(kjit_tune_candidates *list) {
  if (!list) return;
  const struct mem *mem = list->mem;
  tune_candidates_finish(&list->made);
  mem_free(mem, list->shown);
  mem_free(mem, list);
}

/* ---- Results ---- */

kjit_status kjit_tune_publish(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                              kjit_error *error) {
  kjit_device_info known;
  struct tune_update update;
  error_clear(error);
  kjit_status status = take_device(runtime, device, &known, error);
  if (status != KJIT_OK) return status;
  const struct tune_places places = tune_store_places(runtime);
  status = tune_update_init(&update, &places, &known, result, error);
  return status == KJIT_OK ? tune_update_publish(&update, &places, &known, error) : status;
}

kjit_status kjit_tune_print(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                            const char *before, char **text, kjit_error *error) {
  kjit_device_info known;
  struct tune_update update;
  struct text out;
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  kjit_status status = take_device(runtime, device, &known, error);
  if (status != KJIT_OK) return status;
  const struct tune_places places = tune_store_places(runtime);
  status = tune_update_init(&update, &places, &known, result, error);
  if (status != KJIT_OK) return status;
  text_init(&out, places.mem, TUNE_TEXT_MAX);
  status = tune_update_print(&update, places.mem, before, before ? strlen(before) : 0, &out, error);
  if (status == KJIT_OK) *text = text_take(&out);
  text_finish(&out);
  return status;
}
