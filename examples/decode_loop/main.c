/* A toy inference engine's loop: append a key, attend, sample, again and again, as one CUDA graph whose replays read no
 * length on the host.
 *
 *   decode_loop build kernels.kjb [sm_80]...   compile what the loop needs into a bundle; no GPU needed
 *   decode_loop run kernels.kjb                generate from the bundle alone: no NVRTC, no cache folder
 *
 * Without an architecture the bundle is for Hopper, which has kernels of two: sm_90a for attention, sm_90 for the rest.
 * Both commands read step.cu from the current folder, or from where DECODE_LOOP_SOURCE says.
 *
 * The model has two layers of attention over one paged cache each, random weights, and no other arithmetic. The tokens
 * of the graph's replays are compared with those of calls that are not captured. Exit codes: 0 done and right, 1
 * failed, 3 no GPU. */
#include "../support/gpu.h"

#include <errno.h>
#include <kjit/kjit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  BATCH = 4,
  LAYERS = 2,
  HEADS = 8,
  HEADS_KV = 2,
  HEAD = 128,
  PAGE = 16,
  PAGES_EACH = 20, /* of a sequence */
  PROMPT = 37,     /* keys in the cache before the first step */
  STEPS = 200,
  VOCABULARY = 512,
  COLUMNS = HEADS * HEAD,
  KV_COLUMNS = HEADS_KV * HEAD,
  THREADS = 128
};

/* As in step.cu. */
struct step_params {
  const void *o, *weights, *table_q, *table_kv;
  void *q, *k_new, *v_new;
  int32_t *lengths, *tokens;
  int32_t columns, kv_columns, vocabulary, most, prompt;
};

struct engine {
  kjit_runtime *runtime;
  kjit_kernel *next_token;
  CUstream stream;
  kjit_attention_serving_args layers[LAYERS];
  struct step_params step;
  kjit_error error;
};

static const char *file_name = "step.cu";

/* ---- The kernels ---- */

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = file ? calloc(1, 1 << 16) : NULL;
  if (text && fread(text, 1, (1 << 16) - 1, file) == 0) text[0] = '\0';
  if (!file)
    fprintf(stderr, "%s: %s; run this in examples/decode_loop, or name the file by DECODE_LOOP_SOURCE\n", path,
            strerror(errno));
  if (file) fclose(file);
  return text;
}

static kjit_serving_model model(void) {
  kjit_serving_model found = kjit_serving_model_default();
  found.dtype = KJIT_FP16;
  found.heads_q = HEADS;
  found.heads_kv = HEADS_KV;
  found.head_dim = HEAD;
  found.page_size = PAGE;
  return found;
}

static kjit_build_request step_request(const char *text, const char *arch) {
  kjit_build_request request = kjit_build_request_default();
  request.arch = arch;
  request.entry = "next_token";
  request.source.name = "step.cu";
  request.source.text = text;
  return request;
}

static kjit_status add(kjit_bundle_writer *writer, kjit_status status, kjit_artifact *artifact, kjit_error *error) {
  if (status == KJIT_OK) status = kjit_bundle_writer_add(writer, artifact, error);
  kjit_artifact_release(artifact);
  return status;
}

/* Compile everything that serving the model may need, whatever batch and lengths, and the engine's own kernel. */
static kjit_status fill_bundle(kjit_bundle_writer *writer, kjit_runtime *runtime, const char *text, const char *arch,
                               kjit_error *error) {
  const kjit_serving_model served = model();
  kjit_config configs[KJIT_SERVING_KERNELS_MAX];
  size_t count;
  kjit_artifact *artifact = NULL;
  kjit_status status = kjit_attention_serving_kernels(&served, arch, configs, &count, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    artifact = NULL;
    status = kjit_config_build(runtime, &configs[i], arch, 0, &artifact, error);
    status = add(writer, status, artifact, error);
  }
  if (status != KJIT_OK) return status;
  const kjit_build_request request = step_request(text, arch);
  artifact = NULL;
  status = kjit_build(runtime, &request, &artifact, error);
  return add(writer, status, artifact, error);
}

/* `archs` ends with NULL. */
static int build(const char *path, const char *const *archs) {
  kjit_runtime *runtime = NULL;
  kjit_bundle_writer *writer = NULL;
  kjit_bundle_blob blob = {0};
  kjit_error error = {0};
  char *text = read_file(file_name);
  if (!text) return 1;
  kjit_status status = kjit_runtime_create(&runtime, NULL, &error);
  if (status == KJIT_OK) status = kjit_bundle_writer_create(&writer, NULL, NULL, &error);
  for (size_t i = 0; archs[i] && status == KJIT_OK; i++)
    status = fill_bundle(writer, runtime, text, archs[i], &error);
  if (status == KJIT_OK) status = kjit_bundle_writer_finish(writer, &blob, &error);
  FILE *file = status == KJIT_OK ? fopen(path, "wb") : NULL;
  const int written = file && fwrite(blob.data, 1, blob.bytes, file) == blob.bytes;
  if (file) fclose(file);
  if (written) printf("%s: %zu bytes\n", path, blob.bytes);
  if (!written) fprintf(stderr, "%s: %s\n", path, status == KJIT_OK ? strerror(errno) : error.message);
  kjit_bundle_writer_destroy(writer);
  kjit_runtime_destroy(runtime);
  free(text);
  return written ? 0 : 1;
}

