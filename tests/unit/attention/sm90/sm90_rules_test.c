#include "support/test.h"

#include <stdio.h>

#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "unit/attention/sm90/sm90_configs.h"

static void set(kjit_attention_sm90_config *config, const char *name, int32_t value) {
  for (size_t i = 0; i < sm90_family.table.count; i++) {
    if (strcmp(sm90_family.table.fields[i].name, name) != 0) continue;
    field_put(&sm90_family.table.fields[i], config, value);
    return;
  }
  fail_msg("no field %s", name);
}

static void expect_broken(const kjit_attention_sm90_config *config, const char *message) {
  kjit_error error;
  assert_status(KJIT_ERR_INVALID_CONFIG, sm90_config_check(config, "sm_90a", &error), &error);
  assert_string_equal(error.message, message);
}

static void expect_legal(const kjit_attention_sm90_config *config) {
  kjit_error error;
  assert_status(KJIT_OK, sm90_config_check(config, "sm_90a", &error), &error);
}

static void test_sm90_rules__base_passes(void **state) {
  (void)state;
  const kjit_attention_sm90_config config = sm90_base();
  expect_legal(&config);
}

static void test_sm90_rules__values_outside_are_refused_by_name(void **state) {
  (void)state;
  static const struct {
    const char *field;
    int32_t value;
    const char *rule;
  } rows[] = {
      {"dtype", 6, "FP16 (5) or BF16 (15)"},
      {"head_dim", 0, "a multiple of 8 from 8 to 256"},
      {"head_dim", 12, "a multiple of 8 from 8 to 256"},
      {"head_dim", 264, "a multiple of 8 from 8 to 256"},
      {"head_dim_v", -8, "a multiple of 8 from 8 to 256"},
      {"head_dim_v", 264, "a multiple of 8 from 8 to 256"},
      {"causal", 2, "0 or 1"},
      {"ping_pong", -1, "0 or 1"},
      {"consumers", 0, "1 to 4"},
      {"consumers", 5, "1 to 4"},
      {"tile_n", 0, "a multiple of 16 from 16 to 256"},
      {"tile_n", 24, "a multiple of 16 from 16 to 256"},
      {"tile_n", 272, "a multiple of 16 from 16 to 256"},
      {"stages", 1, "2 to 4"},
      {"stages", 5, "2 to 4"},
      {"q_buffers", 0, "1 or 2"},
      {"q_buffers", 3, "1 or 2"},
      {"o_chunks", -1, "from 0 to the 64-column chunks of head_dim_v"},
      {"o_chunks", 3, "from 0 to the 64-column chunks of head_dim_v"},
      {"rescale_slack", -1, "0 to 15"},
      {"rescale_slack", 16, "0 to 15"},
      {"packed", 0, "a power of two from 1 to 64"},
      {"packed", 3, "a power of two from 1 to 64"},
      {"packed", 128, "a power of two from 1 to 64"},
      {"split", 2, "0 or 1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_sm90_config config = sm90_base();
    char message[128];
    set(&config, rows[i].field, rows[i].value);
    snprintf(message, sizeof message, "%s is %d: must be %s", rows[i].field, (int)rows[i].value, rows[i].rule);
    expect_broken(&config, message);
  }
}

static void test_sm90_rules__registers_limit_the_tile(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  config.head_dim = 16;
  config.tile_n = 192; /* 64 + 96 + 48 = 208 */
  expect_legal(&config);
  config.tile_n = 208;
  expect_broken(&config, "tile_n is 208: with head_dim_v 128 a thread needs head_dim_v / 2 + tile_n / 2 + tile_n / 4 = "
                         "220 registers; must be at most 216 with consumers 2");
  config.consumers = 1;
  expect_legal(&config);
  config.consumers = 3;
  config.tile_n = 96; /* 64 + 72 = 136 */
  expect_legal(&config);
  config.tile_n = 112;
  expect_broken(&config, "tile_n is 112: with head_dim_v 128 a thread needs head_dim_v / 2 + tile_n / 2 + tile_n / 4 = "
                         "148 registers; must be at most 136 with consumers 3");
}

static void test_sm90_rules__shared_memory_limits_stages(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  config.stages = 3;
  expect_broken(&config, "tile_n is 128: with head_dim 128, head_dim_v 128, consumers 2, stages 3, q_buffers 2 and "
                         "o_chunks 0 a block needs 263327 bytes of shared memory; must be at most 232448");
}

/* Two pairs of consumers: each has 113 KiB, registers for steps of 64 keys and 64 columns, and no splits. */
static void test_sm90_rules__two_pairs_of_consumers_have_limits_of_their_own(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  config.consumers = 4;
  config.head_dim = config.head_dim_v = config.tile_n = 64; /* 32 + 32 + 16 = 80 */
  config.stages = 4;
  expect_legal(&config);
  assert_int_equal(sm90_threads(&config), 640);
  assert_int_equal(sm90_tile_consumers(&config), 2);
  assert_int_equal(sm90_own_bytes(&config), 32768 + 65536 + 160 + 32 + 1023);
  assert_int_equal(sm90_shared_bytes(&config), 2 * 113 * 1024 + 1023);
  assert_true(sm90_own_bytes(&config) + sm90_variant_bytes(&config) + sm90_keep_bytes(&config) <= sm90_room(&config));
  config.tile_n = 80;
  expect_broken(&config, "tile_n is 80: with head_dim_v 64 a thread needs head_dim_v / 2 + tile_n / 2 + tile_n / 4 = "
                         "92 registers; must be at most 80 with consumers 4");
  config.tile_n = 64;
  config.head_dim = 128;
  config.stages = 3;
  expect_broken(&config, "tile_n is 64: with head_dim 128, head_dim_v 64, consumers 4, stages 3, q_buffers 2 and "
                         "o_chunks 0 a pair of consumers needs 140618 bytes of shared memory; must be at most 115712");
  config.split = 1;
  expect_broken(&config, "split is 1: must be 0 with consumers 4, which are two pairs");
}

/* Worked by hand from pipeline.cuh. */
static void test_sm90_geometry__is_that_of_the_kernel(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  assert_int_equal(sm90_threads(&config), 384);
  assert_int_equal(sm90_registers(&config), 64 + 64 + 32);
  /* Q: 2 tiles of 128 rows of 256 bytes; K, V: 2 stages of 128 rows of 256 bytes each; 12 barriers; room for 2 tiles.
   */
  assert_int_equal(sm90_shared_bytes(&config), 65536 + 131072 + 96 + 32 + 1023);
  config.head_dim = 192;
  config.consumers = 3;
  config.q_buffers = 1;
  config.tile_n = 48;
  assert_int_equal(sm90_threads(&config), 512);
  assert_int_equal(sm90_shared_bytes(&config), 192 * 384 + 2 * 48 * (384 + 256) + 80 + 16 + 1023);
}

/* All of O beside two tiles of Q, or none of it. */
static void test_sm90_geometry__o_beside_two_queries_is_whole(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  const uint32_t without = sm90_shared_bytes(&config);
  config.o_chunks = 1;
  assert_int_equal(sm90_canonical(&config).o_chunks, 0);
  assert_int_equal(sm90_shared_bytes(&config), without);
  config.o_chunks = 2;
  assert_int_equal(sm90_canonical(&config).o_chunks, 2);
  assert_int_equal(sm90_shared_bytes(&config), without + 2 * 128 * 128);
  config.split = 1;
  assert_int_equal(sm90_canonical(&config).o_chunks, 0);
}

static void test_sm90_geometry__those_that_split_have_words_and_parts(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  const uint32_t whole = sm90_shared_bytes(&config);
  config.split = 1;
  assert_int_equal(sm90_shared_bytes(&config), whole + 8 + 32);
}

static void test_sm90_geometry__q_has_room_for_a_wider_o(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base(), wide;
  config.q_buffers = 1;
  wide = config;
  config.head_dim = 64;
  config.tile_n = wide.tile_n = 16;
  const uint32_t narrow_k = sm90_shared_bytes(&config);
  assert_int_equal(sm90_shared_bytes(&wide) - narrow_k, 2 * 16 * 128);
}

static void test_sm90_rules__other_architectures_are_unsupported(void **state) {
  (void)state;
  const kjit_attention_sm90_config config = sm90_base();
  kjit_error error;
  static const char *const others[] = {"sm_80", "sm_90", "sm_100a"};
  for (size_t i = 0; i < 3; i++)
    assert_status(KJIT_ERR_UNSUPPORTED, sm90_config_check(&config, others[i], &error), &error);
  assert_string_equal(error.message, "arch: attention_sm90 requires sm_90a (current: sm_100a)");
  assert_status(KJIT_ERR_INVALID_ARG, sm90_config_check(&config, "hopper", &error), &error);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_config_check(NULL, NULL, &error), &error);
}

