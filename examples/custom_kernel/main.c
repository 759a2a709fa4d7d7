/* Your own kernel, compiled at run time for the architecture and the constants that you name, and cached. No GPU is
 * needed for this part; kjit_kernel_get() and kjit_kernel_launch() take the same request on a machine that has one. */
#include <kjit/kjit.h>
#include <stdio.h>

static const char source[] = "struct scale_args { float *data; unsigned count; float factor; };\n"
                             "extern \"C\" __global__ void __launch_bounds__(THREADS)\n"
                             "scale(const __grid_constant__ scale_args args) {\n"
                             "  const unsigned first = (blockIdx.x * THREADS + threadIdx.x) * PER_THREAD;\n"
                             "#pragma unroll\n"
                             "  for (unsigned i = first; i < first + PER_THREAD; i++)\n"
                             "    if (i < args.count) args.data[i] *= args.factor;\n"
                             "}\n";

static kjit_status build(kjit_runtime *runtime, const char *arch, const char *per_thread, kjit_error *error) {
  const kjit_define defines[] = {{"THREADS", "256"}, {"PER_THREAD", per_thread}};
  kjit_build_request request = kjit_build_request_default();
  request.arch = arch;
  request.entry = "scale";
  request.source = (kjit_source){"scale.cu", source, 0};
  request.defines = defines;
  request.define_count = sizeof defines / sizeof *defines;

  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_build(runtime, &request, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  if (status == KJIT_OK)
    printf("%s, PER_THREAD=%s: %s, %zu bytes, %u registers, key %.12s\n", arch, per_thread,
           kjit_origin_name((kjit_origin)info.origin), info.cubin_bytes, info.registers, info.key);
  kjit_artifact_release(artifact);
  return status;
}

int main(int argc, char **argv) {
  const char *arch = argc > 1 ? argv[1] : "sm_80";
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  kjit_status status = kjit_runtime_create(&runtime, NULL, &error);
  if (status == KJIT_OK) status = build(runtime, arch, "1", &error);
  if (status == KJIT_OK) status = build(runtime, arch, "4", &error);
  if (status == KJIT_OK) status = build(runtime, arch, "4", &error); /* the second time it is there */
  if (status != KJIT_OK) fprintf(stderr, "%s: %s\n", kjit_status_name(status), error.message);
  kjit_runtime_destroy(runtime);
  return status == KJIT_OK ? 0 : 1;
}
