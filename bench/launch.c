/* What a launch costs the host: kjit against bare cuLaunchKernel of the same cubin, timed in turns.
 *
 * - flash_forward: bare, by plan, and by config, which includes every check and the look-up.
 * - attention_sm90, on cards that have it: bare, by plan, and by arguments, which includes every check, the choice, the
 *   tuned table, the look-up and finding the tensor maps again; for a full problem, a causal one whose blocks take
 *   their tiles from a counter, and one with split-KV.
 * - A caller's own kernel, of one argument and of five: bare, and by kjit_kernel_launch().
 *
 * The bare launches are recorded from a kjit launch whose driver functions are watched. Needs a GPU; the exit code is 3
 * without one. */
#include <kjit/kjit.h>

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "attention_sm90/params.h"
#include "flash_forward/params.h"
#include "output.h"
#include "runtime/driver.h"
#include "runtime/runtime_internal.h"
#include "support/attention_data.h"
#include "support/random.h"
#include "turns.h"

#define MOST_SCENES 8

static const char empty_source[] = "struct empty_params { int *nothing; };\n"
                                   "extern \"C\" __global__ void empty(const __grid_constant__ empty_params p) {}\n";

struct empty_params {
  int *nothing;
};

static const char five_source[] =
    "extern \"C\" __global__ void five(float *y, const float *x, double a, int n, char tag) {}\n";

/* What is handed to it. */
struct five_params {
  void *y, *x;
  double a;
  int n;
  char tag;
};

#define MOST_ARGUMENTS 5

/* A launch as somebody without kjit makes it: what kjit gave the driver once, and the cubin loaded past kjit. */
struct bare {
  kjit_runtime
      *runtime; /* the runtime that was watched; it owns the cubin and the memory that the argument points to */
  const void *cubin;
  const char *entry;
  unsigned grid[3], block[3], shared_bytes;
  CUmodule module;
  CUfunction function;
  size_t argument_bytes; /* of the first or, with five arguments, of them all */
  bool five;
  union {
    struct flash_forward_params flash;
    struct attention_sm90_params sm90;
    struct empty_params empty;
    struct five_params five;
  } argument;
};

struct scene;

/* Launch through a given runtime, with everything that the scene has. */
typedef kjit_status scene_launch(const struct scene *scene, kjit_runtime *runtime, CUstream stream, kjit_error *error);

/* A kernel with its arguments, which is launched in different ways. */
struct scene {
  struct bare bare;
  kjit_runtime *runtime;
  const struct card *card;
  kjit_attention_plan *plan;
  kjit_kernel *empty;
  struct attention_data data;
  kjit_config config; /* of flash_forward */
};

struct bench {
  struct scene scenes[MOST_SCENES];
  size_t scene_count;
  struct turns turns;
  struct output output;
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  struct driver driver;
  struct driver_api watched; /* the driver's functions, some of them by way of `watch` */
};

/* The functions that watch find their state here, because the driver's functions have no parameter for it. */
static struct {
  const struct driver_api *cu;
  struct bare *bare;
} watch;

static CUresult watch_load(CUlibrary *library, const void *image, CUjit_option *jit_options, void **jit_values,
                           unsigned jit_count, CUlibraryOption *options, void **values, unsigned count) {
  watch.bare->cubin = image;
  return watch.cu->LibraryLoadData(library, image, jit_options, jit_values, jit_count, options, values, count);
}

static CUresult watch_kernel(CUkernel *kernel, CUlibrary library, const char *name) {
  watch.bare->entry = name;
  return watch.cu->LibraryGetKernel(kernel, library, name);
}

static CUresult watch_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                             void **parameters, void **extra) {
  struct bare *const bare = watch.bare;
  memcpy(bare->grid, (unsigned[]){grid_x, grid_y, grid_z}, sizeof bare->grid);
  memcpy(bare->block, (unsigned[]){block_x, block_y, block_z}, sizeof bare->block);
  bare->shared_bytes = shared_bytes;
  if (!bare->five) memcpy(&bare->argument, parameters[0], bare->argument_bytes);
  return watch.cu->LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                                parameters, extra);
}

static void watch_driver(struct bench *bench) {
  bench->watched = bench->driver.cu;
  bench->watched.LibraryLoadData = watch_load;
  bench->watched.LibraryGetKernel = watch_kernel;
  bench->watched.LaunchKernel = watch_launch;
}

