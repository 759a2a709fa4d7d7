/* A tuned table: classes of problems to what was measured fastest for them on one kind of card. */
#ifndef KJIT_FAMILY_TUNE_TUNE_TABLE_H
#define KJIT_FAMILY_TUNE_TUNE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <uthash.h>

#include "base/digest.h"
#include "base/mem.h"
#include "family/tune_subject.h"

/* Most rows: many times the classes that anybody measures. It bounds what a file can make this library hold, to 9 MiB.
 */
#define TUNE_ROWS_MAX 16384

/* Where a table comes from. The row of a lower one counts. */
enum tune_origin { TUNE_USER, TUNE_SITE, TUNE_SHIPPED, TUNE_ORIGINS };

/* Where and with what a table was measured. Two headers that are equal but for compiler and date are of one table. */
struct tune_header {
  char device[128]; /* as the driver calls it */
  char arch[16];    /* with its own features: "sm_90a" */
  uint32_t multiprocessors;
  uint32_t driver;                          /* CUDA's encoding */
  char library[32];                         /* kjit_version() */
  char compiler[32];                        /* for people: "13.0"; "-" when it was not known */
  char date[11];                            /* for people: "2026-11-21", UTC */
  struct digest kernels[TUNE_FAMILIES_MAX]; /* of each family's sources */
};

struct tune_row {
  int32_t class[TUNE_CLASS_MAX];        /* as the subject's table says; the rest is 0 */
  const kjit_family *family;            /* of the config; NULL where `rules` */
  int32_t values[KJIT_FIELD_COUNT_MAX]; /* canonical */
  bool rules;                           /* measured, and the rules' choice was not beaten */
  enum tune_origin origin;
  uint64_t ns, rules_ns; /* medians of this choice and of the rules' choice */
  UT_hash_handle hh;
};

/* Bits of the array that tells most classes without a row. */
#define TUNE_SEEN_BITS 16384

struct tune_table {
  const struct mem *mem;
  const struct tune_subject *subject;
  size_t class_bytes; /* of a class that is looked for */
  struct tune_header header;
  struct tune_row *rows; /* uthash, by class */
  size_t count;
  size_t stale;                       /* rows that were measured on kernels that this library does not have */
  size_t broken;                      /* rows that break a rule of their family or are not of their class */
  _Atomic(uint64_t) misfits;          /* look-ups whose row did not fit the problem */
  size_t rows_of[TUNE_ORIGINS];       /* where the rows come from */
  uint64_t seen[TUNE_SEEN_BITS / 64]; /* a bit for each row, by its hash */
};

/* `subject` must outlive the table. NULL: out of memory. */
struct tune_table *tune_table_create(const struct mem *mem, const struct tune_subject *subject);
void tune_table_destroy(struct tune_table *table); /* accepts NULL */

/* Add a copy of a row. If there is a row of the same class, `replace` says which one stays. KJIT_ERR_NO_MEMORY, and
 * KJIT_ERR_UNSUPPORTED beyond TUNE_ROWS_MAX. No other thread may be using the table. */
kjit_status tune_table_add(struct tune_table *table, const struct tune_row *row, bool replace, kjit_error *error);

/* Find the row of a class; NULL when there is none. Thread-safe, as long as nothing is added. */
const struct tune_row *tune_table_find(const struct tune_table *table, const int32_t *class);

/* Count a look-up whose row did not fit its problem. Thread-safe. */
void tune_table_count_misfit(struct tune_table *table);

/* The family of this name among the subject's, by its index in tune_header.kernels; family_count when there is none. */
size_t tune_subject_find(const struct tune_subject *subject, const char *name, size_t bytes);

/* Check a row: its class is possible, and its config passes every rule, is canonical and of the class.
 * KJIT_ERR_INVALID_CONFIG and others say what is wrong. */
kjit_status tune_row_check(const struct tune_subject *subject, const struct tune_row *row,
                           const struct family_place *place, kjit_error *error);

/* Sort the rows in the order of classes. */
void tune_table_sort(struct tune_table *table);

#endif