static void test_sm90_canonical__ping_pong_needs_two(void **state) {
  (void)state;
  kjit_attention_sm90_config config = sm90_base();
  kjit_attention_sm90_config canonical = sm90_canonical(&config);
  assert_int_equal(memcmp(&config, &canonical, sizeof config), 0);
  config.consumers = 1;
  canonical = sm90_canonical(&config);
  assert_int_equal(canonical.ping_pong, 0);
  config.ping_pong = 0;
  assert_int_equal(memcmp(&config, &canonical, sizeof config), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_rules__base_passes),
      cmocka_unit_test(test_sm90_rules__values_outside_are_refused_by_name),
      cmocka_unit_test(test_sm90_rules__registers_limit_the_tile),
      cmocka_unit_test(test_sm90_rules__shared_memory_limits_stages),
      cmocka_unit_test(test_sm90_rules__two_pairs_of_consumers_have_limits_of_their_own),
      cmocka_unit_test(test_sm90_geometry__is_that_of_the_kernel),
      cmocka_unit_test(test_sm90_geometry__o_beside_two_queries_is_whole),
      cmocka_unit_test(test_sm90_geometry__those_that_split_have_words_and_parts),
      cmocka_unit_test(test_sm90_geometry__q_has_room_for_a_wider_o),
      cmocka_unit_test(test_sm90_rules__other_architectures_are_unsupported),
      cmocka_unit_test(test_sm90_canonical__ping_pong_needs_two),
  };
  return cmocka_run_group_tests_name("sm90_rules", tests, NULL, NULL);
}
