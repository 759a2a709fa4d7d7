#include "unit/family/family_fixture.h"

#include "jit/request/custom_request.h"

#include <pthread.h>

/* A folder with a family file, its kernel and a header. */
struct folder_fixture {
  struct temp_folder folder;
  char path[2 * TEMP_PATH_BYTES];
  kjit_family *family;
  kjit_error error;
};

static void put(const struct folder_fixture *f, const char *name, const char *text) {
  char path[2 * TEMP_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", f->folder.path, name);
  FILE *stream = fopen(path, "w");
  assert_non_null(stream);
  assert_true(fputs(text, stream) >= 0);
  assert_int_equal(fclose(stream), 0);
}

static int setup(void **state) {
  static struct folder_fixture f;
  f = (struct folder_fixture){0};
  *state = &f;
  if (temp_folder_create(&f.folder) != 0) return -1;
  (void)snprintf(f.path, sizeof f.path, "%s/toy.yaml", f.folder.path);
  put(&f, "toy.yaml", FAMILY_HEAD);
  put(&f, "toy.cu", "#include \"part.cuh\"\nKJIT_BM KJIT_warps KJIT_fast KJIT_dtype KJIT_epilogue\n");
  put(&f, "part.cuh", "#define KJIT_from_header 1\n");
  return 0;
}

static int teardown(void **state) {
  struct folder_fixture *f = *state;
  kjit_family_release(f->family);
  return temp_folder_remove(&f->folder);
}

static void open_family(struct folder_fixture *f) {
  assert_status(KJIT_OK, kjit_family_open(&f->family, f->path, &f->error), &f->error);
}

/* What a build would compile. Finished by the caller where it is KJIT_OK. */
static kjit_status collect(const kjit_family *family, struct custom_request *custom, kjit_error *error) {
  static struct mem mem;
  (void)mem_init(&mem, NULL);
  return custom_request_init(custom, &mem, family->own_source, "sm_80", error);
}

static void test_family_open__finds_the_source_beside_the_file(void **state) {
  struct folder_fixture *f = *state;
  struct custom_request custom;
  open_family(f);
  assert_status(KJIT_OK, collect(f->family, &custom, &f->error), &f->error);
  const struct source_set *const sources = custom.request.sources;
  assert_int_equal(sources->count, 2);
  assert_string_equal(sources->files[0].name, "toy.cu");
  assert_string_equal(sources->files[1].name, "part.cuh");
  custom_request_finish(&custom);
}

static void test_family_open__what_is_missing_is_named(void **state) {
  struct folder_fixture *f = *state;
  assert_int_equal(kjit_family_open(&f->family, "/nowhere/toy.yaml", &f->error), KJIT_ERR_NOT_FOUND);
  assert_null(f->family);
  put(f, "toy.yaml", "family: a\nsource: nope.cu\nentry: k\nfields: {a: {kind: bool}}\n");
  assert_int_equal(kjit_family_open(&f->family, f->path, &f->error), KJIT_ERR_NOT_FOUND);
  assert_contains(f->error.message, "nope.cu");
  assert_int_equal(kjit_family_open(NULL, f->path, &f->error), KJIT_ERR_INVALID_ARG);
  assert_int_equal(kjit_family_open(&f->family, NULL, &f->error), KJIT_ERR_INVALID_ARG);
}

static void test_family_open__constant_of_a_header_is_no_field(void **state) {
  struct folder_fixture *f = *state;
  put(f, "toy.cu", "#include \"part.cuh\"\nKJIT_from_header KJIT_BM\n");
  open_family(f);
  assert_contains(kjit_family_warning(f->family, 0), "the field warps is never used");
  assert_non_null(kjit_family_warning(f->family, 3));
  assert_null(kjit_family_warning(f->family, 4));
}

static void test_family_open__header_that_is_nowhere_is_named_at_its_first_use(void **state) {
  struct folder_fixture *f = *state;
  struct custom_request custom;
  put(f, "toy.cu", "#include \"gone.cuh\"\nKJIT_BM KJIT_warps KJIT_fast KJIT_dtype KJIT_epilogue\n");
  open_family(f);
  for (int i = 0; i < 2; i++) {
    memset(&f->error, 0, sizeof f->error);
    assert_int_equal(collect(f->family, &custom, &f->error), KJIT_ERR_NOT_FOUND);
    assert_contains(f->error.message, "toy.cu:1: #include \"gone.cuh\"");
  }
  put(f, "gone.cuh", "");
  assert_int_equal(collect(f->family, &custom, NULL), KJIT_OK);
  custom_request_finish(&custom);
}

static void test_family_parse__takes_the_folder_from_the_caller(void **state) {
  struct folder_fixture *f = *state;
  const char *const text = FAMILY_HEAD;
  assert_status(KJIT_OK, kjit_family_parse(&f->family, text, strlen(text), "here", f->folder.path, &f->error),
                &f->error);
  assert_string_equal(f->family->table.family, "toy");
}

/* -- The struct form ----------------------------------------------------------------------------------------------- */

static const kjit_family_text tile_values[] = {{"64", 0, 0}, {"128", 0, 0}};
static const kjit_family_field_row struct_fields[] = {
    {.name = {"BM", 0, 0}, .kind = "int", .values = tile_values, .value_count = 2, .default_value = {"64", 0, 0}},
    {.name = {"stages", 0, 0}, .kind = "int", .least = 1, .most = 4, .default_value = {"2", 0, 0}}};
static const kjit_family_rule_row struct_rules[] = {{{"BM * stages <= 256", 0, 0}, "it must fit"}};

static kjit_family_description describe(void) {
  kjit_family_description description = kjit_family_description_default();
  description.name = "toy";
  description.source = (kjit_source){"toy.cu", "KJIT_BM KJIT_stages", 0};
  description.entry = "toy";
  description.fields = struct_fields;
  description.field_count = 2;
  description.rules = struct_rules;
  description.rule_count = 1;
  return description;
}

static void test_family_create__struct_says_what_a_file_says(void **state) {
  struct folder_fixture *f = *state;
  const kjit_family_description description = describe();
  kjit_family *from_file;
  assert_status(KJIT_OK, kjit_family_create(&f->family, &description, &f->error), &f->error);
  put(f, "toy.cu", "KJIT_BM KJIT_stages");
  put(f, "toy.yaml",
      "family: toy\nsource: toy.cu\nentry: toy\nfields:\n  BM: {kind: int, values: [64, 128], default: 64}\n"
      "  stages: {kind: int, range: [1, 4], default: 2}\nrules: [{require: BM * stages <= 256, because: it must "
      "fit}]\n");
  assert_status(KJIT_OK, kjit_family_open(&from_file, f->path, &f->error), &f->error);
  for (int32_t tile = 0; tile < 256; tile += 64) {
    for (int32_t stages = 0; stages < 6; stages++) {
      const int32_t values[] = {tile, stages};
      kjit_error one = {0}, other = {0};
      assert_int_equal(f->family->check(f->family, values, &one), from_file->check(from_file, values, &other));
      assert_string_equal(one.message, other.message);
    }
  }
  kjit_family_release(from_file);
}

static void test_family_create__errors_name_the_family_and_the_rule(void **state) {
  struct folder_fixture *f = *state;
  const kjit_family_rule_row rules[] = {{{"BM * stage <= 256", 0, 0}, "it must fit"}};
  kjit_family_description description = describe();
  description.rules = rules;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_PARSE);
  assert_string_equal(f->error.message,
                      "rules[0]: column 6: nothing is called \"stage\" here; did you mean \"stages\"?");
  description = describe();
  description.name = "9";
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_PARSE);
  assert_contains(f->error.message, "the family \"9\" must be letters");
}

