/*
 * What a launch costs the host: through kjit against bare cuLaunchKernel of the same cubin, in turns.
 *   attention: bare, by plan, by config (every check and the lookup)
 *   a caller's own kernel: bare, kjit_kernel_launch()
 * The time is that of enqueueing a batch, over the batch; the GPU is waited for outside of it. A batch is short enough
 * for the driver's queue. Needs a GPU: exit code 3 without.
 */
#include <kjit/kjit.h>

#include <stdio.h>
#include <string.h>

#include "flash_forward/params.h"
#include "output.h"
#include "support/attention_data.h"
#include "support/random.h"

#define BATCH       100
#define MOST_ROUNDS 10000

static const char empty_source[] = "struct empty_params { int *nothing; };\n"
                                   "extern \"C\" __global__ void empty(const __grid_constant__ empty_params p) {}\n";

/* The same work, launched in different ways. */
struct scene {
  struct output output;
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  struct attention_data data;
  kjit_flash_config config;
  kjit_flash_geometry geometry;
  kjit_flash_plan *plan;
  kjit_kernel *empty;
  CUmodule modules[2];
  CUfunction bare_attention, bare_empty;
  struct flash_forward_params params;
};

static struct flash_forward_strides strides_of(const kjit_tensor *t) {
  return (struct flash_forward_strides){t->stride[0], t->stride[1], t->stride[2]};
}

static kjit_status launch_bare_attention(void *user, CUstream stream, kjit_error *error) {
  struct scene *s = user;
  void *parameters[] = {&s->params};
  return card_result(&s->card,
                     s->card.api.launch(s->bare_attention, 1, 1, 1, s->geometry.threads, 1, 1, s->geometry.shared_bytes,
                                        stream, parameters, NULL),
                     "cuLaunchKernel", error);
}

static kjit_status launch_plan(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return kjit_flash_plan_run(s->plan, stream, error);
}

static kjit_status launch_config(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return kjit_flash_forward(s->runtime, &s->config, &s->data.args, stream, error);
}

static kjit_status launch_bare_empty(void *user, CUstream stream, kjit_error *error) {
  struct scene *s = user;
  int *nothing = NULL;
  void *parameters[] = {&nothing};
  return card_result(&s->card, s->card.api.launch(s->bare_empty, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL),
                     "cuLaunchKernel", error);
}

static kjit_status launch_kernel(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  int *nothing = NULL;
  kjit_launch launch = kjit_launch_default();
  launch.block[0] = 32;
  return kjit_kernel_launch(s->empty, &launch, &nothing, sizeof nothing, stream, error);
}

static const struct {
  const char *name;
  card_work work;
  size_t base; /* the variant that it is compared with */
} variants[] = {{"attention, bare cuLaunchKernel", launch_bare_attention, 0},
                {"attention, plan", launch_plan, 0},
                {"attention, by config", launch_config, 0},
                {"own kernel, bare cuLaunchKernel", launch_bare_empty, 3},
                {"own kernel, kjit_kernel_launch", launch_kernel, 3}};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* The cubin loaded past kjit. */
static kjit_status load_bare(struct scene *s, const kjit_artifact *artifact, CUmodule *module, CUfunction *function,
                             kjit_error *error) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_artifact_get_info(artifact, &info, error);
  if (status == KJIT_OK)
    status = card_result(&s->card, s->card.api.module_load(module, info.cubin), "cuModuleLoadData", error);
  if (status == KJIT_OK)
    status =
        card_result(&s->card, s->card.api.module_function(function, *module, info.entry), "cuModuleGetFunction", error);
  return status;
}

