/* Puts a measured result into a table: as the text of a table with the row in it, or by replacing the user's file under
 * its lock. Threads: the lock on the file keeps writers apart, in this process and in others; readers see the old file
 * or the new one. */
#include "family/tune/tune_update.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "family/config.h"
#include "family/tune/tune_text.h"

/* Largest median that is accepted: one day. */
#define MOST_MICROSECONDS 86400e6

static void write_date(char date[11]) {
  const time_t now = time(NULL);
  struct tm utc;
  memcpy(date, "1970-01-01", 11);
  if (gmtime_r(&now, &utc)) (void)strftime(date, 11, "%Y-%m-%d", &utc);
}

static kjit_status take_time(double microseconds, const char *member, uint64_t *ns, kjit_error *error) {
  if (!(microseconds >= 0.001 && microseconds <= MOST_MICROSECONDS))
    return error_set(error, KJIT_ERR_INVALID_ARG, "result.%s is %g: must be from 0.001 to %g", member, microseconds,
                     MOST_MICROSECONDS);
  *ns = (uint64_t)(microseconds * 1000 + 0.5);
  return KJIT_OK;
}

/* Set the fields that the class decides to the class's values, because a row's config serves its whole class. */
static void put_class(const struct tune_subject *subject, struct tune_row *row) {
  const struct field_table *fields = &row->family->table;
  for (size_t i = 0; i < fields->count; i++) {
    int32_t given;
    if (subject->gives(subject, row->class, &fields->fields[i], &given))
      field_put(&fields->fields[i], row->values, given);
  }
}

/* Check the times and make a row. Without a config the row says that the rules' choice stays. */
static kjit_status take_measured(const struct tune_subject *subject, const struct tune_measured *measured,
                                 struct tune_row *row, kjit_error *error) {
  *row = (struct tune_row){.origin = TUNE_USER, .family = measured->family, .rules = !measured->family};
  kjit_status status = take_time(measured->microseconds, "microseconds", &row->ns, error);
  if (status == KJIT_OK) status = take_time(measured->rules_microseconds, "rules_microseconds", &row->rules_ns, error);
  if (status != KJIT_OK) return status;
  memcpy(row->class, measured->class, subject->class->config_bytes);
  if (row->rules) return KJIT_OK;
  memcpy(row->values, measured->values, row->family->table.config_bytes);
  put_class(subject, row);
  return KJIT_OK;
}

kjit_status tune_update_init(struct tune_update *update, const struct tune_places *places,
                             const kjit_device_info *device, const struct tune_measured *measured, kjit_error *error) {
  update->place = family_place_of_device(device);
  kjit_status status = take_measured(places->subject, measured, &update->row, error);
  if (status == KJIT_OK) status = tune_row_check(places->subject, &update->row, &update->place, error);
  if (status == KJIT_OK) status = tune_header_of(places, device, &update->header, error);
  write_date(update->header.date);
  return status;
}

/* Read the rows that the table has and that still hold. */
static kjit_status read_before(const struct tune_update *update, struct tune_table *table, const char *before,
                               size_t bytes, kjit_error *error) {
  struct tune_header header;
  kjit_status status = tune_text_read_header(table->subject, before, bytes, &header, error);
  if (status != KJIT_OK || !tune_header_holds(&header, &update->header, 0)) return status;
  return tune_text_read(table, before, bytes, update->header.kernels, &update->place, TUNE_USER, error);
}

kjit_status tune_update_print(const struct tune_update *update, const struct tune_places *places, const char *before,
                              size_t bytes, struct text *out, kjit_error *error) {
  struct tune_table *table = tune_table_create(places->mem, places->subject);
  if (!table) return error_no_memory(error);
  kjit_status status = before ? read_before(update, table, before, bytes, error) : KJIT_OK;
  if (status == KJIT_OK) status = tune_table_add(table, &update->row, 1, error);
  if (status == KJIT_OK) {
    table->header = update->header;
    tune_text_write(table, out);
    if (out->failed) status = error_no_memory(error);
  }
  tune_table_destroy(table);
  return status;
}

/* Replace the file. The caller holds its lock. */
static kjit_status replace(const struct tune_update *update, const struct tune_places *places,
                           const struct side_file *file, kjit_error *error) {
  struct text out;
  kjit_error damage = {0};
  char *before = NULL;
  size_t bytes = 0;
  text_init(&out, places->mem, TUNE_TEXT_MAX);
  kjit_status status = side_file_read(places->builder, KJIT_ORIGIN_USER, file, &before, &bytes, error);
  if (status != KJIT_OK && status != KJIT_ERR_NOT_FOUND) goto done;
  status = tune_update_print(update, places, before, bytes, &out, &damage);
  if (status == KJIT_ERR_PARSE) {
    log_write(places->log, KJIT_LOG_WARNING, "tuned table %s is damaged and begun anew: %s", file->name,
              damage.message);
    text_finish(&out);
    text_init(&out, places->mem, TUNE_TEXT_MAX);
    damage = (kjit_error){0};
    status = tune_update_print(update, places, NULL, 0, &out, &damage);
  }
  if (status == KJIT_OK)
    status = side_file_replace(places->builder, file, out.data, out.bytes, error);
  else
    error_set(error, status, "%s", damage.message);

done:
  text_finish(&out);
  mem_free(places->mem, before);
  return status;
}

kjit_status tune_update_publish(const struct tune_update *update, const struct tune_places *places,
                                const kjit_device_info *device, kjit_error *error) {
  char name[TUNE_NAME_MAX];
  struct side_file_lock *lock = NULL;
  const struct side_file file = tune_file_of(places->subject, device, name);
  kjit_status status = side_file_lock(places->builder, &file, &lock, error);
  if (status != KJIT_OK) return status;
  status = replace(update, places, &file, error);
  side_file_unlock(lock);
  return status;
}
