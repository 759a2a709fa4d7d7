/* Loads a card's tuned table: the user's rows first, then the site's, then the ones that the library ships; the first
 * row of a class stays. A table that is damaged, or was measured elsewhere, is logged and left out. Each call makes a
 * table of its own; any thread. */
#include "family/tune/tune_load.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/config.h"
#include "family/config_build.h"
#include "family/tune/tune_text.h"
#include "runtime/card.h"

#define FOLDER "tuned"

/* How much of a device's name is in a file's name; the whole name is in the file. */
#define NAME_SHOWN 80

/* Digest each family's sources, by which a table says which kernels it was measured on. */
static kjit_status digest_kernels(const struct tune_places *places, struct digest kernels[TUNE_FAMILIES_MAX],
                                  kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < places->subject->family_count && status == KJIT_OK; i++)
    status = places->subject->digest(places->subject, i, places->builder, &kernels[i], error);
  return status;
}

static void describe_device(const kjit_device_info *device, struct tune_header *out) {
  *out = (struct tune_header){.multiprocessors = device->multiprocessors, .driver = device->driver_version};
  snprintf(out->device, sizeof out->device, "%s", device->name);
  snprintf(out->arch, sizeof out->arch, "%s", device->arch_specific);
  snprintf(out->library, sizeof out->library, "%s", kjit_version());
}

kjit_status tune_header_of(const struct tune_places *places, const kjit_device_info *device, struct tune_header *out,
                           kjit_error *error) {
  kjit_doctor_report report = {0};
  describe_device(device, out);
  builder_doctor(places->builder, &report);
  snprintf(out->compiler, sizeof out->compiler, "-");
  if (report.nvrtc_status == KJIT_OK)
    snprintf(out->compiler, sizeof out->compiler, "%d.%d", report.nvrtc_major, report.nvrtc_minor);
  return digest_kernels(places, out->kernels, error);
}

/* Append the text in lower case, with "-" for everything that is neither a letter nor a digit. */
static void append_slug(const char *text, struct text *out) {
  for (size_t i = 0; text[i] && i < NAME_SHOWN; i++) {
    const unsigned char c = (unsigned char)text[i];
    const char slug = (char)(c < 0x80 && isalnum(c) ? tolower(c) : '-');
    text_append_bytes(out, &slug, 1);
  }
}

struct side_file tune_file_of(const struct tune_subject *subject, const kjit_device_info *device,
                              char name[TUNE_NAME_MAX]) {
  struct text out;
  text_init_fixed(&out, name, TUNE_NAME_MAX);
  text_append(&out, subject->prefix);
  append_slug(device->name, &out);
  text_appendf(&out, "-%s-%u-cuda%u.%u-kjit%s.kjit-tuned", device->arch_specific, device->multiprocessors,
               device->driver_version / 1000, device->driver_version % 1000 / 10, kjit_version());
  return (struct side_file){.folder = FOLDER, .name = name, .limit = TUNE_TEXT_MAX};
}

kjit_device_info tune_device_of_place(const struct family_place *place) {
  kjit_device_info device = {.struct_size = sizeof device,
                             .ordinal = TUNE_NO_DEVICE,
                             .multiprocessors = place->sm_count,
                             .max_shared_per_block = place->shared_per_block,
                             .l2_bytes = place->figures.l2_bytes,
                             .memory_gb_s = place->figures.memory_gb_s,
                             .load_mhz = place->figures.load_mhz,
                             .tensor_flops = place->figures.tensor_flops};
  snprintf(device.name, sizeof device.name, "any");
  snprintf(device.arch, sizeof device.arch, "%s", place->arch);
  snprintf(device.arch_specific, sizeof device.arch_specific, "%s", place->arch);
  return device;
}

bool tune_header_holds(const struct tune_header *a, const struct tune_header *b, bool shipped) {
  if (strcmp(a->device, b->device) != 0 || strcmp(a->arch, b->arch) != 0 || a->multiprocessors != b->multiprocessors)
    return false;
  return shipped || (a->driver == b->driver && strcmp(a->library, b->library) == 0);
}

/* One table's text, and how it is treated. */
struct found {
  const char *text;
  size_t bytes;
  const char *name; /* for messages */
  enum tune_origin origin;
};

static void complain(const struct tune_places *places, const struct found *found, const char *why) {
  log_write(places->log, KJIT_LOG_WARNING, "tuned table %s is not used: %s", found->name, why);
}

/* Add the rows whose class `into` does not have yet. */
static kjit_status merge(struct tune_table *into, const struct tune_table *from) {
  kjit_status status = KJIT_OK;
  for (const struct tune_row *row = from->rows; row && status == KJIT_OK; row = row->hh.next)
    status = tune_table_add(into, row, 0, NULL);
  into->stale += from->stale;
  into->broken += from->broken;
  return status == KJIT_ERR_NO_MEMORY ? status : KJIT_OK;
}

/* Read one table into the result. The first one that is found gives the result its header. KJIT_ERR_NO_MEMORY, or
 * KJIT_OK whatever is wrong with the table. */
