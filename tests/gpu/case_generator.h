/* Configs and problems for the GPU tests: rotations that touch everything, and random ones. */
#ifndef KJIT_TESTS_GPU_CASE_GENERATOR_H
#define KJIT_TESTS_GPU_CASE_GENERATOR_H

#include "gpu_fixture.h"

/* How many combinations of the flags generator_flags() has: a base and every single flag changed. */
#define GENERATOR_FLAG_ROWS 10

/* Give `config` the flags of row `row`; its tuple stays. */
void generator_flags(kjit_flash_config *config, size_t row);

/* The `turn`-th config of a rotation over block shapes and flags for a type and head size: legal on `arch`. */
kjit_flash_config generator_rotate(int32_t dtype, int64_t head_dim, size_t turn, const char *arch);

/* Any legal config. */
kjit_flash_config generator_random_config(struct random *random, const char *arch);

/* Any small problem that the config's plain kernel computes. */
struct trial_problem generator_random_problem(struct random *random, const kjit_flash_config *config);

/* Any config on any small problem with a mask, grouped heads, odd or unequal head sizes, or several of them. */
struct gpu_case generator_random_traits(struct random *random, const char *arch);

#endif
