/* What the programs for compute-sanitizer share: the card, a runtime and the checking kernels around their cases. */
#ifndef KJIT_TESTS_GPU_SAMPLE_H
#define KJIT_TESTS_GPU_SAMPLE_H

#include "support/check_kernels.h"

#define SAMPLE_EXIT_NO_GPU 3

struct sample {
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
};

/* The program's exit code: what `run` returns; SAMPLE_EXIT_NO_GPU without a card of `arch` (NULL: of any); 1 when the
 * rest cannot be made. */
int sample_main(const char *arch, int (*run)(const struct sample *sample));

#endif
