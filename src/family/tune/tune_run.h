/* Tuning one problem of any subject: candidates against one another, by the caller's functions. */
#ifndef KJIT_FAMILY_TUNE_TUNE_RUN_H
#define KJIT_FAMILY_TUNE_TUNE_RUN_H

#include "family/tune/tune_list.h"
#include "family/tune/tune_load.h"

/* What is tuned, and where the outcome goes. Everything is borrowed for the call. */
struct tune_job {
  kjit_runtime *runtime;
  const struct tune_places *places;
  const struct tune_start *start; /* of the candidates; its class is the row's */
  const kjit_device_info *device; /* whose table it is */
};

/* Take the caller's options. KJIT_ERR_INVALID_ARG. */
kjit_status tune_options_take(kjit_tune_options *out, const kjit_tune_options *given, kjit_error *error);

/* The statuses are those of kjit_tune_run(). `outcome` is complete: of this library's size. */
kjit_status tune_run(const struct tune_job *job, const kjit_tune_options *options, kjit_tune_outcome *outcome,
                     kjit_error *error);

#endif
