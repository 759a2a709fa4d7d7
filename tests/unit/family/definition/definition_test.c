#include "unit/family/family_fixture.h"

/* -- Text ---------------------------------------------------------------------------------------------------------- */

static void assert_text(struct family_fixture *f, const char *text, const char *expected) {
  int32_t values[KJIT_FIELD_COUNT_MAX];
  char buffer[DEFINITION_TEXT_MAX];
  struct text out;
  assert_status(KJIT_OK, f->family->parse(f->family, text, values, &f->error), &f->error);
  text_init_fixed(&out, buffer, sizeof buffer);
  f->family->print(f->family, values, &out);
  assert_string_equal(buffer, expected);
}

static void assert_no_text(struct family_fixture *f, const char *text, const char *part) {
  int32_t values[KJIT_FIELD_COUNT_MAX] = {1};
  memset(&f->error, 0, sizeof f->error);
  assert_status(KJIT_ERR_PARSE, f->family->parse(f->family, text, values, &f->error), &f->error);
  assert_contains(f->error.message, part);
  assert_int_equal(values[0], 0);
}

static void test_definition_parse__what_is_left_out_has_its_default(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "");
  assert_text(f, "", "BM=128,warps=4,fast=0,dtype=fp16,epilogue=none");
  assert_text(f, " epilogue = bias , BM=64 ", "BM=64,warps=4,fast=0,dtype=fp16,epilogue=bias");
  assert_text(f, "fast=true,dtype=BFloat16", "BM=128,warps=4,fast=1,dtype=bf16,epilogue=none");
}

static void test_definition_parse__faults_say_where_and_what(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "");
  assert_no_text(f, "BM=64,wrap=2", "column 7: \"wrap\" is no field of toy; did you mean \"warps\"?");
  assert_no_text(f, "BM=64,BM=64", "every field at most once");
  assert_no_text(f, "epilogue=bais", "a value of epilogue (one of none, bias, gelu)");
  assert_no_text(f, "BM", "expected \"=\"");
  assert_no_text(f, "BM=64,", "a field's name");
  assert_no_text(f, "BM=64;", "the end of the text");
  assert_no_text(f, "BM=99999999999", "a value of BM");
}

static void test_definition_parse__field_without_default_must_be_given(void **state) {
  struct family_fixture *f = *state;
  assert_status(KJIT_OK,
                family_fixture_make(
                    f, "family: toy\nsource: a.cu\nentry: k\nfields: {n: {kind: int, values: [1, 2]}}\n", "KJIT_n"),
                &f->error);
  assert_no_text(f, "", "n is missing: it has no default");
}

/* -- Rules --------------------------------------------------------------------------------------------------------- */

static void assert_broken(struct family_fixture *f, const char *config, const char *message) {
  int32_t values[KJIT_FIELD_COUNT_MAX];
  assert_status(KJIT_ERR_INVALID_CONFIG, family_fixture_config(f, config, values), &f->error);
  assert_string_equal(f->error.message, message);
}

static void test_definition_check__value_outside_its_domain_names_the_domain(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "");
  assert_broken(f, "BM=65", "BM is 65: must be one of 64, 96, 128");
  assert_broken(f, "warps=9", "warps is 9: must be from 1 to 8");
  assert_broken(f, "fast=2", "fast is 2: must be one of 0, 1");
  assert_broken(f, "dtype=fp64", "dtype is fp64: must be one of fp16, bf16, fp32");
  assert_broken(f, "epilogue=3", "epilogue is 3: must be one of none, bias, gelu");
}

static void test_definition_check__broken_rule_names_the_values_then_the_sentence(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  assert_family(f, "derived: {tile: BM * sizeof(dtype), half: tile / 2}\n"
                   "rules:\n"
                   "  - {require: BM % (16 * warps) == 0, because: each warp takes whole rows}\n"
                   "  - {require: half <= 192, because: a tile must fit}\n");
  assert_status(KJIT_OK, family_fixture_config(f, "BM=96,warps=3", values), &f->error);
  assert_broken(f, "BM=96,warps=5", "BM is 96, warps is 5: each warp takes whole rows");
  assert_broken(f, "BM=128,dtype=fp32", "BM is 128, dtype is fp32, half is 256: a tile must fit");
}

static void test_definition_check__what_cannot_be_computed_is_an_error(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "derived: {bad: 1 / (warps - 4)}\n");
  assert_broken(f, "", "toy.yaml:10:18: derived.bad: 1 / 0 is a division by zero");
}

static void test_definition_check__launch_numbers_are_bounded(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "block: [warps * 64, 'fast ? 4 : 2']\nshared: (BM - 96) * 1000\ncluster: warps\n");
  assert_broken(f, "fast=1,warps=5",
                "toy.yaml:10:22: block[1]: is 4: must be at least 1, and at most 1024 threads in all");
  assert_broken(f, "BM=64", "toy.yaml:11:9: shared: is -32000: must be from 0 to 2147483647 bytes");
}

