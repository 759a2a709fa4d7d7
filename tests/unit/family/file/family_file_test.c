#include "unit/family/family_fixture.h"

#include "base/arena.h"

/* -- YAML ---------------------------------------------------------------------------------------------------------- */

static void assert_refused(struct family_fixture *f, const char *text, const char *part) {
  assert_status(KJIT_ERR_PARSE, family_fixture_make(f, text, FAMILY_SOURCE), &f->error);
  assert_contains(f->error.message, part);
  assert_contains(f->error.message, "toy.yaml");
}

static void test_family_file__what_makes_yaml_hard_to_read_is_refused(void **state) {
  struct family_fixture *f = *state;
  assert_refused(f, "", "the file is empty");
  assert_refused(f, "family: &a toy\n", "toy.yaml:1:9: an anchor (&)");
  assert_refused(f, "family: *a\n", "toy.yaml:1:9: an alias (*)");
  assert_refused(f, "family: !!str toy\n", "toy.yaml:1:9: a tag (!)");
  assert_refused(f, "family: !mine toy\n", "a tag (!)");
  assert_refused(f, "%YAML 1.1\n---\nfamily: toy\n", "a directive (%)");
  assert_refused(f, FAMILY_HEAD "---\nfamily: two\n", "a second document");
  assert_refused(f, "family: toy\nentry: k\nfamily: two\n",
                 "toy.yaml:3:1: the key \"family\" stands in line 1 already");
  assert_refused(f, "? [a, b]\n: c\n", "a key must be one word");
  assert_refused(f, "family: \"a\\0b\"\n", "a NUL in a text");
  assert_refused(f, "family: [toy\n", "toy.yaml:2:1: ");
  assert_refused(f, "\xff\xfe", "toy.yaml");
  assert_refused(f, "a: {b: {c: {d: {e: {f: {g: {h: {i: {j: k}}}}}}}}}\n", "toy.yaml");
}

static void test_family_file__words_stay_words(void **state) {
  struct family_fixture *f = *state;
  const char *const text = "family: toy\nsource: a.cu\nentry: on\nfields:\n"
                           "  mode: {kind: enum, values: [no, yes, on, off, null], default: no}\n"
                           "  y: {kind: int, values: [010, 8], default: 010}\n";
  assert_status(KJIT_OK, family_fixture_make(f, text, "KJIT_mode KJIT_y"), &f->error);
  assert_string_equal(f->definition->fields[0].labels[0], "no");
  assert_string_equal(f->definition->fields[0].labels[2], "on");
  assert_string_equal(f->family->entry, "on");
  assert_int_equal(f->definition->fields[1].values[0], 10); /* not octal */
}

static void test_family_file__size_is_bounded(void **state) {
  struct family_fixture *f = *state;
  const size_t bytes = YAML_BYTES_MAX + 1;
  char *text = test_malloc(bytes + 1);
  memset(text, '#', bytes);
  text[bytes] = '\0';
  assert_refused(f, text, "a family file has at most 1048576");
  for (size_t i = 0; i + 1 < bytes; i += 2)
    memcpy(text + i, i ? ",a" : "[a", 2);
  text[bytes - 1] = '\0';
  assert_refused(f, text, "more than 65536 values");
  test_free(text);
}

/* -- Keys ---------------------------------------------------------------------------------------------------------- */

static void test_family_file__unknown_key_suggests_the_nearest(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "drived: {a: 1}\n", "toy.yaml:10:1: \"drived\" is no key here; did you mean \"derived\"?");
  assert_no_family(f, "rules: [{requires: BM, because: b}]\n",
                   "toy.yaml:10:10: \"requires\" is no key here; did you "
                   "mean \"require\"?");
  assert_refused(f, "family: toy\nfields: {a: {kind: int, rang: [1, 2]}}\n", "did you mean \"range\"?");
  assert_no_family(f, "colour: red\n", "\"colour\" is no key here");
}

