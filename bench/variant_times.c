/* The speed of attention variants on this card, each beside dense causal attention of the same run.
 *
 * usage: variant_times [-r ROW,...] [-c CONFIG]... [-n ROUNDS] [-l DIR] [-o] [HEAD_DIM LENGTH]...
 *   -r  names of rows, as they are printed (all)
 *   -c  another config of attention_sm90 to time beside the library's choice: consumers/tile_n/stages/q_buffers/
 *       o_chunks/ping_pong; may be given again
 *   -n  rounds (15)
 *   -l  ask for the log-sum-exp too, and write each into DIR as it lies in memory
 *   -o  without the dense row, so that a kernel runs behind its like; shares are then of the first row's speed
 * Prints a line for each row and config and, where configs are given, last what each gains over the library's choice.
 * default: head sizes 64, 128 and 256 at 4096 and 16384 keys, 16384 tokens, heads * head_dim = 2048
 *
 * Kernels are compiled by several threads ahead; then all rows of a size are timed in turns, in new random orders,
 * L2 flushed before each, and medians count. A line is milliseconds, TFLOP/s of attended pairs (4 * head_dim a pair),
 * and the speed of a visited block of 128 by 128 scores beside that of dense causal attention.
 *
 * Threads: those that compile, which take entries by a shared counter; all else is one. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/half.h"
#include "support/random.h"
#include "variant_bench.h"

static kjit_status fill(struct bench *b, struct card_buffer *out, size_t count, uint64_t seed, kjit_error *error) {
  struct random random = {seed};
  uint16_t *values = malloc(count * 2);
  if (!values) return KJIT_ERR_NO_MEMORY;
  for (size_t i = 0; i < count && i < DISTINCT; i++) {
    const uint64_t bits = random_next(&random);
    double sum = -3;
    for (int part = 0; part < 6; part++)
      sum += (double)(bits >> 10 * part & 1023) / 1023;
    values[i] = half_from_float(KJIT_BF16, (float)(sum * 1.41));
  }
  for (size_t i = DISTINCT; i < count; i++)
    values[i] = values[i - DISTINCT];
  kjit_status status = card_buffer_create(&b->card, out, count * 2, error);
  if (status == KJIT_OK) status = card_write(&b->card, out->address, values, count * 2, error);
  free(values);
  return status;
}

static kjit_status put(struct bench *b, struct card_buffer *out, const void *values, size_t bytes, kjit_error *error) {
  const kjit_status status = card_buffer_create(&b->card, out, bytes, error);
  return status == KJIT_OK ? card_write(&b->card, out->address, values, bytes, error) : status;
}

static kjit_status make(struct bench *b, kjit_error *error) {
  const size_t count = (size_t)(b->batch * b->length * b->heads * b->head_dim), length = (size_t)b->length;
  float slopes[WIDTH];
  int32_t *doc = malloc(length * sizeof *doc), start[VARIANT_DOCUMENTS];
  kjit_status status = doc ? fill(b, &b->q, count, 1, error) : KJIT_ERR_NO_MEMORY;
  for (size_t i = 0; doc && i < length; i++)
    doc[i] = (int32_t)(i * VARIANT_DOCUMENTS / length);
  for (size_t d = 0; d < VARIANT_DOCUMENTS; d++)
    start[d] = (int32_t)((d * length + VARIANT_DOCUMENTS - 1) / VARIANT_DOCUMENTS);
  for (int64_t h = 0; h < b->heads; h++)
    slopes[h] = (float)exp2(-(double)(h + 1) * 8 / (double)b->heads);
  if (status == KJIT_OK) status = fill(b, &b->k, count, 2, error);
  if (status == KJIT_OK) status = fill(b, &b->v, count, 3, error);
  if (status == KJIT_OK) status = fill(b, &b->bias, length * length, 4, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->o, count * 2, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->lse, count / (size_t)b->head_dim * 4, error);
  if (status == KJIT_OK) status = card_buffer_create(&b->card, &b->flush, FLUSH_BYTES, error);
  if (status == KJIT_OK) status = put(b, &b->doc, doc, length * sizeof *doc, error);
  if (status == KJIT_OK) status = put(b, &b->start, start, sizeof start, error);
  if (status == KJIT_OK) status = put(b, &b->slopes, slopes, (size_t)b->heads * sizeof *slopes, error);
  free(doc);
  return status;
}

static void end(struct bench *b) {
  struct card_buffer *const all[] = {&b->q,   &b->k,     &b->v,      &b->o,    &b->lse,
                                     &b->doc, &b->start, &b->slopes, &b->bias, &b->flush};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    card_buffer_destroy(&b->card, all[i]);
}

static kjit_tensor vector(const struct card_buffer *buffer, int32_t dtype, int64_t length) {
  return (kjit_tensor){
      .data = (void *)(uintptr_t)buffer->address, .dtype = dtype, .rank = 1, .shape = {length}, .stride = {1}};
}

static kjit_tensor matrix(const struct bench *b, const struct card_buffer *buffer) {
  return kjit_tensor_bshd((void *)(uintptr_t)buffer->address, KJIT_BF16, 0, b->batch, b->length, b->heads, b->head_dim);
}

static kjit_status parse_config(const struct bench *b, const struct entry *entry, kjit_config *out, kjit_error *error) {
  int f[6];
  char text[256];
  if (!variant_read_numbers(entry->config, 6, f)) return KJIT_ERR_INVALID_ARG;
  snprintf(text, sizeof text,
           "dtype=bf16,head_dim=%d,head_dim_v=%d,causal=%d,consumers=%d,tile_n=%d,stages=%d,"
           "q_buffers=%d,o_chunks=%d,ping_pong=%d,rescale_slack=15,packed=1,split=0",
           (int)b->head_dim, (int)b->head_dim, (int)entry->row->causal, f[0], f[1], f[2], f[3], f[4], f[5]);
  return kjit_config_parse(kjit_family_find("attention_sm90"), text, out, error);
}

static kjit_status plan_with(struct bench *b, struct entry *entry, const kjit_config *config) {
  const struct variant_row *row = entry->row;
  const kjit_tensor tensors[] = {vector(&b->doc, KJIT_INT32, b->length),
                                 vector(&b->start, KJIT_INT32, VARIANT_DOCUMENTS)};
  const kjit_tensor slopes = vector(&b->slopes, KJIT_FP32, b->heads);
  const kjit_tensor bias = {.data = (void *)(uintptr_t)b->bias.address,
                            .dtype = KJIT_BF16,
                            .rank = 4,
                            .shape = {1, 1, b->length, b->length},
                            .stride = {b->length * b->length, b->length * b->length, b->length, 1}};
  kjit_attention_args args = kjit_attention_args_default();
  kjit_attention_variant *variant = NULL;
  args.q = matrix(b, &b->q);
  args.k = matrix(b, &b->k);
  args.v = matrix(b, &b->v);
  args.o = matrix(b, &b->o);
  if (b->lse_folder)
    args.lse = (kjit_tensor){.data = (void *)(uintptr_t)b->lse.address,
                             .dtype = KJIT_FP32,
                             .rank = 3,
                             .shape = {b->batch, b->heads, b->length},
                             .stride = {b->heads * b->length, b->length, 1}};
  args.flags = row->causal ? KJIT_ATTENTION_CAUSAL : 0;
  args.attention_chunk = row->chunked ? VARIANT_WINDOW : 0;
  args.softcap = row->softcap;
  args.alibi_slopes = row->slopes ? &slopes : NULL;
  args.bias = row->bias ? &bias : NULL;
  const kjit_attention_variant_text text = variant_row_text(row);
  kjit_status status = KJIT_OK;
  if (row->mask) status = kjit_attention_variant_create(&variant, &text, &entry->error);
  args.variant = variant;
  args.variant_tensors = tensors;
  if (status == KJIT_OK) status = kjit_attention_plan_create(&entry->plan, b->runtime, config, &args, &entry->error);
  kjit_attention_variant_free(variant);
  return status;
}

/* flash_forward, which shares no step with attention_sm90. */
static kjit_status choose_reference(const struct bench *b, struct entry *entry, kjit_config *out) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.flags = entry->row->causal ? KJIT_ATTENTION_CAUSAL : 0;
  problem.batch = b->batch;
  problem.heads_q = b->heads;
  problem.seq_q = b->length;
  problem.head_dim = b->head_dim;
  return kjit_attention_choose(NULL, &problem, "sm_80", out, NULL, &entry->error);
}