static void test_definition_check__illegal_canonical_form_is_the_familys_fault(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  assert_family(f, "rules: [{require: fast or warps >= 2, because: one warp is slow}]\n"
                   "means_nothing_when:\n"
                   "  warps: {when: BM == 64, value: 1}\n"
                   "  fast: BM == 64\n");
  assert_status(KJIT_OK, family_fixture_config(f, "BM=96,warps=8", values), &f->error);
  assert_status(KJIT_ERR_INVALID_CONFIG, family_fixture_config(f, "BM=64,fast=1", values), &f->error);
  assert_contains(f->error.message, "a fault of the family: warps is 1, fast is 0: one warp is slow");
}

static void test_definition_check_place__rules_on_the_card_need_the_card(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  const struct family_place small = {"sm_80", 108, 1000, {0}}, large = {"sm_90a", 132, 232448, {0}};
  assert_family(f, "rules: [{require: sm >= 90 or not fast, because: the fast path is of sm_90}]\nshared: BM * 10\n");
  assert_status(KJIT_OK, family_fixture_config(f, "fast=1", values), &f->error);
  assert_int_equal(f->family->check_place(f->family, values, &small, &f->error), KJIT_ERR_UNSUPPORTED);
  assert_string_equal(f->error.message, "fast is 1, sm is 80: the fast path is of sm_90");
  assert_int_equal(f->family->check_place(f->family, values, &large, NULL), KJIT_OK);
  assert_status(KJIT_OK, family_fixture_config(f, "BM=128", values), &f->error);
  assert_int_equal(f->family->check_place(f->family, values, &small, &f->error), KJIT_ERR_UNSUPPORTED);
  assert_contains(f->error.message, "shared is 1280 bytes: a block of sm_80 has at most 1000");
}

/* -- Canonical form, prologue, launch ------------------------------------------------------------------------------ */

static void test_definition_canonicalize__follows_conditions_to_their_end(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX], again[KJIT_FIELD_COUNT_MAX];
  assert_family(f, "means_nothing_when:\n"
                   "  warps: {when: not fast, value: 2}\n"
                   "  fast: epilogue == none\n"
                   "  epilogue: BM == 64\n");
  assert_status(KJIT_OK, family_fixture_config(f, "BM=64,warps=8,fast=1,epilogue=gelu", values), &f->error);
  f->family->canonicalize(f->family, values);
  assert_int_equal(values[1], 2);
  assert_int_equal(values[2], 0);
  assert_int_equal(values[4], 0);
  memcpy(again, values, f->family->table.config_bytes);
  f->family->canonicalize(f->family, again);
  assert_memory_equal(again, values, f->family->table.config_bytes);
}

static void test_definition_derive__constants_labels_and_types_are_defined(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  char buffer[4096];
  struct text out;
  assert_family(f, "derived: {tile: BM * sizeof(dtype), minus: 0 - tile, least: 0 - 9223372036854775807 - 1}\n");
  assert_status(KJIT_OK, family_fixture_config(f, "dtype=bf16", values), &f->error);
  text_init_fixed(&out, buffer, sizeof buffer);
  f->family->derive(f->family, values, &out);
  assert_string_equal(buffer, "#define KJIT_tile 256\n"
                              "#define KJIT_minus (-256)\n"
                              "#define KJIT_least (-9223372036854775807 - 1)\n"
                              "#define KJIT_epilogue_none 0\n"
                              "#define KJIT_epilogue_bias 1\n"
                              "#define KJIT_epilogue_gelu 2\n"
                              "#define KJIT_dtype_type __nv_bfloat16\n"
                              "#define KJIT_fp16 5\n"
                              "#define KJIT_bf16 15\n"
                              "#define KJIT_fp32 6\n");
}

static void test_definition_geometry__is_that_of_the_canonical_form(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  kjit_geometry geometry;
  assert_family(f, "means_nothing_when: {warps: not fast}\nblock: warps * 32\nshared: BM * 4\ncluster: [2, 1]\n");
  assert_status(KJIT_OK, family_fixture_config(f, "warps=8,fast=0,BM=64", values), &f->error);
  f->family->geometry(f->family, values, &geometry);
  assert_int_equal(geometry.threads[0], 128); /* 4 warps, the default */
  assert_int_equal(geometry.threads[1], 1);
  assert_int_equal(geometry.shared_bytes, 256);
  assert_int_equal(geometry.cluster[0], 2);
  assert_int_equal(geometry.cluster[2], 1);
}