static void test_family_file__comma_without_quotes_is_explained(void **state) {
  struct family_fixture *f = *state;
  assert_refused(f, "family: toy\nfields: {a: {kind: bool, doc: of x, w and y}}\n",
                 "\"w and y\" is no key here, and has no value; a text with a comma needs quotes inside { }");
}

static void test_family_file__missing_keys_are_named(void **state) {
  struct family_fixture *f = *state;
  const char *const field = "fields: {a: {kind: int, values: [1]}}\n";
  char text[256];
  (void)snprintf(text, sizeof text, "source: a\nentry: k\n%s", field);
  assert_refused(f, text, "the key family is missing");
  (void)snprintf(text, sizeof text, "family: a\nentry: k\n%s", field);
  assert_refused(f, text, "the key source is missing");
  (void)snprintf(text, sizeof text, "family: a\nsource: k\n%s", field);
  assert_refused(f, text, "the key entry (or template) is missing");
  assert_refused(f, "family: a\nsource: b\nentry: k\n", "the key fields is missing");
}

static void test_family_file__wrong_shapes_are_named(void **state) {
  struct family_fixture *f = *state;
  assert_refused(f, "[a, b]\n", "expected a mapping (key: value), found a list");
  assert_refused(f, "family: [a]\n", "family: expected one value, found a list");
  assert_refused(f, "family:\n", "family has no value");
  assert_no_family(f, "rules: {a: b}\n", "rules: expected a list, found a mapping");
  assert_no_family(f, "rules: [{require: BM}]\n", "a rule needs \"because\"");
  assert_no_family(f, "rules: [{because: b}]\n", "a rule needs \"require\"");
  assert_no_family(f, "grid: [divup(a, b), divup(b, c)]\n", "one that has commas needs quotes");
}

/* -- Fields -------------------------------------------------------------------------------------------------------- */

static void assert_bad_field(struct family_fixture *f, const char *field, const char *part) {
  char text[512];
  (void)snprintf(text, sizeof text, "family: toy\nsource: a.cu\nentry: k\nfields: {%s}\n", field);
  assert_refused(f, text, part);
}

static void test_family_file__fields_are_checked(void **state) {
  struct family_fixture *f = *state;
  assert_bad_field(f, "a: {kind: imt, values: [1]}",
                   "\"imt\" is no kind of field (int, bool, dtype, enum); did you mean \"int\"?");
  assert_bad_field(f, "a: {values: [1]}", "the field a needs \"kind\"");
  assert_bad_field(f, "a: {kind: int}", "the field a has neither values nor a range");
  assert_bad_field(f, "a: {kind: int, values: [1], range: [1, 2]}", "has values and a range");
  assert_bad_field(f, "a: {kind: int, range: [2, 1]}", "a range goes from");
  assert_bad_field(f, "a: {kind: int, range: [0, 3000000000]}", "a number of 32 bits");
  assert_bad_field(f, "a: {kind: int, range: [1, 4], step: 2}", "divides the range");
  assert_bad_field(f, "a: {kind: int, range: [1, 4], step: 0}", "a step is at least 1");
  assert_bad_field(f, "a: {kind: int, range: [1, x]}", "\"x\" is no whole number");
  assert_bad_field(f, "a: {kind: int, values: [1, 2, 1]}", "the value 1 stands here twice");
  assert_bad_field(f, "a: {kind: int, values: [x]}", "\"x\" is no int");
  assert_bad_field(f, "a: {kind: dtype, values: [fp15]}", "\"fp15\" is no dtype");
  assert_bad_field(f, "a: {kind: enum}", "an enum needs values");
  assert_bad_field(f, "a: {kind: enum, values: [b, b]}", "stands here twice");
  assert_bad_field(f, "a: {kind: bool, values: [b]}", "a bool has no values of its own");
  assert_bad_field(f, "a: {kind: int, values: [1], default: 2}", "the default of a is 2: must be 1");
  assert_bad_field(f, "1a: {kind: int, values: [1]}", "must be letters, digits and underscores");
  assert_bad_field(f, "min: {kind: int, values: [1]}", "means something else in expressions");
  assert_bad_field(f, "sm: {kind: int, values: [1]}", "means something else in expressions");
}

