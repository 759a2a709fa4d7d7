/* kjit bundle create --program: every kernel of a sealed program, found in the cache or compiled from the program's own
 * texts. One thread. */
#include "bundle.h"

struct adding {
  kjit_program *program;
  kjit_bundle_writer *writer;
  kjit_error *error;
};

static int kernel_add(void *user, const kjit_program_kernel *kernel) {
  const struct adding *adding = user;
  kjit_artifact *artifact = NULL;
  kjit_status status = kjit_program_get(adding->program, &kernel->variant, &artifact, adding->error);
  if (status == KJIT_OK) status = kjit_bundle_writer_add(adding->writer, artifact, adding->error);
  kjit_artifact_release(artifact);
  return status != KJIT_OK;
}

kjit_status bundle_add_programs(const struct bundle_options *options, kjit_bundle_writer *writer, kjit_error *error) {
  kjit_runtime *runtime = NULL;
  kjit_status status = open_runtime(&runtime, error);
  for (size_t i = 0; i < options->programs.count && status == KJIT_OK; i++) {
    struct adding adding = {NULL, writer, error};
    status = kjit_program_open(runtime, options->programs.items[i], NULL, &adding.program, error);
    if (status == KJIT_OK) status = kjit_program_list(adding.program, kernel_add, &adding, error);
    if (status == KJIT_OK) status = (kjit_status)error->status;
    kjit_program_release(adding.program);
  }
  kjit_runtime_destroy(runtime);
  return status;
}
