/* Attention variants that are timed, and what their masks see. */
#ifndef KJIT_BENCH_VARIANT_ROWS_H
#define KJIT_BENCH_VARIANT_ROWS_H

#include <kjit/attention_variant.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VARIANT_ROWS = 12, VARIANT_WINDOW = 1024, VARIANT_DOCUMENTS = 12 };

enum variant_kind { VARIANT_CAUSAL, VARIANT_FULL, VARIANT_WINDOWED, VARIANT_PREFIX, VARIANT_DOCUMENT, VARIANT_CHUNK };

struct variant_row {
  const char *name, *score, *mask; /* texts of a variant, or NULL */
  enum variant_kind kind;          /* what the row sees */
  bool causal;                     /* the flag */
  bool by_start;                   /* documents that are causal and read the tensor `start` */
  bool chunked, slopes, bias;      /* the plain members */
  float softcap;
};

extern const struct variant_row variant_rows[VARIANT_ROWS];

/* The text of a row's mask, which reads the tensors `doc` and `start` where the row is of documents. It refers to the
 * row's texts and to memory of the program's. */
kjit_attention_variant_text variant_row_text(const struct variant_row *row);

/* The pairs of a head that are attended, and those in blocks of 128 by 128 of which some pair is. */
void variant_row_pairs(const struct variant_row *row, int64_t length, double *attended, double *visited);

/* The largest difference of two arrays of bf16; NaN where there is one. */
float variant_difference(const uint16_t *a, const uint16_t *b, size_t count);

/* Read `count` numbers with a slash between each two. Returns false where the text is anything else. */
bool variant_read_numbers(const char *text, int count, int *out);

#endif