static void test_family_file__names_may_not_meet(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "derived: {BM: 1}\n", "the derived constant BM has the name of something else");
  assert_no_family(f, "parameters: {BM: int32}\n", "the parameter BM has the name of a field");
  assert_no_family(f, "derived: {epilogue_bias: 1}\n", "KJIT_epilogue_bias would be defined twice");
  assert_no_family(f, "derived: {dtype_type: 1}\n", "KJIT_dtype_type would be defined twice");
}

static void test_family_file__derived_constants_use_those_before_alone(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "derived: {one: two, two: 2}\n", "toy.yaml:10:16: derived.one: nothing is called \"two\" here");
  assert_no_family(f, "derived: {one: one}\n", "nothing is called \"one\" here");
}

static void test_family_file__what_changes_the_code_may_not_depend_on_the_call_or_the_card(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "parameters: {m: int32}\nderived: {one: m}\n", "\"m\" is a parameter of the call");
  assert_no_family(f, "parameters: {m: int32}\nblock: m\n", "\"m\" is a parameter of the call");
  assert_no_family(f, "derived: {one: sm_count}\n", "\"sm_count\" is a number of the card");
  assert_no_family(f, "grid: sm\n", "\"sm\" is a number of the card");
  assert_no_family(f, "means_nothing_when: {BM: sm > 80}\n", "\"sm\" is a number of the card");
  assert_no_family(f, "parameters: {m: int32}\nclasses: {c: m * BM}\n",
                   "must follow from the call and from fields with");
  assert_no_family(f, "parameters: {m: float}\ngrid: m\n", "nothing is called \"m\" here");
}

/* -- Parameters ---------------------------------------------------------------------------------------------------- */