/* Launch once through a fresh runtime whose driver is watched. Nothing is loaded there yet, so that the load of the
 * cubin is seen too. */
static kjit_status bare_record(struct bench *bench, struct scene *scene, scene_launch *launch, size_t argument_bytes,
                               kjit_error *error) {
  struct bare *const bare = &scene->bare;
  const struct runtime_fakes fakes = {.driver = &bench->watched};
  watch.cu = &bench->driver.cu;
  watch.bare = bare;
  bare->argument_bytes = argument_bytes;
  kjit_status status = runtime_create_with(&bare->runtime, NULL, &fakes, error);
  if (status == KJIT_OK) status = launch(scene, bare->runtime, scene->card->stream, error);
  return status == KJIT_OK ? card_synchronize(scene->card, scene->card->stream, error) : status;
}

static kjit_status bare_load(struct bare *bare, const struct card *card, kjit_error *error) {
  const struct card_api *const api = &card->api;
  kjit_status status = card_result(card, api->module_load(&bare->module, bare->cubin), "cuModuleLoadData", error);
  if (status == KJIT_OK)
    status = card_result(card, api->module_function(&bare->function, bare->module, bare->entry), "cuModuleGetFunction",
                         error);
  if (status != KJIT_OK) return status;
  return card_result(
      card, api->function_set(bare->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bare->shared_bytes),
      "cuFuncSetAttribute", error);
}

static kjit_status launch_bare(void *user, CUstream stream, kjit_error *error) {
  struct scene *const s = user;
  const struct bare *const b = &s->bare;
  struct five_params *const five = &s->bare.argument.five;
  void *one[] = {&s->bare.argument}, *all[MOST_ARGUMENTS] = {&five->y, &five->x, &five->a, &five->n, &five->tag};
  return card_result(s->card,
                     s->card->api.launch(b->function, b->grid[0], b->grid[1], b->grid[2], b->block[0], b->block[1],
                                         b->block[2], b->shared_bytes, stream, b->five ? all : one, NULL),
                     "cuLaunchKernel", error);
}

/* Add an empty scene. */
static struct scene *scene_new(struct bench *bench) {
  assert(bench->scene_count < MOST_SCENES);
  struct scene *const scene = &bench->scenes[bench->scene_count++];
  scene->runtime = bench->runtime;
  scene->card = &bench->card;
  return scene;
}

static void scene_destroy(struct scene *s) {
  if (s->bare.module) s->card->api.module_unload(s->bare.module);
  kjit_runtime_destroy(s->bare.runtime);
  kjit_attention_plan_destroy(s->plan);
  kjit_kernel_release(s->empty);
  attention_data_destroy(&s->data);
}

/* Beside ways[0], which is bare. `launch` shows what that is. */
static kjit_status scene_compare(struct bench *bench, struct scene *scene, const char *name, scene_launch *launch,
                                 size_t argument_bytes, const struct turns_way *ways, size_t count, kjit_error *error) {
  kjit_status status = bare_record(bench, scene, launch, argument_bytes, error);
  if (status == KJIT_OK) status = bare_load(&scene->bare, scene->card, error);
  if (status == KJIT_OK) turns_add(&bench->turns, name, ways, count, scene);
  return status;
}

static kjit_status flash_launch(const struct scene *s, kjit_runtime *runtime, CUstream stream, kjit_error *error) {
  return kjit_attention_forward(runtime, &s->config, &s->data.args, stream, error);
}

static kjit_status launch_plan(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return kjit_attention_plan_run(s->plan, stream, error);
}

static kjit_status launch_flash_config(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return flash_launch(s, s->runtime, stream, error);
}

/* A problem of one block of threads; bf16 and one head unless the caller changes it. */
static struct trial_problem tiny_problem(void) {
  return (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = 1, .seq_q = 64, .seq_kv = 64, .head_dim = 128),
      .seed = random_fresh_seed()};
}