static void test_family_create__a_name_of_kjits_own_is_taken(void **state) {
  struct folder_fixture *f = *state;
  kjit_family_description description = describe();
  description.name = "flash_forward";
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_PARSE);
  assert_null(f->family);
  assert_contains(f->error.message, "the family flash_forward is kjit's own: a user's needs another name");
}

/* A runtime's table of resident configs has the family's address in its keys. An address may come back after a release,
 * so every family has a number besides that never does. */
static void test_family_create__a_family_at_a_released_ones_address_is_another(void **state) {
  struct folder_fixture *f = *state;
  const kjit_family_description description = describe();
  const kjit_family *known[64];
  uint64_t serials[64];
  size_t count = 0;
  bool came_back = false;
  for (; count < 64 && !came_back; count++) {
    assert_status(KJIT_OK, kjit_family_create(&f->family, &description, &f->error), &f->error);
    known[count] = f->family;
    serials[count] = f->family->serial;
    for (size_t i = 0; i < count; i++) {
      assert_int_not_equal(serials[i], serials[count]);
      came_back = came_back || known[i] == known[count];
    }
    kjit_family_release(f->family);
    f->family = NULL;
  }
  if (!came_back) print_message("no address came back, as with a sanitizer's allocator\n");
}

static void test_family_create__missing_tables_and_sizes_are_refused(void **state) {
  struct folder_fixture *f = *state;
  kjit_family_description description = describe();
  description.set_count = 1;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_PARSE);
  assert_contains(f->error.message, "the sets are missing, but their count is 1");
  description = describe();
  description.rule_count = 257;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_PARSE);
  assert_contains(f->error.message, "257 rules; at most 256");
  description = describe();
  description.struct_size = 8;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_INVALID_ARG);
  assert_int_equal(kjit_family_create(&f->family, NULL, &f->error), KJIT_ERR_INVALID_ARG);
}