static kjit_status take(const struct tune_places *places, const struct found *found, const struct family_place *place,
                        struct tune_table *into) {
  struct digest kernels[TUNE_FAMILIES_MAX];
  kjit_error error = {0};
  struct tune_table *table = tune_table_create(places->mem, places->subject);
  if (!table) return KJIT_ERR_NO_MEMORY;
  kjit_status status = digest_kernels(places, kernels, &error);
  if (status == KJIT_OK)
    status = tune_text_read(table, found->text, found->bytes, kernels, place, found->origin, &error);
  if (status == KJIT_OK) {
    if (!into->header.device[0]) into->header = table->header;
    status = merge(into, table);
  } else if (status != KJIT_ERR_NO_MEMORY) {
    complain(places, found, error.message);
    status = KJIT_OK;
  }
  tune_table_destroy(table);
  return status;
}

/* Read a folder's table. Its name says which card it is for, and its header must agree. */
static kjit_status take_file(const struct tune_places *places, kjit_origin tier, enum tune_origin origin,
                             const kjit_device_info *device, const struct family_place *place,
                             struct tune_table *into) {
  char name[TUNE_NAME_MAX], *data = NULL;
  struct found found = {.name = name, .origin = origin};
  struct tune_header header, wanted;
  kjit_error error = {0};
  const struct side_file file = tune_file_of(places->subject, device, name);
  kjit_status status = side_file_read(places->builder, tier, &file, &data, &found.bytes, &error);
  if (status == KJIT_ERR_NOT_FOUND) return KJIT_OK;
  found.text = data;
  if (status == KJIT_OK) status = tune_text_read_header(places->subject, data, found.bytes, &header, &error);
  describe_device(device, &wanted);
  if (status == KJIT_OK && tune_header_holds(&header, &wanted, 0))
    status = take(places, &found, place, into);
  else
    complain(places, &found, status == KJIT_OK ? "it was measured on another card, driver or library" : error.message);
  mem_free(places->mem, data);
  return status == KJIT_ERR_NO_MEMORY ? status : KJIT_OK;
}

/* The number of the shipped table that is for this card or, when `wanted` has no device's name, for its architecture:
 * of several the one of the card that the rules were measured on. The number of tables if there is none. */
static size_t find_shipped(const struct tune_places *places, const char *texts, const struct tune_header *wanted) {
  const struct tune_shipped *shipped = &places->shipped;
  size_t found = shipped->count;
  for (size_t i = 0; i < shipped->count; i++) {
    const struct embedded_source *file = &shipped->files[i];
    struct tune_header header;
    if (tune_text_read_header(places->subject, texts + file->offset, file->bytes, &header, NULL) != KJIT_OK) continue;
    if (wanted->device[0] ? !tune_header_holds(&header, wanted, 1) : strcmp(header.arch, wanted->arch) != 0) continue;
    if (wanted->device[0] || !strcmp(header.device, CARD_USUAL_DEVICE)) return i;
    if (found == shipped->count) found = i;
  }
  return found;
}

/* Add the rows of the shipped table that is for this card. */
static kjit_status take_shipped(const struct tune_places *places, const struct tune_header *wanted,
                                const struct family_place *place, struct tune_table *into) {
  const struct tune_shipped *shipped = &places->shipped;
  if (!shipped->count) return KJIT_OK;
  char *texts = tune_shipped_unpack(shipped, places->mem);
  if (!texts) return KJIT_ERR_NO_MEMORY;
  kjit_status status = KJIT_OK;
  const size_t at = find_shipped(places, texts, wanted);
  if (at < shipped->count) {
    const struct embedded_source *file = &shipped->files[at];
    const struct found found = {texts + file->offset, file->bytes, file->name, TUNE_SHIPPED};
    status = take(places, &found, place, into);
  }
  mem_free(places->mem, texts);
  return status;
}

static struct tune_table *keep(struct tune_table *table, kjit_status status) {
  if (status == KJIT_OK) return table;
  tune_table_destroy(table);
  return NULL;
}

struct tune_table *tune_load_of_device(const struct tune_places *places, const kjit_device_info *device) {
  const struct family_place place = family_place_of_device(device);
  struct tune_header wanted;
  struct tune_table *table = tune_table_create(places->mem, places->subject);
  if (!table) return NULL;
  describe_device(device, &wanted);
  kjit_status status = take_file(places, KJIT_ORIGIN_USER, TUNE_USER, device, &place, table);
  if (status == KJIT_OK) status = take_file(places, KJIT_ORIGIN_SITE, TUNE_SITE, device, &place, table);
  if (status == KJIT_OK) status = take_shipped(places, &wanted, &place, table);
  return keep(table, status);
}

struct tune_table *tune_load_of_arch(const struct tune_places *places, const struct family_place *place) {
  const kjit_device_info device = tune_device_of_place(place);
  struct tune_header wanted = {0};
  struct tune_table *table = tune_table_create(places->mem, places->subject);
  kjit_status status = KJIT_OK;
  if (!table) return NULL;
  snprintf(wanted.arch, sizeof wanted.arch, "%s", place->arch);
  if (places->subject->has_arch_tables) {
    status = take_file(places, KJIT_ORIGIN_USER, TUNE_USER, &device, place, table);
    if (status == KJIT_OK) status = take_file(places, KJIT_ORIGIN_SITE, TUNE_SITE, &device, place, table);
  }
  return keep(table, status == KJIT_OK ? take_shipped(places, &wanted, place, table) : status);
}