static kjit_status add_flash(struct bench *bench, kjit_error *error) {
  static const struct turns_way ways[] = {
      {"bare cuLaunchKernel", launch_bare}, {"plan", launch_plan}, {"by config", launch_flash_config}};
  struct scene *const scene = scene_new(bench);
  struct trial_problem problem = tiny_problem();
  problem.asked.dtype = KJIT_FP16;
  kjit_status status = kjit_config_parse(
      kjit_family_find("flash_forward"),
      "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax", &scene->config, error);
  if (status == KJIT_OK) status = attention_data_create(&scene->data, &bench->kernels, &problem, error);
  if (status == KJIT_OK)
    status = kjit_attention_plan_create(&scene->plan, scene->runtime, &scene->config, &scene->data.args, error);
  if (status != KJIT_OK) return status;
  return scene_compare(bench, scene, "flash_forward", flash_launch, sizeof(struct flash_forward_params), ways,
                       sizeof ways / sizeof *ways, error);
}

static kjit_status attention_launch(const struct scene *s, kjit_runtime *runtime, CUstream stream, kjit_error *error) {
  return kjit_attention_forward(runtime, NULL, &s->data.args, stream, error);
}

static kjit_status launch_arguments(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return attention_launch(s, s->runtime, stream, error);
}

/* Says which kernel it is, or that this card has another family's for it. */
static kjit_status add_sm90(struct bench *bench, const char *name, const struct trial_problem *problem,
                            kjit_error *error) {
  static const struct turns_way ways[] = {
      {"bare cuLaunchKernel", launch_bare}, {"plan", launch_plan}, {"by arguments", launch_arguments}};
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_config config;
  kjit_status status = kjit_attention_choose(bench->runtime, &problem->asked, NULL, &config, NULL, error);
  if (status == KJIT_OK) status = kjit_config_print(&config, 0, text, sizeof text, error);
  if (status != KJIT_OK) return status;
  if (config.family != kjit_family_find("attention_sm90")) {
    output_note(&bench->output, "%s: left out, as this %s card gets %s", name, bench->card.arch, text);
    return KJIT_OK;
  }
  output_note(&bench->output, "%s: %s", name, text);
  struct scene *const scene = scene_new(bench);
  status = attention_data_create(&scene->data, &bench->kernels, problem, error);
  if (status == KJIT_OK)
    status = kjit_attention_plan_create(&scene->plan, scene->runtime, NULL, &scene->data.args, error);
  if (status != KJIT_OK) return status;
  return scene_compare(bench, scene, name, attention_launch, sizeof(struct attention_sm90_params), ways,
                       sizeof ways / sizeof *ways, error);
}

/* Launches that differ in what they need of the stream: nothing, tickets, memory for parts of the result. */
static kjit_status add_sm90_all(struct bench *bench, kjit_error *error) {
  const struct trial_problem full = tiny_problem();
  struct trial_problem causal = full, split = full;
  problem_set_causal(&causal, 1);
  causal.asked.heads_q = 2 * bench->card.multiprocessors; /* a tile each: more than blocks, so that they take tickets */
  causal.asked.seq_kv = 272;                              /* more keys than attention_short_sm90 takes */
  split.asked.seq_q = 1;
  split.asked.seq_kv = 4096;
  kjit_status status = add_sm90(bench, "sm90 full", &full, error);
  if (status == KJIT_OK) status = add_sm90(bench, "sm90 causal", &causal, error);
  return status == KJIT_OK ? add_sm90(bench, "sm90 split", &split, error) : status;
}

static kjit_status empty_get(kjit_runtime *runtime, kjit_kernel **out, kjit_error *error) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = "empty";
  request.source = (kjit_source){"empty.cu", empty_source, 0};
  return kjit_kernel_get(runtime, &request, out, error);
}

static kjit_status empty_enqueue(kjit_kernel *kernel, CUstream stream, kjit_error *error) {
  const struct empty_params params = {NULL};
  kjit_launch launch = kjit_launch_default();
  launch.block[0] = 32;
  const kjit_arg arg = KJIT_ARG(params);
  return kjit_kernel_launch(kernel, &launch, &arg, 1, stream, error);
}

static kjit_status empty_launch(const struct scene *s, kjit_runtime *runtime, CUstream stream, kjit_error *error) {
  (void)s;
  kjit_kernel *kernel = NULL;
  kjit_status status = empty_get(runtime, &kernel, error);
  if (status == KJIT_OK) status = empty_enqueue(kernel, stream, error);
  kjit_kernel_release(kernel);
  return status;
}

static kjit_status launch_empty(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return empty_enqueue(s->empty, stream, error);
}

