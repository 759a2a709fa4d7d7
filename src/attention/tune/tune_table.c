/* Tuned tables in memory: rows by class, in a hash table. Most problems have no row; a bit array tells most of those
 * before any row is looked at, since a look-up is on the launch path.
 *
 * Threads: a table is filled by one thread and then only read, except for its count of misfits, which is atomic. */
#include "attention/attention_choose.h"

#include <string.h>

/* uthash allocates by the table's allocator. Running out of memory is an error then, and does not end the process. */
#define HASH_NONFATAL_OOM          1
#define uthash_malloc(bytes)       mem_alloc(table->mem, bytes)
#define uthash_free(memory, bytes) mem_free(table->mem, memory)
#define uthash_nonfatal_oom(row)   (added = 0)
#include "attention/tune/tune_table.h"

#include "base/error.h"
#include "base/hash.h"
#include "family/config.h"

struct tune_table *tune_table_create(const struct mem *mem) {
  struct tune_table *table = mem_alloc(mem, sizeof *table);
  if (table) table->mem = mem;
  return table;
}

void tune_table_destroy(struct tune_table *table) {
  struct tune_row *row, *next;
  if (!table) return;
  HASH_ITER(hh, table->rows, row, next) {
    HASH_DEL(table->rows, row);
    mem_free(table->mem, row);
  }
  mem_free(table->mem, table);
}

static unsigned hash(const struct tune_class *class) {
  return (unsigned)hash_64(class, sizeof *class);
}

static struct tune_row *find(const struct tune_table *table, const struct tune_class *class) {
  struct tune_row *row;
  const unsigned hashed = hash(class), bit = hashed % TUNE_SEEN_BITS;
  if (!(table->seen[bit / 64] >> bit % 64 & 1)) return NULL;
  HASH_FIND_BYHASHVALUE(hh, table->rows, class, sizeof *class, hashed, row);
  return row;
}

static bool insert(struct tune_table *table, struct tune_row *row) {
  bool added = true;
  const unsigned hashed = hash(&row->class), bit = hashed % TUNE_SEEN_BITS;
  HASH_ADD_BYHASHVALUE(hh, table->rows, class, sizeof row->class, hashed, row);
  table->seen[bit / 64] |= UINT64_C(1) << bit % 64;
  return added;
}

static void replace_content(struct tune_table *table, struct tune_row *old, const struct tune_row *row) {
  const UT_hash_handle hh = old->hh;
  table->rows_of[old->origin]--;
  table->rows_of[row->origin]++;
  *old = *row;
  old->hh = hh;
}

kjit_status tune_table_add(struct tune_table *table, const struct tune_row *row, bool replace, kjit_error *error) {
  struct tune_row *old = find(table, &row->class);
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

const struct tune_row *tune_table_find(const struct tune_table *table, const struct tune_class *class) {
  return find(table, class);
}

/* The choice for a problem, if a row has one. A row serves a whole class, so its config is fitted to this problem and
 * checked; if it does not fit, that is counted and the rules decide. */
bool tune_table_choose(struct tune_table *table, const kjit_attention_problem *problem, struct attention_choice *out) {
  struct tune_class class;
  if (!table->count) return false;
  tune_class_of(problem, &class);
  const struct tune_row *row = find(table, &class);
  if (!row || row->rules) return false;
  *out = row->choice;
  const kjit_family *family = out->family->family;
  if (out->family->fit(problem, out->values, NULL) == KJIT_OK && family->check(family, out->values, NULL) == KJIT_OK)
    return true;
  memset(out, 0, sizeof *out);
  atomic_fetch_add_explicit(&table->misfits, 1, memory_order_relaxed);
  return false;
}

static bool find_choice(void *table, const kjit_attention_problem *problem, struct attention_choice *out) {
  return tune_table_choose(table, problem, out);
}

struct attention_measured tune_table_measured(struct tune_table *table) {
  return (struct attention_measured){table ? find_choice : NULL, table};
}

size_t tune_family_index(const struct attention_family *family) {
  size_t i = 0;
  while (attention_families[i] != family)
    i++;
  return i;
}

/* Check that the row's config has the values that its class decides. */
static kjit_status check_given(const struct tune_row *row, const struct field_table *fields, kjit_error *error) {
  for (size_t i = 0; i < fields->count; i++) {
    int32_t given;
    const int32_t value = field_get(&fields->fields[i], row->choice.values);
    if (tune_class_gives(&row->class, &fields->fields[i], &given) && given != value)
      return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be the class's, %d", fields->fields[i].name,
                       (int)value, (int)given);
  }
  return KJIT_OK;
}

kjit_status tune_row_check(const struct tune_row *row, const struct family_place *place, kjit_error *error) {
  int32_t canonical[ATTENTION_FIELDS_MAX];
  kjit_status status = tune_class_check(&row->class, error);
  if (status != KJIT_OK || row->rules) return status;
  const kjit_family *family = row->choice.family->family;
  status = config_check(family, row->choice.values, place, error);
  if (status == KJIT_OK) status = check_given(row, &family->table, error);
  if (status != KJIT_OK) return status;
  memcpy(canonical, row->choice.values, sizeof canonical);
  config_canonicalize(family, canonical);
  if (field_table_compare(&family->table, row->choice.values, canonical) == 0) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "the config is not in its canonical form");
}

static int compare_rows(const struct tune_row *a, const struct tune_row *b) {
  return field_table_compare(&tune_class_fields, &a->class, &b->class);
}

void tune_table_sort(struct tune_table *table) {
  HASH_SORT(table->rows, compare_rows);
}