static void test_family_file__parameters_have_their_types(void **state) {
  struct family_fixture *f = *state;
  assert_family(f, "parameters:\n  out: dtype*\n  in: const  fp16 *\n  any: void*\n  n: int64\n  u: uint32\n"
                   "  x: float\n  map: tensor_map\n  s: struct(24)\n  b: bool\n");
  const struct {
    kjit_parameter_kind kind;
    uint32_t bytes, alignment;
    int32_t dtype, dtype_field;
    uint8_t is_const, is_signed;
  } rows[] = {{KJIT_PARAMETER_POINTER, 8, 8, -1, 3, 0, 0},        {KJIT_PARAMETER_POINTER, 8, 8, 5, -1, 1, 0},
              {KJIT_PARAMETER_POINTER, 8, 8, -1, -1, 0, 0},       {KJIT_PARAMETER_INTEGER, 8, 8, 4, -1, 0, 1},
              {KJIT_PARAMETER_INTEGER, 4, 4, 28, -1, 0, 0},       {KJIT_PARAMETER_FLOAT, 4, 4, 6, -1, 0, 1},
              {KJIT_PARAMETER_TENSOR_MAP, 128, 64, -1, -1, 0, 0}, {KJIT_PARAMETER_STRUCT, 24, 8, -1, -1, 0, 0},
              {KJIT_PARAMETER_INTEGER, 1, 1, 11, -1, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_parameter_info *const info = kjit_family_parameter(f->family, i);
    assert_int_equal(info->kind, rows[i].kind);
    assert_int_equal(info->bytes, rows[i].bytes);
    assert_int_equal(info->alignment, rows[i].alignment);
    assert_int_equal(info->dtype, rows[i].dtype);
    assert_int_equal(info->dtype_field, rows[i].dtype_field);
    assert_int_equal(info->is_const, rows[i].is_const);
    assert_int_equal(info->is_signed, rows[i].is_signed);
  }
  assert_string_equal(kjit_family_parameter(f->family, 1)->name, "in");
  assert_null(kjit_family_parameter(f->family, 9));
}

static void test_family_file__unknown_types_are_refused(void **state) {
  struct family_fixture *f = *state;
  assert_no_family(f, "parameters: {a: flaot}\n", "toy.yaml:10:17: \"flaot\" is no type");
  assert_no_family(f, "parameters: {a: 'dtpe*'}\n", "did you mean \"dtype\"?");
  assert_no_family(f, "parameters: {a: struct(0)}\n", "a struct is written struct(BYTES)");
  assert_no_family(f, "parameters: {a: struct(99999)}\n", "a struct is written struct(BYTES)");
  assert_no_family(f, "parameters: {a: struct(8}\n", "a struct is written struct(BYTES)");
  assert_no_family(f, "parameters: {a: '*'}\n", "is no type");
  assert_no_family(f, "parameters: {a: dtype}\n", "is no type");
}

/* -- Templates and memory ------------------------------------------------------------------------------------------ */

static void test_family_file__templates_are_checked(void **state) {
  struct family_fixture *f = *state;
  const char *const rest = "family: toy\nsource: a.cu\nfields: {abc: {kind: int, values: [1]}}\n";
  char text[512];
  (void)snprintf(text, sizeof text, "%stemplate: 'k<{abd}>'\n", rest);
  assert_refused(f, text, "\"abd\" is no field or derived constant; did you mean \"abc\"?");
  (void)snprintf(text, sizeof text, "%stemplate: 'k<{abc>'\n", rest);
  assert_refused(f, text, "is not closed");
  (void)snprintf(text, sizeof text, "%stemplate: k\nentry: k\n", rest);
  assert_refused(f, text, "an entry or a template");
}

static void test_family_file__without_memory_nothing_is_left(void **state) {
  struct family_fixture *f = *state;
  const char *const lines =
      FAMILY_HEAD "derived: {t: BM * 2}\n"
                  "rules: [{require: t > 0, because: b}]\n"
                  "means_nothing_when: {warps: fast}\n"
                  "block: warps * 32\nparameters: {m: int32, o: 'void*'}\ngrid: m\n"
                  "sets: {s: ['BM=64', {BM: 96}], p: {cross: {BM: all}}}\n"
                  "classes: {c: {of: m, buckets: [1, 2]}}\noptions: [--use_fast_math]\ninclude: [x]\n";
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long call = 0; status == KJIT_ERR_NO_MEMORY; call++) {
    failing_allocator_reset(&f->allocator, call);
    status = family_fixture_make(f, lines, FAMILY_SOURCE);
    if (status == KJIT_OK) break;
    assert_status(KJIT_ERR_NO_MEMORY, status, &f->error);
    assert_null(f->definition);
    assert_int_equal(atomic_load(&f->allocator.live), 0);
  }
  assert_status(KJIT_OK, status, &f->error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      family_unit_test(test_family_file__what_makes_yaml_hard_to_read_is_refused),
      family_unit_test(test_family_file__words_stay_words),
      family_unit_test(test_family_file__size_is_bounded),
      family_unit_test(test_family_file__unknown_key_suggests_the_nearest),
      family_unit_test(test_family_file__comma_without_quotes_is_explained),
      family_unit_test(test_family_file__missing_keys_are_named),
      family_unit_test(test_family_file__wrong_shapes_are_named),
      family_unit_test(test_family_file__fields_are_checked),
      family_unit_test(test_family_file__names_may_not_meet),
      family_unit_test(test_family_file__derived_constants_use_those_before_alone),
      family_unit_test(test_family_file__what_changes_the_code_may_not_depend_on_the_call_or_the_card),
      family_unit_test(test_family_file__parameters_have_their_types),
      family_unit_test(test_family_file__unknown_types_are_refused),
      family_unit_test(test_family_file__templates_are_checked),
      family_unit_test(test_family_file__without_memory_nothing_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