static kjit_status add_own(struct bench *bench, kjit_error *error) {
  static const struct turns_way ways[] = {{"bare cuLaunchKernel", launch_bare}, {"kjit_kernel_launch", launch_empty}};
  struct scene *const scene = scene_new(bench);
  const kjit_status status = empty_get(scene->runtime, &scene->empty, error);
  if (status != KJIT_OK) return status;
  return scene_compare(bench, scene, "own kernel", empty_launch, sizeof(struct empty_params), ways,
                       sizeof ways / sizeof *ways, error);
}

static kjit_status five_get(kjit_runtime *runtime, kjit_kernel **out, kjit_error *error) {
  kjit_build_request request = kjit_build_request_default();
  request.entry = "five";
  request.source = (kjit_source){"five.cu", five_source, 0};
  return kjit_kernel_get(runtime, &request, out, error);
}

static kjit_status five_enqueue(kjit_kernel *kernel, CUstream stream, kjit_error *error) {
  const struct five_params p = {NULL, NULL, 1, 0, 0};
  const kjit_arg args[MOST_ARGUMENTS] = {KJIT_ARG(p.y), KJIT_ARG(p.x), KJIT_ARG(p.a), KJIT_ARG(p.n), KJIT_ARG(p.tag)};
  kjit_launch launch = kjit_launch_default();
  launch.block[0] = 32;
  return kjit_kernel_launch(kernel, &launch, args, MOST_ARGUMENTS, stream, error);
}

static kjit_status five_launch(const struct scene *s, kjit_runtime *runtime, CUstream stream, kjit_error *error) {
  (void)s;
  kjit_kernel *kernel = NULL;
  kjit_status status = five_get(runtime, &kernel, error);
  if (status == KJIT_OK) status = five_enqueue(kernel, stream, error);
  kjit_kernel_release(kernel);
  return status;
}

static kjit_status launch_five(void *user, CUstream stream, kjit_error *error) {
  const struct scene *s = user;
  return five_enqueue(s->empty, stream, error);
}

static kjit_status add_five(struct bench *bench, kjit_error *error) {
  static const struct turns_way ways[] = {{"bare cuLaunchKernel", launch_bare}, {"kjit_kernel_launch", launch_five}};
  struct scene *const scene = scene_new(bench);
  scene->bare.five = 1;
  const kjit_status status = five_get(scene->runtime, &scene->empty, error);
  if (status != KJIT_OK) return status;
  return scene_compare(bench, scene, "five arguments", five_launch, sizeof(struct five_params), ways,
                       sizeof ways / sizeof *ways, error);
}

static kjit_status bench_open(struct bench *bench, kjit_error *error) {
  const char *const path = getenv("KJIT_LIBCUDA");
  kjit_status status = card_open(&bench->card, 0, error);
  if (status == KJIT_OK) status = driver_open(&bench->driver, path && *path ? path : NULL, error);
  if (status == KJIT_OK) watch_driver(bench);
  if (status == KJIT_OK) status = kjit_runtime_create(&bench->runtime, NULL, error);
  if (status == KJIT_OK) status = check_kernels_create(&bench->kernels, bench->runtime, &bench->card, error);
  if (status == KJIT_OK) status = add_flash(bench, error);
  if (status == KJIT_OK) status = add_sm90_all(bench, error);
  if (status == KJIT_OK) status = add_own(bench, error);
  return status == KJIT_OK ? add_five(bench, error) : status;
}

static void bench_close(struct bench *bench) {
  for (size_t i = 0; i < bench->scene_count; i++)
    scene_destroy(&bench->scenes[i]);
  check_kernels_destroy(&bench->kernels);
  kjit_runtime_destroy(bench->runtime);
  card_close(&bench->card);
}

int main(int argc, char **argv) {
  static struct bench bench = {.output.benchmark = "launch"};
  size_t rounds = 500;
  if (!output_read_options(&bench.output, argc, argv, &rounds, TURNS_MOST_ROUNDS)) return 2;
  kjit_error error = {0};
  kjit_status status = bench_open(&bench, &error);
  if (status == KJIT_OK) status = turns_run(&bench.turns, &bench.card, rounds, &bench.output, &error);
  bench_close(&bench);
  if (status == KJIT_OK) return 0;
  output_failure(&bench.output, "%s", error.message);
  return status == KJIT_ERR_NO_DRIVER ? 3 : 1;
}