static void test_definition_grid__uses_parameters_and_the_card(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  uint32_t grid[3];
  const int64_t parameters[] = {0, 1000, -1};
  assert_family(f, "parameters: {out: 'dtype*', m: int32, scale: float}\ngrid: [\"min(divup(m, BM), sm_count)\", 2]\n");
  assert_status(KJIT_OK, family_fixture_config(f, "", values), &f->error);
  assert_int_equal(definition_grid(f->definition, values, parameters, 132, grid, &f->error), KJIT_OK);
  assert_int_equal(grid[0], 8);
  assert_int_equal(grid[1], 2);
  assert_int_equal(grid[2], 1);
  assert_int_equal(definition_grid(f->definition, values, parameters, 3, grid, &f->error), KJIT_OK);
  assert_int_equal(grid[0], 3);
  assert_int_equal(definition_grid(f->definition, values, parameters, 0, grid, &f->error), KJIT_ERR_INVALID_CONFIG);
  assert_contains(f->error.message, "sm_count is not known here");
  assert_int_equal(grid[0], 0);
}

static void test_definition_grid__empty_grid_is_an_error(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  uint32_t grid[3] = {9, 9, 9};
  const int64_t parameters[] = {0};
  assert_family(f, "parameters: {m: int64}\ngrid: divup(m, BM)\n");
  assert_status(KJIT_OK, family_fixture_config(f, "", values), &f->error);
  assert_int_equal(definition_grid(f->definition, values, parameters, 0, grid, &f->error), KJIT_ERR_INVALID_CONFIG);
  assert_contains(f->error.message, "grid[0]: is 0: must be from 1 to 2147483647");
  assert_int_equal(grid[0] | grid[1] | grid[2], 0);
}

static void test_definition_classify__value_belongs_to_the_last_bucket_not_above_it(void **state) {
  struct family_fixture *f = *state;
  int32_t bucket;
  assert_family(f, "parameters: {m: int64}\nclasses:\n  size: {of: m, buckets: [1, 16, 128]}\n  exact: m % 2\n");
  const struct {
    int64_t value;
    int32_t bucket;
  } rows[] = {{0, 1}, {1, 1}, {15, 1}, {16, 16}, {127, 16}, {128, 128}, {INT64_MAX, 128}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(definition_classify(f->definition, 0, NULL, &rows[i].value, &bucket, NULL), KJIT_OK);
    assert_true(bucket == rows[i].bucket);
  }
  assert_int_equal(definition_classify(f->definition, 1, NULL, &rows[2].value, &bucket, NULL), KJIT_OK);
  assert_true(bucket == 1);
}

static void test_definition_name_expression__fields_are_filled_in(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  char buffer[256];
  struct text out;
  const char *const text =
      "family: toy\nsource: a.cu\ntemplate: 'ns::k<{dtype}, {n}, {on}, {twice}, {mode}>'\n"
      "fields:\n  dtype: {kind: dtype, default: bf16}\n  n: {kind: int, range: [-1, 4], default: -1}\n"
      "  on: {kind: bool, default: true}\n  mode: {kind: enum, values: [x, y], default: y}\n"
      "derived: {twice: 2 * n}\n";
  assert_status(KJIT_OK, family_fixture_make(f, text, ""), &f->error);
  assert_status(KJIT_OK, family_fixture_config(f, "", values), &f->error);
  text_init_fixed(&out, buffer, sizeof buffer);
  f->family->print_entry(f->family, values, &out);
  assert_string_equal(buffer, "ns::k<__nv_bfloat16, (-1), true, (-2), 1>");
}

/* -- Sets ---------------------------------------------------------------------------------------------------------- */

static void test_definition_sets__lists_and_cross_products_have_their_configs(void **state) {
  struct family_fixture *f = *state;
  int32_t values[KJIT_FIELD_COUNT_MAX];
  assert_family(f, "rules: [{require: BM % (16 * warps) == 0, because: whole rows}]\n"
                   "sets:\n"
                   "  two: ['BM=64', {BM: 96, warps: 3}]\n"
                   "  product: {cross: {BM: [64, 96], warps: all}, where: warps > 1}\n");
  assert_int_equal(f->family->set_count(f->family, "two"), 2);
  f->family->set_get(f->family, "two", 1, values);
  assert_int_equal(values[0], 96);
  assert_int_equal(values[1], 3);
  /* 64: 2, 4; 96: 2, 3, 6 */
  assert_int_equal(f->family->set_count(f->family, "product"), 5);
  f->family->set_get(f->family, "product", 4, values);
  assert_int_equal(values[0], 96);
  assert_int_equal(values[1], 6);
  assert_int_equal(f->family->set_count(f->family, "none"), 0);
}

