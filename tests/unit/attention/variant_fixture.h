/* The fixture of tests of kjit_attention_forward() with a variant: a fake driver and compiler that know attention_sm90
 * and the kernels that find blocks. One test at a time. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_VARIANT_FIXTURE_H
#define KJIT_TESTS_UNIT_ATTENTION_VARIANT_FIXTURE_H

#include "attention/attention_variant_call.h"
#include "attention_variant/list_params.h"
#include "unit/attention/attention_fixture.h"

static inline int variant_setup(void **state) {
  const int result = setup(state);
  fake_driver.parameter_bytes = sizeof(struct attention_sm90_variant_params);
  fake_driver.other_kernels[0] =
      (struct fake_kernel){"attention_block_list", sizeof(struct attention_block_list_params)};
  fake_driver.other_kernels[1] = (struct fake_kernel){"attention_block_map", sizeof(struct attention_block_map_params)};
  return result;
}

#define VARIANT_TEST(test) cmocka_unit_test_setup_teardown(test, variant_setup, fixture_teardown)

/* The parameters of the last launch of attention_sm90 with a variant. */
static inline const struct attention_sm90_variant_params *launched_variant(void) {
  static struct attention_sm90_variant_params params;
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return &params;
}

#endif
