/* What a request for a kernel with headers costs: cold, from the cache folder, from memory and by a program.
 *
 *   bench_sources [CACHE_FOLDER]
 *
 * The folder is made and should be fresh; without one a new folder under /tmp is used. */
#include <kjit/kjit.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct {
  const char *name, *text;
} sources[] = {
    {"fp16", "#include <cuda_fp16.h>\nextern \"C\" __global__ void k(__half *p) { *p = __hadd(p[0], p[1]); }\n"},
    {"cub", "#include <cub/block/block_reduce.cuh>\nextern \"C\" __global__ void k(const int *in, int *out) {\n"
            "  using R = cub::BlockReduce<int, 128>;\n  __shared__ typename R::TempStorage t;\n"
            "  int s = R(t).Sum(in[threadIdx.x]);\n  if (!threadIdx.x) *out = s;\n}\n"},
    {"std",
     "#include <cuda/std/tuple>\n#include <cuda/std/cstdint>\nextern \"C\" __global__ void k(cuda::std::uint32_t *p) {"
     " *p = cuda::std::get<0>(cuda::std::tuple<int, float>{1, 2.f}); }\n"},
};

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static kjit_build_request request_of(size_t index) {
  kjit_build_request request = kjit_build_request_default();
  request.arch = "sm_90";
  request.entry = "k";
  request.source.name = "k.cu";
  request.source.text = sources[index].text;
  return request;
}

static int fail(const kjit_error *error) {
  fprintf(stderr, "bench_sources: %s\n", error->message);
  return 1;
}

/* The least of some calls, in microseconds; below zero when one failed. */
static double time_build(kjit_runtime *runtime, const kjit_build_request *request, int calls, kjit_error *error) {
  double best = -1;
  for (int i = 0; i < calls; i++) {
    kjit_artifact *artifact = NULL;
    const double start = now_us();
    const kjit_status status = kjit_build(runtime, request, &artifact, error);
    const double taken = now_us() - start;
    kjit_artifact_release(artifact);
    if (status != KJIT_OK) return -1;
    if (best < 0 || taken < best) best = taken;
  }
  return best;
}

static double time_program(kjit_runtime *runtime, const kjit_build_request *request, int calls, kjit_error *error) {
  kjit_program *program = NULL;
  kjit_artifact *artifact = NULL;
  if (kjit_program_create(runtime, request, &program, error) != KJIT_OK) return -1;
  kjit_status status = kjit_program_get(program, NULL, &artifact, error);
  kjit_artifact_release(artifact);
  const double start = now_us();
  for (int i = 0; i < calls && status == KJIT_OK; i++) {
    status = kjit_program_get(program, NULL, &artifact, error);
    kjit_artifact_release(artifact);
  }
  const double taken = (now_us() - start) / calls;
  kjit_program_release(program);
  return status == KJIT_OK ? taken : -1;
}

static kjit_status open_runtime(kjit_runtime **runtime, const char *folder, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = folder;
  return kjit_runtime_create(runtime, &options, error);
}

static int measure(const char *folder, size_t index, kjit_error *error) {
  kjit_build_request request = request_of(index);
  kjit_runtime *runtime = NULL;
  if (open_runtime(&runtime, folder, error) != KJIT_OK) return fail(error);
  const double cold = time_build(runtime, &request, 1, error);
  kjit_runtime_destroy(runtime);
  if (open_runtime(&runtime, folder, error) != KJIT_OK) return fail(error);
  const double disk = time_build(runtime, &request, 1, error);
  const double memory = time_build(runtime, &request, 50, error);
  request.flags = KJIT_BUILD_STRICT_SOURCES;
  const double strict = time_build(runtime, &request, 5, error);
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  const double resident = time_build(runtime, &request, 1000, error);
  request.flags = 0;
  const double program = time_program(runtime, &request, 100000, error);
  kjit_runtime_destroy(runtime);
  if (cold < 0 || disk < 0 || memory < 0 || strict < 0 || resident < 0 || program < 0) return fail(error);
  printf("%-6s %10.1f %10.3f %10.3f %10.1f %10.2f %10.3f\n", sources[index].name, cold / 1e3, disk / 1e3, memory / 1e3,
         strict / 1e3, resident, program);
  return 0;
}

int main(int argc, char **argv) {
  char made[] = "/tmp/bench_sources.XXXXXX";
  const char *folder = argc > 1 ? argv[1] : mkdtemp(made);
  kjit_error error = {0};
  printf("%-6s %10s %10s %10s %10s %10s %10s\n", "", "cold ms", "disk ms", "memory ms", "strict ms", "resident us",
         "program us");
  int code = folder ? 0 : 1;
  for (size_t i = 0; i < sizeof sources / sizeof *sources && !code; i++)
    code = measure(folder, i, &error);
  return code;
}