static kjit_status prepare_attention(struct scene *s, kjit_error *error) {
  const struct problem problem = {.dtype = KJIT_FP16,
                                  .batch = 1,
                                  .heads = 1,
                                  .seq_q = 64,
                                  .seq_kv = 64,
                                  .head_dim = 128,
                                  .seed = random_fresh_seed()};
  kjit_artifact *artifact = NULL;
  kjit_status status = kjit_flash_config_parse(
      "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax", &s->config, error);
  if (status == KJIT_OK) status = attention_data_create(&s->data, &s->kernels, &problem, error);
  if (status == KJIT_OK) status = kjit_flash_plan_create(s->runtime, &s->config, &s->data.args, &s->plan, error);
  if (status == KJIT_OK) status = kjit_flash_build(s->runtime, &s->config, s->card.arch, 0, &artifact, error);
  if (status == KJIT_OK) status = load_bare(s, artifact, &s->modules[0], &s->bare_attention, error);
  kjit_artifact_release(artifact);
  if (status != KJIT_OK) return status;
  const kjit_attention_args *args = &s->data.args;
  s->geometry = kjit_flash_config_geometry(&s->config);
  s->params = (struct flash_forward_params){.q = args->q.data,
                                            .k = args->k.data,
                                            .v = args->v.data,
                                            .o = args->o.data,
                                            .q_stride = strides_of(&args->q),
                                            .k_stride = strides_of(&args->k),
                                            .v_stride = strides_of(&args->v),
                                            .o_stride = strides_of(&args->o),
                                            .seq_q = 64,
                                            .seq_kv = 64,
                                            .scale = 0.088388f,
                                            .scale_log2 = 0.127517f};
  return card_result(&s->card,
                     s->card.api.function_set(s->bare_attention, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              (int)s->geometry.shared_bytes),
                     "cuFuncSetAttribute", error);
}

static kjit_status prepare_empty(struct scene *s, kjit_error *error) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = "empty";
  request.source = (kjit_source){"empty.cu", empty_source, 0};
  const kjit_status status = kjit_kernel_get(s->runtime, &request, &s->empty, error);
  if (status != KJIT_OK) return status;
  return load_bare(s, kjit_kernel_artifact(s->empty), &s->modules[1], &s->bare_empty, error);
}

static kjit_status scene_open(struct scene *s, kjit_error *error) {
  kjit_status status = card_open(&s->card, 0, error);
  if (status == KJIT_OK) status = kjit_runtime_create(&s->runtime, NULL, error);
  if (status == KJIT_OK) status = check_kernels_create(&s->kernels, s->runtime, &s->card, error);
  if (status == KJIT_OK) status = prepare_attention(s, error);
  return status == KJIT_OK ? prepare_empty(s, error) : status;
}

static void scene_close(struct scene *s) {
  for (size_t i = 0; i < 2; i++)
    if (s->modules[i]) s->card.api.module_unload(s->modules[i]);
  kjit_flash_plan_destroy(s->plan);
  kjit_kernel_release(s->empty);
  attention_data_destroy(&s->data);
  check_kernels_destroy(&s->kernels);
  kjit_runtime_destroy(s->runtime);
  card_close(&s->card);
}

/* Microseconds a launch, of one batch. */
static kjit_status time_batch(struct scene *s, card_work work, double *microseconds, kjit_error *error) {
  kjit_status status = KJIT_OK;
  const double begin = statistics_now();
  for (int i = 0; i < BATCH && status == KJIT_OK; i++)
    status = work(s, s->card.stream, error);
  *microseconds = (statistics_now() - begin) * 1e6 / BATCH;
  return status == KJIT_OK ? card_synchronize(&s->card, s->card.stream, error) : status;
}

static kjit_status measure(struct scene *s, size_t rounds, kjit_error *error) {
  static double times[VARIANTS][MOST_ROUNDS];
  struct statistics results[VARIANTS];
  kjit_status status = KJIT_OK;
  for (size_t v = 0; v < VARIANTS && status == KJIT_OK; v++)
    status = time_batch(s, variants[v].work, times[v], error);
  for (size_t round = 0; round < rounds; round++)
    for (size_t v = 0; v < VARIANTS && status == KJIT_OK; v++)
      status = time_batch(s, variants[v].work, &times[v][round], error);
  if (status != KJIT_OK) return status;
  for (size_t v = 0; v < VARIANTS; v++) {
    results[v] = statistics_of(times[v], rounds);
    output_statistics(&s->output, variants[v].name, "us", &results[v]);
  }
  for (size_t v = 0; v < VARIANTS; v++) {
    char name[80];
    snprintf(name, sizeof name, "%s: more than bare", variants[v].name);
    if (variants[v].base != v)
      output_number(&s->output, name, "us", results[v].median - results[variants[v].base].median);
  }
  return KJIT_OK;
}

int main(int argc, char **argv) {
  struct scene scene = {.output.benchmark = "launch"};
  size_t rounds = 500;
  if (!output_read_options(&scene.output, argc, argv, &rounds, MOST_ROUNDS)) return 2;
  kjit_error error = {0};
  kjit_status status = scene_open(&scene, &error);
  if (status == KJIT_OK) status = measure(&scene, rounds, &error);
  scene_close(&scene);
  if (status == KJIT_OK) return 0;
  output_failure(&scene.output, "%s", error.message);
  return status == KJIT_ERR_NO_DRIVER ? 3 : 1;
}
