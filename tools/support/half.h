/* 16-bit floats on the host: for printing what a kernel wrote, and for bounds. */
#ifndef KJIT_TOOLS_SUPPORT_HALF_H
#define KJIT_TOOLS_SUPPORT_HALF_H

#include <kjit/attention.h>

/* The value of 16 bits of the type (KJIT_FP16 or KJIT_BF16). */
float half_to_float(int32_t dtype, uint16_t bits);

/* The nearest value of the type, ties to even; beyond its range infinity. */
uint16_t half_from_float(int32_t dtype, float value);

/* The largest error of rounding a value of this magnitude to the type: half the distance of its neighbours there. */
double half_rounding_error(int32_t dtype, double magnitude);

#endif