static void plan(struct bench *b, struct entry *entry) {
  kjit_config config;
  kjit_status status = KJIT_OK;
  if (entry->config == variant_reference)
    status = choose_reference(b, entry, &config);
  else if (entry->config)
    status = parse_config(b, entry, &config, &entry->error);
  if (status == KJIT_OK) (void)plan_with(b, entry, entry->config ? &config : NULL);
}

static void *compile(void *user) {
  struct entries *entries = user;
  kjit_error error;
  if (card_make_current(&entries->bench->card, &error) != KJIT_OK) return NULL;
  for (int i; (i = atomic_fetch_add(&entries->next, 1)) < entries->count;)
    plan(entries->bench, &entries->of[i]);
  return NULL;
}

static void compile_all(struct entries *entries) {
  pthread_t threads[COMPILING_THREADS];
  int started = 0;
  while (started < COMPILING_THREADS && pthread_create(&threads[started], NULL, compile, entries) == 0)
    started++;
  for (int i = 0; i < started; i++)
    (void)pthread_join(threads[i], NULL);
}

static kjit_status run_into(struct bench *b, kjit_attention_plan *plan, uint16_t *o, kjit_error *error) {
  float ms;
  kjit_status status = card_poison(&b->card, b->o, b->card.stream, error);
  if (status == KJIT_OK) status = kjit_attention_plan_time(plan, b->card.stream, &ms, error);
  return status == KJIT_OK ? card_read(&b->card, o, b->o.address, CHECKED * sizeof *o, error) : status;
}

