/* An application that ships kernels of its own as a sealed program and a bundle:
 *
 *   sealed_app PROGRAM BUNDLE KERNEL     opens both, loads the kernel for the current device, launches it once
 *
 * Built with -DLINKED it has the program in itself, as `kjit pack --c-source` writes it, and PROGRAM is ignored. */
#include <kjit/kjit.h>
#include <stdio.h>

#ifdef LINKED
extern const unsigned char sealed_program[];
extern const size_t sealed_program_bytes;
#endif

static kjit_status open_program(kjit_runtime *runtime, const char *path, kjit_program **program, kjit_error *error) {
#ifdef LINKED
  (void)path;
  const kjit_bundle_blob blob = {sealed_program, sealed_program_bytes};
  return kjit_program_open(runtime, NULL, &blob, program, error);
#else
  return kjit_program_open(runtime, path, NULL, program, error);
#endif
}

int main(int argc, char **argv) {
  kjit_runtime_options options = kjit_runtime_options_default();
  kjit_runtime *runtime = NULL;
  kjit_program *program = NULL;
  kjit_kernel *kernel = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_launch launch = kjit_launch_default();
  kjit_error error = {0};
  void *const pointers[2] = {NULL, NULL}; /* the driver is a fake: nothing is read or written through them */
  const kjit_arg arg = KJIT_ARG(pointers);
  if (argc != 4) return 2;
  const char *bundles[] = {argv[2]};
  options.bundle_paths = bundles;
  options.bundle_count = 1;
  const kjit_program_variant variant = {.struct_size = sizeof variant, .entry = argv[3]};
  launch.grid[0] = launch.grid[1] = launch.grid[2] = 1;
  launch.block[0] = 128;
  launch.block[1] = launch.block[2] = 1;
  kjit_status status = kjit_runtime_create(&runtime, &options, &error);
  if (status == KJIT_OK) status = open_program(runtime, argv[1], &program, &error);
  if (status == KJIT_OK) status = kjit_program_get_kernel(program, &variant, &kernel, &error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(kjit_kernel_artifact(kernel), &info, &error);
  if (status == KJIT_OK) status = kjit_kernel_launch(kernel, &launch, &arg, 1, NULL, &error);
  if (status == KJIT_OK)
    printf("%s for %s from %s\n", info.entry, info.arch, kjit_origin_name((kjit_origin)info.origin));
  else
    fprintf(stderr, "%s\n", error.message);
  kjit_kernel_release(kernel);
  kjit_program_release(program);
  kjit_runtime_destroy(runtime);
  return status != KJIT_OK;
}
