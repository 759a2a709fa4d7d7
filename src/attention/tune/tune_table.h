/* A tuned table: classes of problems to what was measured fastest for them on one kind of card. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_TABLE_H
#define KJIT_ATTENTION_TUNE_TUNE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <uthash.h>

#include "attention/attention_choose.h"
#include "attention/tune/tune_class.h"
#include "base/digest.h"
#include "base/mem.h"

/* Most rows: many times the classes that anybody measures. It bounds what a file can make this library hold, to 5 MiB.
 */
#define TUNE_ROWS_MAX 16384

/* Where a table comes from. The row of a lower one counts. */
enum tune_origin { TUNE_USER, TUNE_SITE, TUNE_SHIPPED, TUNE_ORIGINS };

/* Where and with what a table was measured. Two headers that are equal but for compiler and date are of one table. */
struct tune_header {
  char device[128]; /* as the driver calls it */
  char arch[16];    /* with its own features: "sm_90a" */
  uint32_t multiprocessors;
  uint32_t driver;                               /* CUDA's encoding */
  char library[32];                              /* kjit_version() */
  char compiler[32];                             /* for people: "13.0"; "-" when it was not known */
  char date[11];                                 /* for people: "2026-11-21", UTC */
  struct digest kernels[ATTENTION_FAMILY_COUNT]; /* of each family's sources */
};

struct tune_row {
  struct tune_class class;
  struct attention_choice choice; /* canonical; nothing where `rules` */
  bool rules;                     /* measured, and the rules' choice was not beaten */
  enum tune_origin origin;
  uint64_t ns, rules_ns; /* medians of this choice and of the rules' choice */
  UT_hash_handle hh;
};

/* Bits of the array that tells most classes without a row. */
#define TUNE_SEEN_BITS 16384

struct tune_table {
  const struct mem *mem;
  struct tune_header header;
  struct tune_row *rows; /* uthash, by class */
  size_t count;
  size_t stale;                       /* rows that were measured on kernels that this library does not have */
  size_t broken;                      /* rows that break a rule of their family or are not of their class */
  _Atomic(uint64_t) misfits;          /* look-ups whose row did not fit the problem */
  size_t rows_of[TUNE_ORIGINS];       /* where the rows come from */
  uint64_t seen[TUNE_SEEN_BITS / 64]; /* a bit for each row, by its hash */
};

/* NULL: out of memory. */
struct tune_table *tune_table_create(const struct mem *mem);
void tune_table_destroy(struct tune_table *table); /* accepts NULL */

/* Add a copy of a row. If there is a row of the same class, `replace` says which one stays. KJIT_ERR_NO_MEMORY, and
 * KJIT_ERR_UNSUPPORTED beyond TUNE_ROWS_MAX. No other thread may be using the table. */
kjit_status tune_table_add(struct tune_table *table, const struct tune_row *row, bool replace, kjit_error *error);

/* Find the row of a class; NULL when there is none. Thread-safe, as long as nothing is added. */
const struct tune_row *tune_table_find(const struct tune_table *table, const struct tune_class *class);

/* True when the table has a row for a problem whose defaults are filled in, and the row fits; `choice` is then set.
 * Thread-safe; it costs some tens of nanoseconds. */
bool tune_table_choose(struct tune_table *table, const kjit_attention_problem *problem, struct attention_choice *out);

/* The table in the form in which the planner asks it; `table` may be NULL. */
struct attention_measured tune_table_measured(struct tune_table *table);

/* The index of a family in tune_header.kernels. */
size_t tune_family_index(const struct attention_family *family);

/* Check a row: its class is possible, and its config passes every rule, is canonical and of the class.
 * KJIT_ERR_INVALID_CONFIG and others say what is wrong. */
kjit_status tune_row_check(const struct tune_row *row, const struct family_place *place, kjit_error *error);

/* Sort the rows in the order of classes. */
void tune_table_sort(struct tune_table *table);

#endif
