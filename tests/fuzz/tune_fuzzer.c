/* Any text as a tuned table: it is refused on one line that says where, or each of its rows passes every rule and the
 * whole is written and read again as it is. */
#include <stdint.h>
#include <string.h>

#include "attention/tune/tune_attention.h"
#include "family/tune/tune_text.h"
#include "fuzz/require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct family_place place = {"sm_90a", 132, 232448, {0}};

/* Of the kernels that the corpus was measured on: all zero. */
static const struct digest kernels[TUNE_FAMILIES_MAX];

static void check_rows(struct tune_table *table) {
  for (const struct tune_row *row = table->rows; row; row = row->hh.next) {
    require(tune_row_check(&tune_attention, row, &place, NULL) == KJIT_OK);
    require(tune_table_find(table, row->class) == row);
  }
}

static void write_out(struct tune_table *table, struct text *out) {
  text_init(out, table->mem, TUNE_TEXT_MAX);
  tune_text_write(table, out);
  require(!out->failed);
}

static void check_round_trip(struct tune_table *table) {
  struct text first, second;
  struct tune_table *again = tune_table_create(table->mem, &tune_attention);
  require(again != NULL);
  write_out(table, &first);
  require(tune_text_read(again, first.data, first.bytes, table->header.kernels, &place, TUNE_USER, NULL) == KJIT_OK);
  require(again->count == table->count && again->stale == 0 && again->broken == 0);
  write_out(again, &second);
  require(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
  text_finish(&first);
  text_finish(&second);
  tune_table_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct mem mem;
  kjit_error error = {0};
  require(mem_init(&mem, NULL));
  struct tune_table *table = tune_table_create(&mem, &tune_attention);
  require(table != NULL);
  const kjit_status status = tune_text_read(table, (const char *)data, size, kernels, &place, TUNE_USER, &error);
  require((int32_t)status == error.status);
  check_rows(table);
  if (table->count) input_is_taken();
  if (status == KJIT_OK)
    check_round_trip(table);
  else
    require(strncmp(error.message, "line ", 5) == 0 && strchr(error.message, '\n') == NULL);
  tune_table_destroy(table);
  return 0;
}
