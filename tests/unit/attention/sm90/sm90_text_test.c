#include "support/test.h"

#include <stdio.h>

#include "attention/sm90/sm90_config.h"
#include "family/config_build.h"
#include "unit/attention/sm90/sm90_configs.h"

static const char base_text[] = "dtype=bf16,head_dim=128,head_dim_v=128,causal=0,consumers=2,tile_n=128,stages=2,"
                                "q_buffers=2,o_chunks=0,ping_pong=1,rescale_slack=0,packed=1,split=0";

static kjit_status parse(const char *text, kjit_attention_sm90_config *out, kjit_error *error) {
  kjit_config config;
  const kjit_status status = kjit_config_parse(&sm90_family, text, &config, error);
  *out = sm90_of(&config);
  return status;
}

static kjit_status print(const kjit_attention_sm90_config *sm90, uint32_t flags, char *text, size_t capacity,
                         kjit_error *error) {
  const kjit_config config = sm90_config(sm90);
  return kjit_config_print(&config, flags, text, capacity, error);
}

static void expect_parse_error(const char *text, const char *message) {
  kjit_attention_sm90_config config;
  kjit_error error;
  assert_status(KJIT_ERR_PARSE, parse(text, &config, &error), &error);
  assert_string_equal(error.message, message);
  const kjit_attention_sm90_config zero = {0};
  assert_int_equal(memcmp(&config, &zero, sizeof config), 0);
}

static void test_sm90_text__config_prints_in_field_order(void **state) {
  (void)state;
  const kjit_attention_sm90_config config = sm90_base();
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_error error;
  assert_status(KJIT_OK, print(&config, 0, text, sizeof text, &error), &error);
  assert_string_equal(text, base_text);
}

static void test_sm90_text__json_has_names_and_booleans(void **state) {
  (void)state;
  const kjit_attention_sm90_config config = sm90_base();
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_error error;
  assert_status(KJIT_OK, print(&config, KJIT_PRINT_JSON, text, sizeof text, &error), &error);
  assert_string_equal(
      text, "{\"dtype\": \"BF16\", \"head_dim\": 128, \"head_dim_v\": 128, \"causal\": false, "
            "\"consumers\": 2, \"tile_n\": 128, \"stages\": 2, \"q_buffers\": 2, \"o_chunks\": 0, \"ping_pong\": true, "
            "\"rescale_slack\": 0, \"packed\": 1, \"split\": false}");
}

static void test_sm90_text__largest_config_fits(void **state) {
  (void)state;
  kjit_attention_sm90_config config;
  char text[KJIT_CONFIG_TEXT_MAX];
  for (size_t i = 0; i < sm90_family.table.count; i++)
    field_put(&sm90_family.table.fields[i], &config, INT32_MIN);
  assert_status(KJIT_OK, print(&config, 0, text, sizeof text, NULL), NULL);
  assert_status(KJIT_OK, print(&config, KJIT_PRINT_JSON, text, sizeof text, NULL), NULL);
  assert_status(KJIT_ERR_INVALID_ARG, print(&config, 0, text, 40, NULL), NULL);
  assert_string_equal(text, "");
  assert_status(KJIT_ERR_INVALID_ARG, print(&config, 1, text, sizeof text, NULL), NULL);
}

static void test_sm90_text__what_prints_is_read_back(void **state) {
  (void)state;
  uint32_t random = 1;
  for (int n = 0; n < 1000; n++) {
    kjit_attention_sm90_config config, read;
    char text[KJIT_CONFIG_TEXT_MAX];
    kjit_error error;
    for (size_t i = 0; i < sm90_family.table.count; i++) {
      random = random * 1664525u + 1013904223u;
      field_put(&sm90_family.table.fields[i], &config, i == 0 && n % 2 ? KJIT_FP16 : (int32_t)random);
    }
    assert_status(KJIT_OK, print(&config, 0, text, sizeof text, &error), &error);
    assert_status(KJIT_OK, parse(text, &read, &error), &error);
    assert_int_equal(memcmp(&config, &read, sizeof config), 0);
  }
}

