/* Reading the index of a sealed program.
 *
 * The index is text of the form of a key, "tag length:value" line by line (key_reader.h). The distinct files come
 * first, each with digest and length, then the units, each of which names its files by number. Nothing is believed:
 * fields must stand in the grammar's order, numbers must be those of files, names must be such as a request may have,
 * the files behind the first must be sorted by name and distinct, and the lengths of the texts must fit into their
 * bound. Strings are copied with a NUL behind them; all memory belongs to the program. */
#include <stdbool.h>
#include <string.h>

#include "jit/bundle/sealed.h"
#include "jit/key/key_reader.h"

#define DEFINE "#define "

struct index_reader {
  struct sealed *sealed;
  struct key_reader reader;
  struct key_field field; /* the one that was read last */
  bool ended;
  bool no_memory;
};

static void advance(struct index_reader *in) {
  in->ended = !key_reader_next(&in->reader, &in->field);
}

static bool at(const struct index_reader *in, const char *tag) {
  return !in->ended && key_field_is(&in->field, tag);
}

static void *allocate(struct index_reader *in, size_t count, size_t size) {
  void *memory = sealed_alloc(in->sealed, count, size);
  in->no_memory |= !memory;
  return memory;
}

/* The value of a field with this tag, and on to the next field. NULL: another field, a NUL inside, or out of memory. */
static const char *take(struct index_reader *in, const char *tag) {
  if (!at(in, tag) || memchr(in->field.value, '\0', in->field.value_bytes)) return NULL;
  char *copy = allocate(in, in->field.value_bytes + 1, 1);
  if (!copy) return NULL;
  memcpy(copy, in->field.value, in->field.value_bytes);
  advance(in);
  return copy;
}

/* Decimal without leading zeros, at most `most`; stops behind the digits. */
static bool read_number(const char **text, size_t most, size_t *number) {
  const char *start = *text;
  *number = 0;
  for (; **text >= '0' && **text <= '9'; ++*text) {
    *number = *number * 10 + (size_t)(**text - '0');
    if (*number > most || (*start == '0' && *text > start)) return false;
  }
  return *text > start;
}

/* -- Files -------------------------------------------------------------------------------------------------------- */

static const char *read_file(struct index_reader *in, struct source_file *file) {
  file->name = take(in, SEALED_TAG_SOURCE);
  const char *digest = file->name ? take(in, SEALED_TAG_DIGEST) : NULL;
  const char *length = digest ? take(in, SEALED_TAG_LENGTH) : NULL;
  if (!length) return "the index names a file without its digest and length";
  if (!*file->name) return "the index has a file without a name";
  if (!digest_from_hex(&file->digest, digest, strlen(digest))) return "a digest in the index is malformed";
  if (!read_number(&length, SEALED_MAX_BYTES, &file->bytes) || *length) return "a length in the index is malformed";
  in->sealed->texts_bytes += file->bytes + 1;
  return in->sealed->texts_bytes > SEALED_MAX_BYTES ? "its texts are larger than a program's may be" : NULL;
}

static size_t count_fields(const struct index_reader *in, const char *tag, const char *last) {
  struct key_reader ahead = in->reader;
  struct key_field field = in->field;
  size_t count = 0;
  bool more = !in->ended;
  for (; more && !(last && key_field_is(&field, last)); more = key_reader_next(&ahead, &field))
    count += key_field_is(&field, tag);
  return count;
}

static const char *read_files(struct index_reader *in) {
  struct sealed *sealed = in->sealed;
  const size_t count = count_fields(in, SEALED_TAG_SOURCE, SEALED_TAG_LABEL);
  if (!count || count > SEALED_MAX_FILES) return "the index names no file, or more than a program may have";
  sealed->files = allocate(in, count, sizeof *sealed->files);
  if (!sealed->files) return NULL;
  const char *damage = NULL;
  for (; sealed->file_count < count && !damage; sealed->file_count++)
    damage = read_file(in, &sealed->files[sealed->file_count]);
  return damage;
}

/* -- Units -------------------------------------------------------------------------------------------------------- */

/* All the values of a repeated field. False: malformed or out of memory. */
static bool take_list(struct index_reader *in, const char *tag, const char ***list, size_t *count) {
  const size_t wanted = count_fields(in, tag, SEALED_TAG_FILES);
  *list = allocate(in, wanted + 1, sizeof **list);
  if (!*list) return false;
  for (*count = 0; at(in, tag); ++*count) {
    if (*count >= wanted) return false;
    (*list)[*count] = take(in, tag);
    if (!(*list)[*count]) return false;
  }
  return true;
}