static void test_family_create__options_are_those_of_a_build(void **state) {
  struct folder_fixture *f = *state;
  const char *const options[] = {"-DBM=3"}, *const none[] = {NULL};
  kjit_family_description description = describe();
  description.options = options;
  description.option_count = 1;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_INVALID_ARG);
  assert_contains(f->error.message, "options[0]");
  description.options = none;
  assert_int_equal(kjit_family_create(&f->family, &description, &f->error), KJIT_ERR_INVALID_ARG);
}

static void test_family_grid__arguments_are_checked(void **state) {
  struct folder_fixture *f = *state;
  uint32_t grid[3];
  open_family(f);
  const kjit_config config = {.family = f->family, .values = {128, 4, 0, 5, 0}}, nothing = {0};
  assert_int_equal(kjit_family_grid(&config, NULL, 0, grid, &f->error), KJIT_OK);
  assert_int_equal(grid[0] * grid[1] * grid[2], 1);
  assert_int_equal(kjit_family_grid(&nothing, NULL, 0, grid, &f->error), KJIT_ERR_INVALID_ARG);
  assert_int_equal(kjit_family_grid(&config, NULL, 0, NULL, &f->error), KJIT_ERR_INVALID_ARG);
  assert_null(kjit_family_parameter(NULL, 0));
  assert_null(kjit_family_warning(NULL, 0));
  kjit_family_release(NULL);
}

/* -- Threads ------------------------------------------------------------------------------------------------------- */

static void *use_family(void *user) {
  const kjit_family *const family = user;
  const void *done = NULL;
  for (int i = 0; i < 100; i++) {
    int32_t values[KJIT_FIELD_COUNT_MAX];
    (void)kjit_family_retain(family);
    if (family->parse(family, "BM=64", values, NULL) != KJIT_OK) return NULL;
    kjit_family_release(family);
    done = family;
  }
  return (void *)(uintptr_t)done;
}

static void test_family__threads_share_it(void **state) {
  struct folder_fixture *f = *state;
  pthread_t threads[4];
  void *done[4];
  open_family(f);
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, use_family, f->family), 0);
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(pthread_join(threads[i], &done[i]), 0);
  for (size_t i = 0; i < 4; i++)
    assert_ptr_equal(done[i], f->family);
}

#define folder_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      folder_test(test_family_open__finds_the_source_beside_the_file),
      folder_test(test_family_open__what_is_missing_is_named),
      folder_test(test_family_open__constant_of_a_header_is_no_field),
      folder_test(test_family_open__header_that_is_nowhere_is_named_at_its_first_use),
      folder_test(test_family_parse__takes_the_folder_from_the_caller),
      folder_test(test_family_create__struct_says_what_a_file_says),
      folder_test(test_family_create__errors_name_the_family_and_the_rule),
      folder_test(test_family_create__a_name_of_kjits_own_is_taken),
      folder_test(test_family_create__a_family_at_a_released_ones_address_is_another),
      folder_test(test_family_create__missing_tables_and_sizes_are_refused),
      folder_test(test_family_create__options_are_those_of_a_build),
      folder_test(test_family_grid__arguments_are_checked),
      folder_test(test_family__threads_share_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