/* ---- The engine ---- */

/* `count` random fp16 numbers of magnitude below 2, on the device. */
static void *random_memory(size_t count, unsigned seed) {
  uint16_t *values = malloc(count * sizeof *values);
  for (size_t i = 0; i < count && values; i++) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (uint16_t)((seed >> 16 & 0x8000) | (seed >> 8 & 0x3fff)); /* a sign, and an exponent up to 2^0 */
  }
  void *memory = values ? gpu_memory(values, count * sizeof *values) : NULL;
  free(values);
  return memory;
}

static kjit_tensor rows(void *data, int heads) {
  return kjit_tensor_bshd(data, KJIT_FP16, 0, BATCH, 1, heads, HEAD);
}

/* Pages of a sequence lie wherever the pool had one. */
static int32_t *page_table(void) {
  int32_t table[BATCH][PAGES_EACH];
  for (int b = 0; b < BATCH; b++)
    for (int i = 0; i < PAGES_EACH; i++)
      table[b][i] = (i * BATCH + b) * 7 % (BATCH * PAGES_EACH); /* 7 and the number of pages have no common factor */
  return gpu_memory(table, sizeof table);
}

static int prepare_layer(struct engine *engine, kjit_attention_serving_args *args, unsigned seed, void *o) {
  kjit_attention_serving_sizes sizes = {.struct_size = sizeof sizes};
  const int64_t pages = BATCH * PAGES_EACH;
  const size_t elements = (size_t)pages * PAGE * KV_COLUMNS;
  *args = kjit_attention_serving_args_default();
  args->batch = BATCH;
  args->flags = KJIT_ATTENTION_CAUSAL;
  args->q = rows(engine->step.q, HEADS);
  args->o = rows(o, HEADS);
  args->k = kjit_tensor_bshd(random_memory(elements, seed), KJIT_FP16, 0, pages, PAGE, HEADS_KV, HEAD);
  args->v = kjit_tensor_bshd(random_memory(elements, seed + 1), KJIT_FP16, 0, pages, PAGE, HEADS_KV, HEAD);
  args->k_new = rows(engine->step.k_new, HEADS_KV);
  args->v_new = rows(engine->step.v_new, HEADS_KV);
  args->seqused_k = engine->step.lengths;
  args->page_table = page_table();
  args->page_table_stride = args->max_pages = PAGES_EACH;
  if (kjit_attention_serving_get_sizes(engine->runtime, args, &sizes, &engine->error) != KJIT_OK) return 0;
  args->workspace = gpu_memory(NULL, sizes.workspace_bytes);
  args->workspace_bytes = sizes.workspace_bytes;
  args->schedule = gpu_memory(NULL, sizes.schedule_bytes);
  args->schedule_bytes = sizes.schedule_bytes;
  return args->workspace && args->schedule && args->k.data && args->v.data && args->page_table;
}

static int prepare(struct engine *engine, const char *text) {
  kjit_device_info device = {.struct_size = sizeof device};
  if (kjit_device_get_info(engine->runtime, 0, &device, &engine->error) != KJIT_OK) return 0;
  const kjit_build_request request = step_request(text, device.arch);
  struct step_params *step = &engine->step;
  *step = (struct step_params){
      .columns = COLUMNS, .kv_columns = KV_COLUMNS, .vocabulary = VOCABULARY, .most = STEPS, .prompt = PROMPT};
  step->weights = random_memory((size_t)VOCABULARY * COLUMNS, 1);
  step->table_q = random_memory((size_t)VOCABULARY * COLUMNS, 2);
  step->table_kv = random_memory((size_t)VOCABULARY * 2 * KV_COLUMNS, 3);
  step->q = gpu_memory(NULL, sizeof(uint16_t) * BATCH * COLUMNS);
  step->k_new = gpu_memory(NULL, sizeof(uint16_t) * BATCH * KV_COLUMNS);
  step->v_new = gpu_memory(NULL, sizeof(uint16_t) * BATCH * KV_COLUMNS);
  step->lengths = gpu_memory(NULL, sizeof(int32_t) * BATCH);
  step->tokens = gpu_memory(NULL, sizeof(int32_t) * BATCH * STEPS);
  /* A layer's output is the next one's query. */
  void *const o = gpu_memory(NULL, sizeof(uint16_t) * BATCH * COLUMNS);
  void *const last = gpu_memory(NULL, sizeof(uint16_t) * BATCH * COLUMNS);
  step->o = last;
  if (!step->weights || !step->table_q || !step->table_kv || !step->tokens || !o || !last) return 0;
  if (!prepare_layer(engine, &engine->layers[0], 10, o) || !prepare_layer(engine, &engine->layers[1], 20, last))
    return 0;
  engine->layers[1].q = rows(o, HEADS);
  engine->layers[1].schedule = engine->layers[0].schedule; /* the lengths are equal, so one schedule serves both */
  return kjit_kernel_get(engine->runtime, &request, &engine->next_token, &engine->error) == KJIT_OK;
}

