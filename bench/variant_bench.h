/* What bench/variant_times.c times, and how it is printed. */
#ifndef KJIT_BENCH_VARIANT_BENCH_H
#define KJIT_BENCH_VARIANT_BENCH_H

#include <kjit/kjit.h>
#include <stdatomic.h>

#include "support/card.h"
#include "variant_rows.h"

enum {
  FLUSH_BYTES = 128 << 20,
  TOKENS = 16384,
  WIDTH = 2048,
  MAX_ROUNDS = 64,
  MAX_CONFIGS = 16,
  MAX_ENTRIES = 256,
  COMPILING_THREADS = 16,
  TABLE_BYTES = 32 << 10,
  DISTINCT = 1048573, /* random values of a tensor; a prime, so that no two rows are alike */
  CHECKED = 4 << 20   /* elements of the output */
};

struct bench {
  struct card card;
  kjit_runtime *runtime;
  struct card_buffer q, k, v, o, lse, doc, start, slopes, bias, flush;
  int64_t length, heads, batch, head_dim;
  const char *names, *configs[MAX_CONFIGS], *lse_folder;
  int config_count, rounds;
  bool is_without_dense;
  char table[TABLE_BYTES]; /* what is printed last */
  size_t table_bytes;
};

/* In place of a config: what the row's other entries are compared with. */
extern const char variant_reference[];

struct entry {
  const struct variant_row *row;
  const char *config; /* NULL: the library's choice */
  kjit_attention_plan *plan;
  kjit_error error;
  float times[MAX_ROUNDS], median, difference;
};

struct entries {
  struct bench *bench;
  struct entry of[MAX_ENTRIES];
  int order[MAX_ENTRIES], count;
  atomic_int next;
};

/* Print a line for each row and config. */
void variant_print(struct bench *b, const struct entries *entries);

/* Add a line for each row to the table: the time of the library's choice, and what each config gains over it. */
void variant_add_to_table(struct bench *b, const struct entries *entries);

#endif
