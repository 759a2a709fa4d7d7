/* Many configs of flash_forward on one problem: each is checked against float64 and then timed in turns with the
 * others. Prints a table sorted by speed: TFLOP/s, registers, spills and blocks per SM. TFLOP/s counts 4 * B * H * S *
 * SKV * D operations; with a causal mask only the keys that are seen. Needs a GPU; the exit code is 3 without one. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "config_list.h"
#include "output.h"
#include "support/attention_check.h"
#include "support/prebuild.h"
#include "support/random.h"
#include "support/timer.h"

#define MOST_ROUNDS 1000

static const char usage[] =
    "usage: bench_flash_sweep --shape B,S,H,D[,SKV] [OPTION]... [SHORT FORM]...\n"
    "  --dtype fp16|bf16     (fp16)\n"
    "  --causal              row i sees keys up to i + SKV - S\n"
    "  --heads-kv N          key heads, that groups of query heads share (H)\n"
    "  --set NAME            the configs of a set that have this type and head size; prebuilt if no config is named\n"
    "  --file FILE           short forms, one a line\n"
    "  --blocks LIST         64x64x4,128x32x4: B_r x B_c x n_warps with every useful flag\n"
    "  --all-flags           with --blocks: also without async, eager, swizzled\n"
    "  --all-loads           with --blocks: fragment counts of 4 and 8 too\n"
    "  --rounds N            timed runs of each (20)\n"
    "  --top N               rows of the table (all)\n"
    "  --threads N           compiling threads (one per processor)\n"
    "  --layout LAYOUT       bshd, bhsd, padded, packed, shared_kv (bshd)\n"
    "  --keep-l2             do not empty L2 before each run\n"
    "  --json                one JSON object a line\n";

struct sweep {
  struct output output;
  struct trial_problem problem;
  struct config_list configs;
  const char *set, *file, *blocks;
  unsigned generate; /* CONFIG_LIST_* */
  bool keep_l2;
  size_t rounds, top, threads, heads_kv;
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  struct attention_data data;
  struct attention_reference reference;
  struct timer timer;
  struct row *rows;
};

struct row {
  kjit_flash_config config;
  char text[KJIT_FLASH_CONFIG_TEXT_MAX];
  kjit_artifact_info info; /* numbers only: its strings are gone */
  kjit_attention_plan *plan;
  struct attention_verdict verdict;
  double *times;
  struct statistics ms;
  double tflops;
};

static bool read_number(const char *text, size_t most, size_t *out) {
  char *end;
  const unsigned long long value = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || value < 1 || value > most) return false;
  *out = (size_t)value;
  return true;
}

enum option_code {
  SHAPE = 256,
  DTYPE,
  CAUSAL,
  HEADS_KV,
  SET,
  CONFIG_FILE,
  BLOCKS,
  ALL_FLAGS,
  ALL_LOADS,
  ROUNDS,
  TOP,
  THREADS,
  LAYOUT,
  KEEP_L2,
  JSON
};

static bool take_number(struct sweep *s, int code, const char *value) {
  switch (code) {
  case HEADS_KV:
    return read_number(value, 65535, &s->heads_kv);
  case ROUNDS:
    return read_number(value, MOST_ROUNDS, &s->rounds);
  case TOP:
    return read_number(value, 100000, &s->top);
  case THREADS:
    return read_number(value, 64, &s->threads);
  default:
    return false;
  }
}

static bool take_option(struct sweep *s, int code, const char *value, kjit_error *error) {
  switch (code) {
  case SHAPE:
    return problem_parse_shape(value, &s->problem, error) == KJIT_OK;
  case DTYPE:
    return problem_parse_dtype(value, &s->problem, error) == KJIT_OK;
  case LAYOUT:
    return problem_parse_layout(value, &s->problem, error) == KJIT_OK;
  case CAUSAL:
    problem_set_causal(&s->problem, true);
    return true;
  case SET:
    s->set = value;
    return true;
  case CONFIG_FILE:
    s->file = value;
    return true;
  case BLOCKS:
    s->blocks = value;
    return true;
  case ALL_FLAGS:
    s->generate |= CONFIG_LIST_ALL_FLAGS;
    return true;
  case ALL_LOADS:
    s->generate |= CONFIG_LIST_ALL_LOADS;
    return true;
  case KEEP_L2:
    return s->keep_l2 = true;
  case JSON:
    return s->output.json = true;
  default:
    return take_number(s, code, value);
  }
}