static void test_sm90_text__any_order_case_and_blanks_are_read(void **state) {
  (void)state;
  kjit_attention_sm90_config config, base = sm90_base();
  kjit_error error;
  const char *text = " split =0,rescale_slack = 0 , "
                     "packed=1,o_chunks=0,q_buffers=2,ping_pong=1\t,stages=2,tile_n=128,consumers=2,causal=0,"
                     "head_dim_v=128,head_dim=128,dtype=BF16 ";
  assert_status(KJIT_OK, parse(text, &config, &error), &error);
  assert_int_equal(memcmp(&config, &base, sizeof config), 0);
}

static void test_sm90_text__faults_are_told_with_their_place(void **state) {
  (void)state;
  char text[512];
  expect_parse_error("", "column 1: expected a field of attention_sm90, found the end");
  expect_parse_error("dtype=bf16,head=128", "column 12: expected a field of attention_sm90, found \"head\"");
  expect_parse_error("dtype=fp8", "column 7: expected a dtype, found \"fp8\"");
  expect_parse_error("head_dim=12x", "column 10: expected a number, found \"12x\"");
  expect_parse_error("head_dim 12", "column 10: expected \"=\", found \"12\"");
  expect_parse_error("head_dim=99999999999", "column 10: expected a number that fits 32 bits, found \"99999999999\"");
  expect_parse_error("stages=2,stages=2", "column 10: expected every field once, found \"stages\"");
  expect_parse_error("stages=2,tile_n=128", "dtype is missing: every field must be given");
  snprintf(text, sizeof text, "%s;", base_text);
  expect_parse_error(text, "column 148: expected the end of the text, found \";\"");
  snprintf(text, sizeof text, "%s,", base_text);
  expect_parse_error(text, "column 149: expected a field of attention_sm90, found the end");
}

static void test_sm90_fields__every_field_is_listed(void **state) {
  (void)state;
  size_t count = 0;
  while (kjit_family_field(&sm90_family, count)) {
    assert_int_equal(kjit_family_field(&sm90_family, count)->offset, 4 * count);
    count++;
  }
  assert_int_equal(count, sizeof(kjit_attention_sm90_config) / 4);
  assert_int_equal(kjit_family_field(&sm90_family, 3)->kind, KJIT_FIELD_BOOL);
}

static void test_sm90_request__prologue_is_sorted_and_names_the_file(void **state) {
  (void)state;
  struct mem mem;
  struct source_shelf shelf;
  struct config_request request;
  kjit_attention_sm90_config config = sm90_base();
  kjit_error error;
  config.consumers = 1; /* canonical: no ping-pong */
  assert_true(mem_init(&mem, NULL));
  source_shelf_init(&shelf, &mem);
  assert_status(KJIT_OK,
                config_request_init(&request, &mem, &shelf, &sm90_family, (const int32_t *)&config,
                                    &(struct config_act){.arch = "sm_90a"}, &error),
                &error);
  assert_string_equal(
      request.request.prologue,
      "#define KJIT_causal 0\n#define KJIT_consumers 1\n#define KJIT_dtype 15\n"
      "#define KJIT_head_dim 128\n#define KJIT_head_dim_v 128\n#define KJIT_o_chunks 0\n#define KJIT_packed "
      "1\n#define KJIT_ping_pong 0\n"
      "#define KJIT_q_buffers 2\n#define KJIT_rescale_slack 0\n#define KJIT_split 0\n#define KJIT_stages 2\n"
      "#define KJIT_tile_n 128\n#define KJIT_shared_bytes 164991\n#define KJIT_threads 256\n#line 1 "
      "\"attention_sm90/attention_sm90.cu\"\n");
  assert_string_equal(request.request.target.name, "sm_90a");
  assert_string_equal(request.request.entry, "attention_sm90");
  assert_string_equal(request.request.family, "attention_sm90");
  assert_int_equal(request.request.option_count, 2);
  config_request_finish(&request);
  source_shelf_finish(&shelf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_text__config_prints_in_field_order),
      cmocka_unit_test(test_sm90_text__json_has_names_and_booleans),
      cmocka_unit_test(test_sm90_text__largest_config_fits),
      cmocka_unit_test(test_sm90_text__what_prints_is_read_back),
      cmocka_unit_test(test_sm90_text__any_order_case_and_blanks_are_read),
      cmocka_unit_test(test_sm90_text__faults_are_told_with_their_place),
      cmocka_unit_test(test_sm90_fields__every_field_is_listed),
      cmocka_unit_test(test_sm90_request__prologue_is_sorted_and_names_the_file),
  };
  return cmocka_run_group_tests_name("sm90_text", tests, NULL, NULL);
}
