/* What a compile of header-heavy sources costs: in the process, in the compile server, and with a precompiled header.
 * usage: bench_compile_server INCLUDE_DIR[:INCLUDE_DIR] [HEADER] [KERNELS] [THREADS] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kjit/kjit.h>

#define KERNELS_MAX 64

/* Headers that CUB and CuTe include by a macro's value. The closure of includes follows written names alone. */
static const char computed[] = "\n#if 0\n#include <thrust/system/cuda/detail/execution_policy.h>\n"
                               "#include <thrust/system/cpp/detail/execution_policy.h>\n"
                               "#include <thrust/system/cuda/memory_resource.h>\n"
                               "#include <thrust/system/cuda/detail/memory.inl>\n"
                               "#include <thrust/system/cpp/detail/memory.inl>\n#endif\n";

struct bench {
  const char *folders[8];
  size_t folder_count;
  const char *header;
  kjit_runtime *runtime;
  int kernels, threads;
};

struct worker {
  struct bench *bench;
  int first;
};

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void build(struct bench *bench, int number) {
  char text[2000];
  kjit_artifact *artifact = NULL;
  kjit_error error = KJIT_ZERO;
  kjit_build_request request = kjit_build_request_default();
  snprintf(text, sizeof text, "#include <%s>\nextern \"C\" __global__ void k(int *x) { *x += %d; }\n%s", bench->header,
           number, strstr(bench->header, "cub/") ? computed : "");
  request.arch = "sm_80";
  request.entry = "k";
  request.source = (kjit_source){"k.cu", text, 0};
  request.include_dirs = bench->folders;
  request.include_dir_count = bench->folder_count;
  if (kjit_build(bench->runtime, &request, &artifact, &error) != KJIT_OK) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  kjit_artifact_release(artifact);
}

static void *build_some(void *user) {
  struct worker *worker = user;
  for (int i = worker->first; i < worker->bench->kernels; i += worker->bench->threads)
    build(worker->bench, i);
  return NULL;
}

static double build_all(struct bench *bench) {
  pthread_t threads[KERNELS_MAX];
  struct worker workers[KERNELS_MAX];
  const double start = now_ms();
  for (int i = 0; i < bench->threads; i++) {
    workers[i] = (struct worker){bench, i};
    if (pthread_create(&threads[i], NULL, build_some, &workers[i])) exit(1);
  }
  for (int i = 0; i < bench->threads; i++)
    pthread_join(threads[i], NULL);
  return now_ms() - start;
}

static void measure(struct bench *bench, const char *name, kjit_compile_server server, kjit_pch_mode pch) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_mode = KJIT_CACHE_OFF;
  options.compile_server = server;
  options.pch = pch;
  if (kjit_runtime_create(&bench->runtime, &options, NULL) != KJIT_OK) exit(1);
  double start = now_ms();
  build(bench, 1000);
  const double first = now_ms() - start;
  start = now_ms();
  build(bench, 1001);
  const double second = now_ms() - start;
  const double all = build_all(bench);
  printf("%-28s first %7.0f ms   second %7.0f ms   %d kernels, %d threads %7.0f ms\n", name, first, second,
         bench->kernels, bench->threads, all);
  kjit_runtime_destroy(bench->runtime);
}

int main(int argc, char **argv) {
  struct bench bench = {.header = argc > 2 ? argv[2] : "cub/block/block_reduce.cuh"};
  if (argc < 2) {
    fprintf(stderr, "usage: %s INCLUDE_DIR[:INCLUDE_DIR] [HEADER] [KERNELS] [THREADS]\n", argv[0]);
    return 2;
  }
  for (char *folder = strtok(argv[1], ":"); folder && bench.folder_count < 8; folder = strtok(NULL, ":"))
    bench.folders[bench.folder_count++] = folder;
  bench.kernels = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 8;
  bench.threads = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 8;
  if (bench.threads < 1 || bench.threads > KERNELS_MAX) return 2;
  measure(&bench, "in the process", KJIT_COMPILE_SERVER_OFF, KJIT_PCH_OFF);
  measure(&bench, "in the server", KJIT_COMPILE_SERVER_ON, KJIT_PCH_OFF);
  measure(&bench, "with a precompiled header", KJIT_COMPILE_SERVER_ON, KJIT_PCH_ALWAYS);
  return 0;
}