/* Enqueue one step. */
static int run_step(struct engine *engine) {
  const kjit_arg args[] = {KJIT_ARG(engine->step)};
  kjit_launch launch = kjit_launch_default();
  kjit_status status = kjit_attention_schedule(engine->runtime, &engine->layers[0], engine->stream, &engine->error);
  for (int i = 0; i < LAYERS && status == KJIT_OK; i++)
    status = kjit_attention_serving(engine->runtime, &engine->layers[i], engine->stream, &engine->error);
  launch.grid[0] = BATCH;
  launch.block[0] = THREADS;
  if (status == KJIT_OK)
    status = kjit_kernel_launch(engine->next_token, &launch, args, 1, engine->stream, &engine->error);
  return status == KJIT_OK;
}

/* Back to the prompt. */
static int rewind_to_prompt(struct engine *engine) {
  static uint16_t zeros[BATCH * COLUMNS];
  static int32_t no_tokens[BATCH * STEPS];
  int32_t lengths[BATCH];
  for (int b = 0; b < BATCH; b++)
    lengths[b] = PROMPT;
  return gpu_store(engine->step.q, zeros, sizeof zeros) &&
         gpu_store(engine->step.k_new, zeros, sizeof(uint16_t) * BATCH * KV_COLUMNS) &&
         gpu_store(engine->step.v_new, zeros, sizeof(uint16_t) * BATCH * KV_COLUMNS) &&
         gpu_store(engine->step.lengths, lengths, sizeof lengths) &&
         gpu_store(engine->step.tokens, no_tokens, sizeof no_tokens);
}

static int generate(struct engine *engine, CUgraphExec graph, int32_t *tokens) {
  if (!rewind_to_prompt(engine)) return 0;
  for (int i = 0; i < STEPS; i++)
    if (graph ? !gpu_launch_graph(graph, engine->stream) : !run_step(engine)) return 0;
  return gpu_fetch(tokens, engine->step.tokens, sizeof *tokens * BATCH * STEPS);
}

static int run(struct engine *engine) {
  static int32_t plain[BATCH * STEPS], replayed[BATCH * STEPS];
  CUgraphExec graph;
  char *text = read_file(file_name);
  const int ready = text && prepare(engine, text);
  free(text);
  if (!ready || !generate(engine, NULL, plain)) return 1;
  if (!gpu_begin_capture(engine->stream) || !run_step(engine) || !gpu_end_capture(engine->stream, &graph)) return 1;
  if (!generate(engine, graph, replayed)) return 1;
  printf("%d sequences, %d steps, keys %d to %d; the first tokens:", BATCH, STEPS, PROMPT, PROMPT + STEPS);
  for (int i = 0; i < 8; i++)
    printf(" %d", (int)plain[i]);
  const int equal = memcmp(plain, replayed, sizeof plain) == 0;
  printf("\nthe graph's tokens are %s\n", equal ? "the same" : "OTHERS");
  return equal ? 0 : 1;
}

int main(int argc, char **argv) {
  static const char *const hopper[] = {"sm_90", "sm_90a", NULL};
  struct engine engine = {0};
  if (argc < 3 || (strcmp(argv[1], "build") != 0 && strcmp(argv[1], "run") != 0)) {
    fprintf(stderr, "usage: decode_loop build BUNDLE [ARCH]...\n       decode_loop run BUNDLE\n");
    return 2;
  }
  if (getenv("DECODE_LOOP_SOURCE")) file_name = getenv("DECODE_LOOP_SOURCE");
  if (strcmp(argv[1], "build") == 0) return build(argv[2], argc > 3 ? (const char *const *)&argv[3] : hopper);
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF; /* no folder is read or written */
  options.nvrtc_path = "/nonexistent"; /* and nothing can be compiled  */
  options.bundle_paths = (const char *const *)&argv[2];
  options.bundle_count = 1;
  if (!gpu_open() || !gpu_stream(&engine.stream)) {
    printf("no GPU here\n");
    return 3;
  }
  int code = kjit_runtime_create(&engine.runtime, &options, &engine.error) == KJIT_OK ? run(&engine) : 1;
  if (code == 1) fprintf(stderr, "failed: %s\n", engine.error.message);
  if (engine.next_token) kjit_kernel_release(engine.next_token);
  kjit_runtime_destroy(engine.runtime);
  return code;
}