static void test_definition_sets__faults_are_sentences(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "sets: {bad: ['BM=65']}\n", "toy.yaml:10:15: BM is 65: must be one of 64, 96, 128");
  assert_no_family(f, "sets: {bad: {cross: {BN: [64]}}}\n", "\"BN\" is no field of this family; did you mean \"BM\"?");
  assert_no_family(f, "sets: {bad: {cross: {BM: [65]}}}\n", "\"65\" is no legal value of BM");
  assert_no_family(f, "sets: {bad: {cross: {BM: all}, where: BM > 500}}\n", "no config of the set bad is legal");
  assert_no_family(f, "sets: {bad: []}\n", "the set bad is empty");
  assert_no_family(f, "sets: {bad: {cros: {BM: all}}}\n", "\"cros\" is no key here; did you mean \"cross\"?");
}

static void test_definition_sets__candidates_are_bounded(void **state) {
  struct family_fixture *f = *state;
  const char *const head = "family: toy\nsource: a.cu\nentry: k\nfields:\n"
                           "  a: {kind: int, range: [-2147483648, 2147483647], default: 0}\n"
                           "  b: {kind: int, range: [-2147483648, 2147483647], default: 0}\n"
                           "sets: {all: {cross: {a: all, b: all}}}\n";
  assert_status(KJIT_ERR_PARSE, family_fixture_make(f, head, "KJIT_a KJIT_b"), &f->error);
  assert_contains(f->error.message, "more than 65536 configs");
}

/* -- Source -------------------------------------------------------------------------------------------------------- */

static void test_definition_source__constant_without_field_is_an_error(void **state) {
  struct family_fixture *f = *state;
  const char *const source =
      "// KJIT_not_here\n/* KJIT_nor_here */ \"KJIT_a_string\"\nint x = KJIT_wraps;\n" FAMILY_SOURCE;
  assert_status(KJIT_ERR_PARSE, family_fixture_make(f, FAMILY_HEAD, source), &f->error);
  assert_string_equal(f->error.message, "toy.cu:3: the kernel uses KJIT_wraps, and no field or derived constant of toy "
                                        "defines it; did you mean KJIT_warps?");
}

static void test_definition_source__constant_that_the_source_defines_is_its_own(void **state) {
  struct family_fixture *f = *state;
  const char *const source = "#  define KJIT_own 3\nint x = KJIT_own, y = KJIT_dtype_type, z = KJIT_epilogue_gelu + "
                             "KJIT_bf16;\n" FAMILY_SOURCE;
  assert_status(KJIT_OK, family_fixture_make(f, FAMILY_HEAD, source), &f->error);
  assert_int_equal(f->definition->warning_count, 0);
}

static void test_definition_source__unused_field_is_a_warning(void **state) {
  struct family_fixture *f = *state;
  assert_status(KJIT_OK,
                family_fixture_make(f, FAMILY_HEAD "derived: {twice: 2 * warps}\n",
                                    "KJIT_BM KJIT_twice KJIT_dtype KJIT_epilogue"),
                &f->error);
  assert_int_equal(f->definition->warning_count, 1);
  assert_contains(f->definition->warnings[0], "the field fast is never used");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      family_unit_test(test_definition_parse__what_is_left_out_has_its_default),
      family_unit_test(test_definition_parse__faults_say_where_and_what),
      family_unit_test(test_definition_parse__field_without_default_must_be_given),
      family_unit_test(test_definition_check__value_outside_its_domain_names_the_domain),
      family_unit_test(test_definition_check__broken_rule_names_the_values_then_the_sentence),
      family_unit_test(test_definition_check__what_cannot_be_computed_is_an_error),
      family_unit_test(test_definition_check__launch_numbers_are_bounded),
      family_unit_test(test_definition_check__illegal_canonical_form_is_the_familys_fault),
      family_unit_test(test_definition_check_place__rules_on_the_card_need_the_card),
      family_unit_test(test_definition_canonicalize__follows_conditions_to_their_end),
      family_unit_test(test_definition_derive__constants_labels_and_types_are_defined),
      family_unit_test(test_definition_geometry__is_that_of_the_canonical_form),
      family_unit_test(test_definition_grid__uses_parameters_and_the_card),
      family_unit_test(test_definition_grid__empty_grid_is_an_error),
      family_unit_test(test_definition_classify__value_belongs_to_the_last_bucket_not_above_it),
      family_unit_test(test_definition_name_expression__fields_are_filled_in),
      family_unit_test(test_definition_sets__lists_and_cross_products_have_their_configs),
      family_unit_test(test_definition_sets__faults_are_sentences),
      family_unit_test(test_definition_sets__candidates_are_bounded),
      family_unit_test(test_definition_source__constant_without_field_is_an_error),
      family_unit_test(test_definition_source__constant_that_the_source_defines_is_its_own),
      family_unit_test(test_definition_source__unused_field_is_a_warning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
