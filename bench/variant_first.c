/* The first call of an attention variant that nobody has compiled, beside that of dense causal attention: milliseconds
 * until a plan is there, each in a fresh runtime without a cache folder, so that all of its kernels are compiled; and
 * the processor time of it, which other programs of the machine disturb least.
 *
 * usage: variant_first [--rounds N] [--json]; bf16, 4,096 tokens, head sizes 64 and 128.
 *
 * No kernel is launched and no tensor is read, so that a driver that only counts does as well as a GPU:
 *   KJIT_LIBCUDA=build/dev/tests/python/libkjit_fake_libcuda.so bench_variant_first
 * The rows of variant_times take turns, round by round, after NVRTC has been loaded by a first plan that is not
 * counted. A variant whose blocks come from lists has two kernels, which two threads compile side by side.
 *
 * Threads: this one, and those that compile. */
#include <kjit/kjit.h>
#include <stdio.h>
#include <time.h>

#include "output.h"
#include "support/statistics.h"
#include "variant_rows.h"

enum { MOST_ROUNDS = 50, USUAL_ROUNDS = 3, HEAD_DIMS = 2, LENGTH = 4096, HEADS = 16, ADDRESS_BITS = 30 };

static const int64_t head_dims[HEAD_DIMS] = {64, 128};

/* Memory of its own for each tensor, which nobody reads or writes. */
static void *address(uintptr_t which) {
  return (void *)(which << ADDRESS_BITS);
}

/* A tensor of this shape, row-major. */
static kjit_tensor tensor_of(uintptr_t which, int32_t dtype, uint32_t rank, const int64_t *shape) {
  kjit_tensor out = {.data = address(which), .dtype = dtype, .rank = rank};
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0; stride *= shape[i]) {
    out.shape[i] = shape[i];
    out.stride[i] = stride;
  }
  return out;
}

static kjit_status make_plan(kjit_runtime *runtime, const struct variant_row *row, int64_t head_dim,
                             kjit_error *error) {
  const kjit_tensor tensors[] = {tensor_of(5, KJIT_INT32, 1, (int64_t[]){LENGTH}),
                                 tensor_of(6, KJIT_INT32, 1, (int64_t[]){VARIANT_DOCUMENTS})};
  const kjit_tensor slopes = tensor_of(7, KJIT_FP32, 1, (int64_t[]){HEADS});
  const kjit_tensor bias = tensor_of(8, KJIT_BF16, 4, (int64_t[]){1, 1, LENGTH, LENGTH});
  const kjit_attention_variant_text text = variant_row_text(row);
  kjit_attention_args args = kjit_attention_args_default();
  kjit_attention_variant *variant = NULL;
  kjit_attention_plan *plan = NULL;
  kjit_tensor *const own[] = {&args.q, &args.k, &args.v, &args.o};
  for (uintptr_t i = 0; i < sizeof own / sizeof *own; i++)
    *own[i] = kjit_tensor_bshd(address(i + 1), KJIT_BF16, 0, 1, LENGTH, HEADS, head_dim);
  args.flags = row->causal ? KJIT_ATTENTION_CAUSAL : 0;
  args.attention_chunk = row->chunked ? VARIANT_WINDOW : 0;
  args.softcap = row->softcap;
  args.alibi_slopes = row->slopes ? &slopes : NULL;
  args.bias = row->bias ? &bias : NULL;
  args.variant_tensors = tensors;
  kjit_status status = row->mask ? kjit_attention_variant_create(&variant, &text, error) : KJIT_OK;
  args.variant = variant;
  if (status == KJIT_OK) status = kjit_attention_plan_create(&plan, runtime, NULL, &args, error);
  kjit_attention_plan_destroy(plan);
  kjit_attention_variant_free(variant);
  return status;
}

/* Milliseconds of this process's processor time. */
static double processor_now(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

enum clock { WALL, PROCESSOR, CLOCKS };

/* Milliseconds until the row's plan is there, in a runtime that has compiled nothing. */
static kjit_status time_first(const struct variant_row *row, int64_t head_dim, double milliseconds[CLOCKS],
                              kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  options.cache_mode = KJIT_CACHE_OFF;
  kjit_status status = kjit_runtime_create(&runtime, &options, error);
  const double from = statistics_now(), processor_from = processor_now();
  if (status == KJIT_OK) status = make_plan(runtime, row, head_dim, error);
  milliseconds[WALL] = 1e3 * (statistics_now() - from);
  milliseconds[PROCESSOR] = processor_now() - processor_from;
  kjit_runtime_destroy(runtime);
  return status;
}

/* Print one clock's times of all rows, and what they are beside those of causal attention. */
static void print_clock(const struct output *output, int64_t head_dim, const char *clock,
                        double times[VARIANT_ROWS][MOST_ROUNDS], size_t rounds) {
  struct statistics found[VARIANT_ROWS];
  char name[64];
  for (int row = 0; row < VARIANT_ROWS; row++) {
    snprintf(name, sizeof name, "%d %s%s", (int)head_dim, variant_rows[row].name, clock);
    found[row] = statistics_of(times[row], rounds);
    output_statistics(output, name, "ms", &found[row]);
  }
  for (int row = 1; row < VARIANT_ROWS; row++) {
    snprintf(name, sizeof name, "%d %s / causal%s", (int)head_dim, variant_rows[row].name, clock);
    output_number(output, name, "x", found[row].median / found[0].median);
  }
}

static int time_head_dim(const struct output *output, int64_t head_dim, size_t rounds) {
  static double times[CLOCKS][VARIANT_ROWS][MOST_ROUNDS];
  kjit_error error;
  double found[CLOCKS];
  if (time_first(&variant_rows[0], head_dim, found, &error) != KJIT_OK)
    return output_failure(output, "%s", error.message);
  for (size_t round = 0; round < rounds; round++)
    for (int row = 0; row < VARIANT_ROWS; row++) {
      if (time_first(&variant_rows[row], head_dim, found, &error) != KJIT_OK)
        return output_failure(output, "%s: %s", variant_rows[row].name, error.message);
      for (int clock = 0; clock < CLOCKS; clock++)
        times[clock][row][round] = found[clock];
    }
  print_clock(output, head_dim, "", times[WALL], rounds);
  print_clock(output, head_dim, ", processor", times[PROCESSOR], rounds);
  return 0;
}

int main(int argc, char **argv) {
  struct output output = {.benchmark = "variant_first"};
  size_t rounds = USUAL_ROUNDS;
  if (!output_read_options(&output, argc, argv, &rounds, MOST_ROUNDS)) return 2;
  for (int i = 0; i < HEAD_DIMS; i++) {
    const int failed = time_head_dim(&output, head_dims[i], rounds);
    if (failed) return failed;
  }
  return 0;
}