/* The defines that a prologue begins with, for comparing them with a caller's. */
static bool read_defines(struct index_reader *in, struct sealed_unit *unit) {
  size_t lines = 0;
  for (const char *at = unit->prologue; (at = strchr(at, '\n')); at++)
    lines++;
  unit->defines = allocate(in, lines + 1, sizeof *unit->defines);
  char *text = allocate(in, strlen(unit->prologue) + 1, 1);
  if (!unit->defines || !text) return false;
  memcpy(text, unit->prologue, strlen(unit->prologue));
  while (!strncmp(text, DEFINE, sizeof DEFINE - 1)) {
    char *name = text + sizeof DEFINE - 1, *end = strchr(name, '\n'), *space = strchr(name, ' ');
    if (!end || !space || space > end) return false;
    *end = *space = '\0';
    unit->defines[unit->define_count++] = (kjit_define){name, space + 1};
    text = end + 1;
  }
  return true;
}

static bool read_numbers(struct index_reader *in, struct sealed_unit *unit, const char *text) {
  const struct sealed *sealed = in->sealed;
  size_t count = 1;
  for (const char *space = text; (space = strchr(space, ' ')); space++)
    count++;
  if (count > SEALED_MAX_UNIT_FILES) return false;
  unit->numbers = allocate(in, count, sizeof *unit->numbers);
  unit->list = allocate(in, count, sizeof *unit->list);
  if (!unit->numbers || !unit->list) return false;
  for (size_t i = 0; i < count; i++) {
    size_t number;
    if ((i && *text++ != ' ') || !read_number(&text, sealed->file_count - 1, &number)) return false;
    unit->numbers[i] = (uint32_t)number;
    unit->list[i] = sealed->files[number];
    if (i > 1 && strcmp(unit->list[i - 1].name, unit->list[i].name) >= 0) return false;
  }
  if (*text) return false;
  in->no_memory = !source_set_seal(&unit->set, unit->list, count, sealed->mem);
  unit->set.withheld = true;
  return !in->no_memory;
}

static const char *read_unit(struct index_reader *in, struct sealed_unit *unit) {
  unit->label = take(in, SEALED_TAG_LABEL);
  const char *target = unit->label ? take(in, SEALED_TAG_TARGET) : NULL;
  if (!target) return "the index has something else where a unit's label and target belong";
  if (target_parse(&unit->target, target, NULL) != KJIT_OK) return "the index names no architecture";
  if (!take_list(in, SEALED_TAG_OPTION, &unit->options, &unit->option_count)) return "an option is malformed";
  if (!take_list(in, SEALED_TAG_NAME, &unit->names, &unit->name_count)) return "a name is malformed";
  unit->prologue = take(in, SEALED_TAG_PROLOGUE);
  if (!unit->prologue) return "a unit of the index has no prologue";
  if (!read_defines(in, unit)) return "a prologue in the index is malformed";
  if (!take_list(in, SEALED_TAG_ENTRY, &unit->entries, &unit->entry_count) || !unit->entry_count)
    return "a unit of the index has no kernel";
  const char *files = take(in, SEALED_TAG_FILES);
  if (!files) return "a unit of the index names no files";
  return read_numbers(in, unit, files) ? NULL : "the numbers of a unit's files are malformed";
}

static const char *read_units(struct index_reader *in) {
  struct sealed *sealed = in->sealed;
  const size_t count = count_fields(in, SEALED_TAG_LABEL, NULL);
  if (!count || count > SEALED_MAX_UNITS) return "the index has no unit, or more than a program may have";
  sealed->units = allocate(in, count, sizeof *sealed->units);
  if (!sealed->units) return NULL;
  const char *damage = NULL;
  for (; sealed->unit_count < count && !damage; sealed->unit_count++)
    damage = read_unit(in, &sealed->units[sealed->unit_count]);
  return damage;
}

const char *sealed_index_read(struct sealed *sealed, size_t index_bytes, bool *no_memory) {
  const size_t head = sizeof SEALED_INDEX_HEAD - 1;
  struct index_reader in = {.sealed = sealed, .reader = {sealed->index, index_bytes, head, 1}};
  if (index_bytes < head || memcmp(sealed->index, SEALED_INDEX_HEAD, head))
    return "the index does not begin as it must";
  advance(&in);
  const char *damage = read_files(&in);
  if (!damage && !in.no_memory) damage = read_units(&in);
  if (!damage && !in.no_memory && (!in.ended || !in.reader.sound)) damage = "the index does not end where it must";
  *no_memory = in.no_memory;
  return in.no_memory ? NULL : damage;
}