static bool read_options(struct sweep *s, int argc, char **argv, kjit_error *error) {
  static const struct option options[] = {
      {"shape", required_argument, NULL, SHAPE},   {"dtype", required_argument, NULL, DTYPE},
      {"causal", no_argument, NULL, CAUSAL},       {"heads-kv", required_argument, NULL, HEADS_KV},
      {"set", required_argument, NULL, SET},       {"file", required_argument, NULL, CONFIG_FILE},
      {"blocks", required_argument, NULL, BLOCKS}, {"all-flags", no_argument, NULL, ALL_FLAGS},
      {"all-loads", no_argument, NULL, ALL_LOADS}, {"rounds", required_argument, NULL, ROUNDS},
      {"top", required_argument, NULL, TOP},       {"threads", required_argument, NULL, THREADS},
      {"layout", required_argument, NULL, LAYOUT}, {"keep-l2", no_argument, NULL, KEEP_L2},
      {"json", no_argument, NULL, JSON},           {NULL, 0, NULL, 0}};
  int code;
  if (problem_parse_shape("16,4096,16,128", &s->problem, error) != KJIT_OK) return false;
  while ((code = getopt_long(argc, argv, "", options, NULL)) != -1)
    if (!take_option(s, code, optarg, error)) return false;
  if (!s->set && !s->file && !s->blocks && optind == argc) s->set = "prebuilt";
  s->problem.asked.heads_kv = (int64_t)s->heads_kv;
  return problem_check(&s->problem, error) == KJIT_OK;
}

static kjit_status collect_configs(struct sweep *s, int argc, char **argv, kjit_error *error) {
  const int64_t v = problem_head_dim_v(&s->problem),
                larger = v > s->problem.asked.head_dim ? v : s->problem.asked.head_dim;
  const int32_t dtype = s->problem.asked.dtype, d_head = larger <= 32 ? 32 : (int32_t)(larger + 15) / 16 * 16;
  kjit_status status = KJIT_OK;
  s->configs.arch = s->card.arch;
  if (s->set) status = config_list_add_set(&s->configs, s->set, dtype, d_head, error);
  if (status == KJIT_OK && s->file) status = config_list_add_file(&s->configs, s->file, error);
  if (status == KJIT_OK && s->blocks)
    status = config_list_add_blocks(&s->configs, s->blocks, s->generate, dtype, d_head, error);
  for (int i = optind; i < argc && status == KJIT_OK; i++)
    status = config_list_add_text(&s->configs, argv[i], error);
  if (status == KJIT_OK && s->configs.count == 0)
    status =
        card_fail(error, KJIT_ERR_INVALID_ARG, "no config to sweep over: name some, or give --set, --file, --blocks");
  return status;
}

static kjit_status open_gpu(struct sweep *s, kjit_error *error) {
  kjit_status status = card_open(&s->card, 0, error);
  if (status == KJIT_OK) status = kjit_runtime_create(&s->runtime, NULL, error);
  if (status == KJIT_OK) status = check_kernels_create(&s->kernels, s->runtime, &s->card, error);
  if (status == KJIT_OK) status = timer_create(&s->timer, &s->card, !s->keep_l2, error);
  return status;
}

/* What is known of the config's kernel, and a plan for it. */
static kjit_status prepare_row(struct sweep *s, struct row *row, const kjit_flash_config *config, kjit_error *error) {
  kjit_config kernel;
  kjit_artifact *artifact = NULL;
  row->config = *config;
  row->info.struct_size = sizeof row->info;
  row->times = calloc(s->rounds, sizeof *row->times);
  if (!row->times) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu times", s->rounds);
  kjit_status status = kjit_flash_config_print(config, 0, row->text, sizeof row->text, error);
  if (status == KJIT_OK) status = kjit_config_of_flash(config, &s->problem.asked, &kernel, error);
  if (status == KJIT_OK) status = kjit_config_build(s->runtime, &kernel, s->card.arch, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &row->info, error);
  kjit_artifact_release(artifact);
  if (status == KJIT_OK) status = attention_run(&s->data, &s->reference, &kernel, &row->verdict, error);
  return status == KJIT_OK ? kjit_attention_plan_create(&row->plan, s->runtime, &kernel, &s->data.args, error) : status;
}

/* The configs' kernels for the problem. */
static kjit_status build_all(struct sweep *s, kjit_error *error) {
  const size_t count = s->configs.count;
  kjit_config *kernels = calloc(count, sizeof *kernels);
  if (!kernels) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu kernels", count);
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = kjit_config_of_flash(&s->configs.items[i], &s->problem.asked, &kernels[i], error);
  if (status == KJIT_OK) status = prebuild(s->runtime, kernels, count, s->card.arch, (unsigned)s->threads, error);
  free(kernels);
  return status;
}

