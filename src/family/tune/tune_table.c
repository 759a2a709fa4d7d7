/* Tuned tables in memory: rows by class, in a hash table. Most problems have no row; a bit array tells most of those
 * before any row is looked at, since a look-up is on the launch path.
 *
 * Threads: a table is filled by one thread and then only read, except for its count of misfits, which is atomic. */
#include <string.h>

#include "base/table.h"

#include "family/tune/tune_table.h"

#include "base/error.h"
#include "base/hash.h"
#include "family/config.h"

struct tune_table *tune_table_create(const struct mem *mem, const struct tune_subject *subject) {
  struct tune_table *table = mem_alloc(mem, sizeof *table);
  if (!table) return NULL;
  table->mem = mem;
  table->subject = subject;
  table->class_bytes = subject->class->config_bytes;
  return table;
}

void tune_table_destroy(struct tune_table *table) {
  struct tune_row *row, *next;
  if (!table) return;
  const struct mem *mem = table->mem;
  HASH_ITER(hh, table->rows, row, next) {
    HASH_DEL(table->rows, row);
    mem_free(mem, row);
  }
  mem_free(mem, table);
}

static unsigned hash(const struct tune_table *table, const int32_t *class) {
  return (unsigned)hash_64(class, table->class_bytes);
}

/* A class whose bit is not set has no row. The hash is computed once for the bit and for the table. */
static struct tune_row *find(const struct tune_table *table, const int32_t *class) {
  struct tune_row *row;
  const unsigned hashed = hash(table, class), bit = hashed % TUNE_SEEN_BITS;
  if (!(table->seen[bit / 64] >> bit % 64 & 1)) return NULL;
  HASH_FIND_BYHASHVALUE(hh, table->rows, class, table->class_bytes, hashed, row);
  return row;
}

static bool insert(struct tune_table *table, struct tune_row *row) {
  const struct mem *mem = table->mem;
  bool added = true;
  const unsigned hashed = hash(table, row->class), bit = hashed % TUNE_SEEN_BITS;
  HASH_ADD_KEYPTR_BYHASHVALUE(hh, table->rows, row->class, table->class_bytes, hashed, row);
  table->seen[bit / 64] |= UINT64_C(1) << bit % 64;
  return added;
}

/* The row keeps its place in the hash table, whose links lie in the row itself. */
static void replace_content(struct tune_table *table, struct tune_row *old, const struct tune_row *row) {
  const UT_hash_handle hh = old->hh;
  table->rows_of[old->origin]--;
  table->rows_of[row->origin]++;
  *old = *row;
  old->hh = hh;
}

/* Tables are read from the most specific to the most general, so a class that is already there is kept unless the
 * caller says otherwise. */
kjit_status tune_table_add(struct tune_table *table, const struct tune_row *row, bool replace, kjit_error *error) {
  struct tune_row *old = find(table, row->class);
  if (old) {
    if (replace) replace_content(table, old, row);
    return KJIT_OK;
  }
  if (table->count >= TUNE_ROWS_MAX)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "a tuned table has at most %d rows", TUNE_ROWS_MAX);
  struct tune_row *copy = mem_duplicate(table->mem, row, sizeof *row);
  if (!copy) return error_no_memory(error);
  if (!insert(table, copy)) {
    mem_free(table->mem, copy);
    return error_no_memory(error);
  }
  table->count++;
  table->rows_of[row->origin]++;
  return KJIT_OK;
}

const struct tune_row *tune_table_find(const struct tune_table *table, const int32_t *class) {
  return find(table, class);
}

void tune_table_count_misfit(struct tune_table *table) {
  atomic_fetch_add_explicit(&table->misfits, 1, memory_order_relaxed);
}

size_t tune_subject_find(const struct tune_subject *subject, const char *name, size_t bytes) {
  for (size_t i = 0; i < subject->family_count; i++) {
    const char *known = subject->families[i]->table.family;
    if (strlen(known) == bytes && !memcmp(known, name, bytes)) return i;
  }
  return subject->family_count;
}

/* Check that the row's config has the values that its class decides. */
static kjit_status check_given(const struct tune_subject *subject, const struct tune_row *row,
                               const struct field_table *fields, kjit_error *error) {
  for (size_t i = 0; i < fields->count; i++) {
    int32_t given;
    const int32_t value = field_get(&fields->fields[i], row->values);
    if (subject->gives(subject, row->class, &fields->fields[i], &given) && given != value)
      return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be the class's, %d", fields->fields[i].name,
                       (int)value, (int)given);
  }
  return KJIT_OK;
}

kjit_status tune_row_check(const struct tune_subject *subject, const struct tune_row *row,
                           const struct family_place *place, kjit_error *error) {
  int32_t canonical[KJIT_FIELD_COUNT_MAX];
  kjit_status status = subject->check(subject, row->class, error);
  if (status != KJIT_OK || row->rules) return status;
  const kjit_family *family = row->family;
  status = config_check(family, row->values, place, error);
  if (status == KJIT_OK) status = check_given(subject, row, &family->table, error);
  if (status != KJIT_OK) return status;
  memcpy(canonical, row->values, sizeof canonical);
  config_canonicalize(family, canonical);
  if (field_table_compare(&family->table, row->values, canonical) == 0) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "the config is not in its canonical form");
}

/* uthash's sort passes nothing but the rows, and classes of one table have as many members each. */
static int compare_rows(const struct tune_row *a, const struct tune_row *b) {
  for (size_t i = 0; i < TUNE_CLASS_MAX; i++) {
    if (a->class[i] != b->class[i]) return a->class[i] < b->class[i] ? -1 : 1;
  }
  return 0;
}

void tune_table_sort(struct tune_table *table) {
  HASH_SORT(table->rows, compare_rows);
}
