/* Compiling one config for the first time: kjit's build in a fresh runtime over an empty cache folder (key, compile,
 * checks, publish) against the bare NVRTC calls on the same text with the same options, --no-cache among them. Timed in
 * turns, after NVRTC has been loaded. No GPU. */
#include <ftw.h>
#include <kjit/kjit.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "family/config_build.h"
#include "jit/compile/compile.h"
#include "jit/request/compile_options.h"
#include "output.h"

#define ARCH         "sm_80"
#define MOST_ROUNDS  1000
#define MOST_HEADERS 64
#define MOST_OPTIONS 16

static const char config_text[] = "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax";

/* What the bare calls are given. */
struct bare {
  const struct nvrtc_api *api;
  struct source_shelf shelf; /* holds the request's sources */
  struct config_request request;
  char *source; /* prologue and main file */
  const char *texts[MOST_HEADERS], *names[MOST_HEADERS], *options[MOST_OPTIONS];
  int header_count, option_count;
};

static int remove_visit(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  (void)kind;
  (void)walk;
  return remove(path);
}

static bool bare_prepare(struct bare *bare, const struct mem *mem, const kjit_flash_config *config, kjit_error *error) {
  source_shelf_init(&bare->shelf, mem);
  const kjit_config plain = kjit_flash_config_plain(config);
  const struct config_act act = {.arch = ARCH};
  if (config_request_init(&bare->request, mem, &bare->shelf, plain.family, plain.values, &act, error) != KJIT_OK)
    return false;
  const struct jit_request *request = &bare->request.request;
  const struct source_set *sources = request->sources;
  const char *const *standing;
  const size_t standing_count = compile_standing_options(&standing);
  if (sources->count - 1 > MOST_HEADERS || standing_count + request->option_count + 2 > MOST_OPTIONS) return false;
  for (size_t i = 1; i < sources->count; i++, bare->header_count++) {
    bare->texts[bare->header_count] = sources->files[i].text;
    bare->names[bare->header_count] = sources->files[i].name;
  }
  for (size_t i = 0; i < standing_count; i++)
    bare->options[bare->option_count++] = standing[i];
  for (size_t i = 0; i < request->option_count; i++)
    bare->options[bare->option_count++] = request->options[i];
  bare->options[bare->option_count++] = "--gpu-architecture=" ARCH;
  bare->options[bare->option_count++] = "--no-cache";
  bare->source = malloc(strlen(request->prologue) + sources->files[0].bytes + 1);
  if (!bare->source) return false;
  strcpy(bare->source, request->prologue);
  strcat(bare->source, sources->files[0].text);
  return true;
}

static bool take_cubin(const struct bare *bare, nvrtcProgram program) {
  size_t bytes = 0;
  if (bare->api->nvrtcGetCUBINSize(program, &bytes) != NVRTC_SUCCESS || bytes == 0) return false;
  char *cubin = malloc(bytes);
  const bool taken = cubin && bare->api->nvrtcGetCUBIN(program, cubin) == NVRTC_SUCCESS;
  free(cubin);
  return taken;
}

static bool compile_bare(const struct bare *bare, double *milliseconds) {
  nvrtcProgram program = NULL;
  const double begin = statistics_now();
  nvrtcResult result =
      bare->api->nvrtcCreateProgram(&program, bare->source, bare->request.request.sources->files[0].name,
                                    bare->header_count, bare->texts, bare->names);
  if (result == NVRTC_SUCCESS) result = bare->api->nvrtcCompileProgram(program, bare->option_count, bare->options);
  const bool made = result == NVRTC_SUCCESS && take_cubin(bare, program);
  if (program) bare->api->nvrtcDestroyProgram(&program);
  *milliseconds = (statistics_now() - begin) * 1e3;
  return made;
}

static kjit_status build_in(const char *folder, const kjit_flash_config *config, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  options.cache_dir = folder;
  options.cache_mode = KJIT_CACHE_RW;
  const kjit_config plain = kjit_flash_config_plain(config);
  kjit_status status = kjit_runtime_create(&runtime, &options, error);
  if (status == KJIT_OK) status = kjit_config_build(runtime, &plain, ARCH, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  if (status == KJIT_OK && info.origin != KJIT_ORIGIN_BUILT) {
    status = KJIT_ERR_INTERNAL;
    if (error) snprintf(error->message, sizeof error->message, "the cache was not empty");
  }
  kjit_artifact_release(artifact);
  kjit_runtime_destroy(runtime);
  return status;
}

static kjit_status compile_by_kjit(const kjit_flash_config *config, double *milliseconds, kjit_error *error) {
  char folder[] = "/tmp/kjit-bench-XXXXXX";
  if (!mkdtemp(folder)) return KJIT_ERR_IO;
  const double begin = statistics_now();
  const kjit_status status = build_in(folder, config, error);
  *milliseconds = (statistics_now() - begin) * 1e3;
  nftw(folder, remove_visit, 16, FTW_DEPTH | FTW_PHYS);
  return status;
}

static int measure(const struct output *output, const struct bare *bare, const kjit_flash_config *config,
                   size_t rounds) {
  static double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
  kjit_error error = {0};
  double ignored;
  if (!compile_bare(bare, &ignored)) return output_failure(output, "NVRTC does not compile the kernel");
  for (size_t i = 0; i < rounds; i++) {
    if (!compile_bare(bare, &theirs[i])) return output_failure(output, "NVRTC does not compile the kernel");
    if (compile_by_kjit(config, &ours[i], &error) != KJIT_OK) return output_failure(output, "%s", error.message);
  }
  const struct statistics kjit = statistics_of(ours, rounds), nvrtc = statistics_of(theirs, rounds);
  output_note(output, "%s for %s", config_text, ARCH);
  output_statistics(output, "kjit, empty cache", "ms", &kjit);
  output_statistics(output, "bare NVRTC, --no-cache", "ms", &nvrtc);
  output_number(output, "kjit / bare", "x", kjit.median / nvrtc.median);
  return 0;
}

int main(int argc, char **argv) {
  struct output output = {.benchmark = "cold_compile"};
  size_t rounds = 15;
  if (!output_read_options(&output, argc, argv, &rounds, MOST_ROUNDS)) return 2;
  kjit_error error = {0};
  struct mem memory;
  const kjit_allocator hooks = {0};
  struct nvrtc *nvrtc = NULL;
  struct bare bare = {0};
  kjit_flash_config config;
  int major, minor, code = 1;
  kjit_status status = mem_init(&memory, &hooks) ? KJIT_OK : KJIT_ERR_INTERNAL;
  if (status == KJIT_OK) status = kjit_flash_config_parse(config_text, &config, &error);
  if (status == KJIT_OK) status = nvrtc_create(&nvrtc, &memory, NULL, 1, &error);
  if (status == KJIT_OK) status = nvrtc_open(nvrtc, &bare.api, &major, &minor, &error);
  if (status == KJIT_OK && bare_prepare(&bare, &memory, &config, &error))
    code = measure(&output, &bare, &config, rounds);
  else
    output_failure(&output, "%s", error.message);
  config_request_finish(&bare.request);
  source_shelf_finish(&bare.shelf);
  free(bare.source);
  nvrtc_destroy(nvrtc);
  return status == KJIT_ERR_NO_NVRTC ? 4 : code;
}