static kjit_status prepare(struct sweep *s, kjit_error *error) {
  const size_t count = s->configs.count;
  const double begin = statistics_now();
  s->rows = calloc(count, sizeof *s->rows);
  if (!s->rows) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu rows", count);
  kjit_status status = build_all(s, error);
  output_note(&s->output, "%zu configs (%zu refused) compiled in %.1f s", count, s->configs.refused,
              statistics_now() - begin);
  if (status == KJIT_OK) status = attention_data_create(&s->data, &s->kernels, &s->problem, error);
  if (status == KJIT_OK) status = attention_reference_create(&s->reference, &s->data, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = prepare_row(s, &s->rows[i], &s->configs.items[i], error);
  return status;
}

static kjit_status run_plan(void *user, CUstream stream, kjit_error *error) {
  return kjit_attention_plan_run((const kjit_attention_plan *)user, stream, error);
}

/* In turns, so that what changes with time (heat, clocks) meets every config alike. The first round is not counted. */
static kjit_status time_all(struct sweep *s, kjit_error *error) {
  double warmup;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < s->configs.count && status == KJIT_OK; i++)
    status = timer_run(&s->timer, run_plan, s->rows[i].plan, &warmup, error);
  for (size_t round = 0; round < s->rounds; round++)
    for (size_t i = 0; i < s->configs.count && status == KJIT_OK; i++)
      status = timer_run(&s->timer, run_plan, s->rows[i].plan, &s->rows[i].times[round], error);
  for (size_t i = 0; i < s->configs.count && status == KJIT_OK; i++) {
    s->rows[i].ms = statistics_of(s->rows[i].times, s->rounds);
    s->rows[i].tflops = problem_flops(&s->problem) / (s->rows[i].ms.median * 1e-3) / 1e12;
  }
  return status;
}

static int faster_first(const void *a, const void *b) {
  const double x = ((const struct row *)a)->tflops, y = ((const struct row *)b)->tflops;
  return (x < y) - (x > y);
}

static void print_row(const struct sweep *s, const struct row *row) {
  const kjit_config plain = kjit_flash_config_plain(&row->config);
  const unsigned ctas = kjit_config_blocks_per_sm(&plain, row->info.registers, s->card.arch);
  if (s->output.json)
    printf("{\"benchmark\": \"%s\", \"config\": \"%s\", \"passed\": %s, \"tflops\": %.2f, \"median_ms\": %.5f, "
           "\"least_ms\": %.5f, \"most_ms\": %.5f, \"registers\": %u, \"spill_bytes\": %u, \"ctas_per_sm\": %u, "
           "\"error\": %.3g, \"error_allowed\": %.3g}\n",
           s->output.benchmark, row->text, row->verdict.passed ? "true" : "false", row->tflops, row->ms.median,
           row->ms.least, row->ms.most, row->info.registers, row->info.spill_bytes, ctas, row->verdict.error,
           row->verdict.bound);
  else
    printf("%8.1f %9.4f %9.4f %5u %6u %4u  %-5s %s\n", row->tflops, row->ms.median, row->ms.least, row->info.registers,
           row->info.spill_bytes, ctas, row->verdict.passed ? "right" : "WRONG", row->text);
}

/* Returns how many configs are wrong. */
static size_t print_table(struct sweep *s) {
  char problem[PROBLEM_TEXT_MAX];
  size_t wrong = 0;
  problem_print(&s->problem, problem);
  qsort(s->rows, s->configs.count, sizeof *s->rows, faster_first);
  output_note(&s->output, "%s, %s\n%8s %9s %9s %5s %6s %4s", s->card.name, problem, "TFLOP/s", "median ms", "least ms",
              "regs", "spill", "ctas");
  for (size_t i = 0; i < s->configs.count; i++) {
    if (i < s->top || !s->rows[i].verdict.passed) print_row(s, &s->rows[i]);
    wrong += !s->rows[i].verdict.passed;
  }
  return wrong;
}

static void close_all(struct sweep *s) {
  for (size_t i = 0; s->rows && i < s->configs.count; i++) {
    kjit_attention_plan_destroy(s->rows[i].plan);
    free(s->rows[i].times);
  }
  free(s->rows);
  config_list_free(&s->configs);
  attention_reference_destroy(&s->reference, &s->card);
  attention_data_destroy(&s->data);
  timer_destroy(&s->timer);
  check_kernels_destroy(&s->kernels);
  kjit_runtime_destroy(s->runtime);
  card_close(&s->card);
}

int main(int argc, char **argv) {
  struct sweep sweep = {.output.benchmark = "flash_sweep",
                        .problem = {.asked = PROBLEM_OF(.dtype = KJIT_FP16), .seed = random_fresh_seed()},
                        .rounds = 20,
                        .top = SIZE_MAX};
  kjit_error error = {0};
  if (!read_options(&sweep, argc, argv, &error)) {
    fprintf(stderr, "%s%s%s", error.message, error.message[0] ? "\n" : "", usage);
    return 2;
  }
  size_t wrong = 0;
  kjit_status status = open_gpu(&sweep, &error);
  if (status == KJIT_OK) status = collect_configs(&sweep, argc, argv, &error);
  if (status == KJIT_OK) status = prepare(&sweep, &error);
  if (status == KJIT_OK) status = time_all(&sweep, &error);
  if (status == KJIT_OK) wrong = print_table(&sweep);
  close_all(&sweep);
  if (status != KJIT_OK) output_failure(&sweep.output, "%s", error.message);
  if (wrong) output_failure(&sweep.output, "%zu configs are wrong", wrong);
  return status == KJIT_ERR_NO_DRIVER ? 3 : status != KJIT_OK || wrong;
}