/* A row's reference comes before its other entries. */
static void check_all(struct entries *entries) {
  struct bench *b = entries->bench;
  uint16_t *wanted = malloc(CHECKED * sizeof *wanted), *found = malloc(CHECKED * sizeof *found);
  bool is_known = false;
  for (int i = 0; i < entries->count && wanted && found; i++) {
    struct entry *entry = &entries->of[i];
    const bool is_reference = entry->config == variant_reference;
    uint16_t *const o = is_reference ? wanted : found;
    const bool is_run = entry->plan && run_into(b, entry->plan, o, &entry->error) == KJIT_OK;
    if (is_reference) is_known = is_run;
    entry->difference = is_known && is_run ? variant_difference(wanted, o, CHECKED) : NAN;
  }
  free(wanted);
  free(found);
}

static int compare(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* A new order for each round, because a kernel's clock depends on what ran before it. */
static void shuffle(struct entries *entries, struct random *random) {
  for (int i = 0; i < entries->count; i++) {
    const int other = (int)(random_next(random) % (uint64_t)(i + 1));
    entries->order[i] = entries->order[other];
    entries->order[other] = i;
  }
}

static void time_all(struct entries *entries) {
  struct bench *b = entries->bench;
  struct random random = {7};
  for (int round = -2; round < b->rounds; round++) {
    shuffle(entries, &random);
    for (int i = 0; i < entries->count; i++) {
      struct entry *entry = &entries->of[entries->order[i]];
      float ms = 0;
      if (!entry->plan || entry->config == variant_reference) continue;
      kjit_status status = card_poison(&b->card, b->flush, b->card.stream, &entry->error);
      if (status == KJIT_OK) status = kjit_attention_plan_time(entry->plan, b->card.stream, &ms, &entry->error);
      if (status != KJIT_OK) kjit_attention_plan_destroy(entry->plan);
      if (status != KJIT_OK) entry->plan = NULL;
      if (round >= 0) entry->times[round] = ms;
    }
  }
  for (int i = 0; i < entries->count; i++) {
    qsort(entries->of[i].times, (size_t)b->rounds, sizeof(float), compare);
    entries->of[i].median = entries->of[i].times[b->rounds / 2];
  }
}

static void write_lse(struct bench *b, const struct entry *entry, int number) {
  char path[512];
  kjit_error error;
  float ms;
  const size_t bytes = (size_t)(b->batch * b->heads * b->length) * 4;
  void *values = malloc(bytes);
  snprintf(path, sizeof path, "%s/%d_%d_%d_%s.lse", b->lse_folder, (int)b->head_dim, (int)b->length, number,
           entry->row->name);
  if (values && card_poison(&b->card, b->flush, b->card.stream, &error) == KJIT_OK &&
      kjit_attention_plan_time(entry->plan, b->card.stream, &ms, &error) == KJIT_OK &&
      card_read(&b->card, values, b->lse.address, bytes, &error) == KJIT_OK) {
    FILE *file = fopen(path, "wb");
    if (file) (void)fwrite(values, 1, bytes, file);
    if (file) (void)fclose(file);
  }
  free(values);
}

static bool is_asked(const struct bench *b, const char *name) {
  const size_t length = strlen(name);
  for (const char *at = b->names; at && *at; at += strcspn(at, ","), at += *at == ',')
    if (strcspn(at, ",") == length && strncmp(at, name, length) == 0) return true;
  return !b->names;
}

static void add(struct entries *entries, const struct variant_row *row, const char *config) {
  if (entries->count < MAX_ENTRIES) entries->of[entries->count++] = (struct entry){.row = row, .config = config};
}

static void run_size(struct bench *b, int64_t head_dim, int64_t length) {
  static struct entries entries;
  kjit_error error = {0};
  memset(&entries, 0, sizeof entries);
  entries.bench = b;
  b->head_dim = head_dim;
  b->length = length;
  b->heads = WIDTH / head_dim;
  b->batch = length >= TOKENS ? 1 : TOKENS / length;
  for (int i = 0; i < VARIANT_ROWS; i++) {
    if (i == 0 ? b->is_without_dense : !is_asked(b, variant_rows[i].name)) continue;
    if (!b->lse_folder) add(&entries, &variant_rows[i], variant_reference);
    add(&entries, &variant_rows[i], NULL);
    for (int c = 0; c < b->config_count; c++)
      add(&entries, &variant_rows[i], b->configs[c]);
  }
  if (make(b, &error) == KJIT_OK) {
    compile_all(&entries);
    if (!b->lse_folder) check_all(&entries);
    time_all(&entries);
    variant_print(b, &entries);
    variant_add_to_table(b, &entries);
  } else {
    printf("%s\n", error.message);
  }
  for (int i = 0; i < entries.count; i++) {
    if (entries.of[i].plan && b->lse_folder) write_lse(b, &entries.of[i], i);
    kjit_attention_plan_destroy(entries.of[i].plan);
  }
  end(b);
}

static bool read_options(struct bench *b, int argc, char **argv) {
  for (int option; (option = getopt(argc, argv, "r:c:n:l:o")) != -1;) {
    if (option == 'r') b->names = optarg;
    if (option == 'l') b->lse_folder = optarg;
    if (option == 'n') b->rounds = (int)strtol(optarg, NULL, 10);
    if (option == 'c' && b->config_count < MAX_CONFIGS) b->configs[b->config_count++] = optarg;
    if (option == 'o') b->is_without_dense = true;
    if (option == '?') return false;
  }
  return b->rounds >= 1 && b->rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv) {
  static const int sizes[][2] = {{64, 4096}, {128, 4096}, {256, 4096}, {64, 16384}, {128, 16384}, {256, 16384}};
  static struct bench b = {.rounds = 15};
  kjit_error error = {0};
  if (!read_options(&b, argc, argv)) return 2;
  if (card_open(&b.card, 0, &error) != KJIT_OK) {
    printf("skipped: %s\n", error.message);
    return 3;
  }
  if (kjit_runtime_create(&b.runtime, NULL, &error) != KJIT_OK) {
    printf("%s\n", error.message);
    return 1;
  }
  for (int i = optind; i + 1 < argc; i += 2)
    run_size(&b, strtoll(argv[i], NULL, 10), strtoll(argv[i + 1], NULL, 10));
  for (size_t i = 0; optind == argc && i < sizeof sizes / sizeof *sizes; i++)
    run_size(&b, sizes[i][0], sizes[i][1]);
  if (b.table_bytes > 0) printf("gains over the library's choice\n%s\n", b.table);
  kjit_runtime_destroy(b.runtime);
  card_close(&b.card);
  return 0;
}
