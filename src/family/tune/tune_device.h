/* The card that a caller names, and what its table has. */
#ifndef KJIT_FAMILY_TUNE_TUNE_DEVICE_H
#define KJIT_FAMILY_TUNE_TUNE_DEVICE_H

#include <kjit/tune.h>

#include "family/tune_subject.h"

/* Take the caller's device, or the device "any" of an architecture where it is NULL. KJIT_ERR_INVALID_ARG. */
kjit_status tune_device_take(const kjit_device_info *given, const char *arch, kjit_device_info *out, kjit_error *error);

/* As kjit_tune_get_info(), of any subject and a device that was taken. */
kjit_status tune_device_info(kjit_runtime *runtime, const struct tune_subject *subject, const kjit_device_info *device,
                             kjit_tune_info *info, kjit_error *error);

#endif
