/* Prints what bench/variant_times.c found: lines as sizes are done, and the table of gains that it ends with.
 *
 * Threads: one. */
#include "variant_bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char variant_reference[] = "flash_forward";

/* Most that two kernels' outputs may differ by: a few steps of bf16 below 1. */
static const double differs = 0.02;

void variant_print(struct bench *b, const struct entries *entries) {
  double dense = 0, attended, visited;
  for (int i = 0; i < entries->count; i++) {
    const struct entry *entry = &entries->of[i];
    if (entry->config == variant_reference) continue;
    printf("hd%-3d %5d  %-18s %-16s ", (int)b->head_dim, (int)b->length, entry->row->name,
           entry->config ? entry->config : "-");
    if (!entry->plan) {
      printf("%.160s\n", entry->error.message);
      continue;
    }
    variant_row_pairs(entry->row, b->length, &attended, &visited);
    const double all = (double)(b->heads * b->batch), ms = (double)entry->median;
    if (dense == 0) dense = visited / ms;
    printf("%8.4f ms %5.0f TFLOP/s  %.3f a block  differs %.4f\n", ms, 4e-9 * (double)b->head_dim * attended * all / ms,
           visited / ms / dense, (double)entry->difference);
  }
  fflush(stdout);
}

static void put_text(struct bench *b, const char *format, ...) {
  const size_t left = sizeof b->table - b->table_bytes;
  va_list values;
  va_start(values, format);
  const int length = vsnprintf(b->table + b->table_bytes, left, format, values);
  va_end(values);
  if (length > 0) b->table_bytes += (size_t)length < left ? (size_t)length : left - 1;
}

void variant_add_to_table(struct bench *b, const struct entries *entries) {
  const struct entry *chosen = NULL;
  for (int i = 0; i < entries->count && b->config_count > 0; i++) {
    const struct entry *entry = &entries->of[i];
    if (entry->config == variant_reference) continue;
    if (!entry->config) {
      chosen = entry;
      put_text(b, "%shd%-3d %5d  %-18s %8.4f ms", b->table_bytes ? "\n" : "", (int)b->head_dim, (int)b->length,
               entry->row->name, entry->plan ? (double)entry->median : NAN);
    } else if (!entry->plan || !chosen || !chosen->plan) {
      put_text(b, "  %s: failed", entry->config);
    } else {
      put_text(b, "  %s: %+.1f %%%s", entry->config, 100.0 * ((double)chosen->median / (double)entry->median - 1.0),
               !b->lse_folder && !((double)entry->difference <= differs) ? " WRONG" : "");
    }
  }
}
