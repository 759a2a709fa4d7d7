/* Tuned tables in a runtime: where they are found, and what they decide. */
#include "support/configs.h"
#include "unit/attention/tune/tune_results.h"

#include "attention/tune/tune_attention.h"
#include "base/files/frame.h"
#include "family/tune/tune_store.h"
#include "family/tune/tune_text.h"

static void test_tune__without_a_table_the_rules_decide(void **state) {
  struct fixture *f = *state;
  const kjit_attention_problem problem = causal_problem();
  assert_int_equal(decided_by(f, &problem), KJIT_DECIDED_BY_RULES);
  const kjit_tune_info info = info_of(f);
  assert_int_equal(info.enabled, 1);
  assert_int_equal(info.user_rows + info.site_rows + info.shipped_rows + info.ignored_rows, 0);
  assert_string_equal(info.date, "");
  assert_non_null(strstr(info.path, "/" TUNED_FOLDER "/"));
  assert_string_equal(f->warnings, "");
}

static void test_tune__result_decides_in_the_next_runtime(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  publish(f, &result);
  open_again(f);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_TABLE);
  const kjit_config chosen = choose(f, &result.problem.attention, NULL);
  assert_int_equal(kjit_config_compare(&chosen, &config), 0);
  assert_int_equal(info_of(f).user_rows, 1);
  forward(f, &args, NULL);
  assert_int_equal(fake_driver.launch.shared_bytes, kjit_config_geometry(&chosen).shared_bytes);
}

static void test_tune__a_config_of_the_callers_own_is_not_replaced(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  kjit_config config;
  kjit_attention_sm90_config rules;
  const kjit_tune_result result = causal_result(f, &config);
  publish(f, &result);
  open_again(f);
  assert_status(KJIT_OK, sm90_config_choose(&result.problem.attention, MULTIPROCESSORS, &rules, &f->error), &f->error);
  assert_status(KJIT_OK, sm90_forward(f->runtime, &rules, &args, NULL, &f->error), &f->error);
  assert_int_equal(fake_driver.launch.shared_bytes, sm90_shared_bytes(&rules));
}

static void test_tune__later_calls_open_no_file(void **state) {
  struct fixture *f = *state;
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
  publish(f, &result);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
}

static kjit_status open_with(struct fixture *f, uint32_t flags, const char *site) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.cache_dir = f->folder.path;
  options.site_dir = site;
  options.allocator = failing_allocator_hooks(&f->memory);
  options.log = fixture_log;
  options.log_user = f;
  options.flags = flags;
  struct runtime_fakes fakes = {.driver = &fake_driver_api};
  fixture_close(f);
  f->error = (kjit_error){0};
  const kjit_status status = nvrtc_create_fake(&fakes.nvrtc, &f->mem, fake_nvrtc_api(), "nvrtc-fake", &f->error);
  return status == KJIT_OK ? runtime_create_with(&f->runtime, &options, &fakes, &f->error) : status;
}

static void test_tune__tables_can_be_switched_off(void **state) {
  struct fixture *f = *state;
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  publish(f, &result);
  assert_status(KJIT_OK, open_with(f, KJIT_RUNTIME_IGNORE_ENVIRONMENT | KJIT_RUNTIME_IGNORE_TUNED, NULL), &f->error);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
  assert_int_equal(info_of(f).enabled, 0);
  setenv("KJIT_TUNED", "off", 1);
  assert_status(KJIT_OK, open_with(f, 0, NULL), &f->error);
  assert_int_equal(info_of(f).enabled, 0);
  assert_status(KJIT_OK, open_with(f, KJIT_RUNTIME_IGNORE_ENVIRONMENT, NULL), &f->error);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_TABLE);
  setenv("KJIT_TUNED", "maybe", 1);
  assert_status(KJIT_ERR_INVALID_ARG, open_with(f, 0, NULL), &f->error);
  assert_string_equal(f->error.message, "KJIT_TUNED: must be on or off");
  unsetenv("KJIT_TUNED");
}

static void test_tune__the_users_row_is_believed_before_the_sites(void **state) {
  struct fixture *f = *state;
  kjit_attention_problem longer = causal_problem();
  kjit_config config;
  char site[TEMP_PATH_BYTES];
  longer.seq_kv = 7000;
  const kjit_tune_result mine = causal_result(f, &config),
                         sites[] = {result_of(&mine.problem.attention, NULL), result_of(&longer, &config)};
  publish(f, &sites[0]);
  publish(f, &sites[1]);
  temp_folder_path(&f->folder, "site", site);
  assert_int_equal(mkdir(site, 0755), 0);
  char from[TEMP_PATH_BYTES], to[TEMP_PATH_BYTES];
  temp_folder_path(&f->folder, TUNED_FOLDER, from);
  temp_folder_path(&f->folder, "site/" TUNED_FOLDER, to);
  assert_int_equal(rename(from, to), 0);
  publish(f, &mine);
  assert_status(KJIT_OK, open_with(f, KJIT_RUNTIME_IGNORE_ENVIRONMENT, site), &f->error);
  const kjit_tune_info info = info_of(f);
  assert_int_equal(info.user_rows, 1);
  assert_int_equal(info.site_rows, 1);
  assert_int_equal(decided_by(f, &mine.problem.attention), KJIT_DECIDED_BY_TABLE);
  assert_int_equal(decided_by(f, &longer), KJIT_DECIDED_BY_TABLE);
}

/* What the file says of itself stands against what its name says. */
static void test_tune__table_of_another_card_or_kernel_is_not_used(void **state) {
  static const char *const changes[] = {"\nmultiprocessors ", "\ndriver ", "\nlibrary ", "\ndevice ", "\narch "};
  struct fixture *f = *state;
  kjit_config config;
  const kjit_tune_result result = causal_result(f, &config);
  publish(f, &result);
  char *whole = read_file(f);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    char *changed = strdup(whole), *at = strstr(changed, changes[i]) + strlen(changes[i]);
    *at = *at == '1' ? '2' : '1';
    write_file(f, changed);
    free(changed);
    open_again(f);
    assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
    assert_contains(f->warnings, "is not used: it was measured on another card, driver or library");
    f->warnings[0] = '\0';
  }
  char *digest = strstr(whole, "kernels attention_sm90 ") + strlen("kernels attention_sm90 ");
  *digest = *digest == '0' ? '1' : '0';
  write_file(f, whole);
  free(whole);
  open_again(f);
  assert_int_equal(decided_by(f, &result.problem.attention), KJIT_DECIDED_BY_RULES);
  assert_int_equal(info_of(f).ignored_rows, 1);
  assert_string_equal(f->warnings, "");
}

/* A library with this text among its tables. */
struct shipped {
  struct embedded_source file;
  struct tune_places places;
  void *packed;
};

static struct shipped ship(struct fixture *f, const char *text) {
  struct shipped made = {.file = {"h.kjit-tuned", 0, strlen(text), NULL},
                         .places = tune_store_places(f->runtime, &tune_attention)};
  const size_t bytes = strlen(text) + 1;
  made.packed = malloc(frame_stored_bytes(bytes));
  assert_non_null(made.packed);
  frame_store(text, bytes, made.packed);
  made.places.shipped = (struct tune_shipped){NULL, 1, made.packed, frame_stored_bytes(bytes), bytes};
  return made;
}

static void expect_shipped(struct fixture *f, const char *text, const kjit_device_info *device, size_t rows) {
  struct shipped made = ship(f, text);
  made.places.shipped.files = &made.file;
  struct tune_table *table = tune_load_of_device(&made.places, device);
  assert_non_null(table);
  assert_int_equal(table->rows_of[TUNE_SHIPPED], rows);
  tune_table_destroy(table);
  free(made.packed);
}

static void test_tune__shipped_table_holds_for_its_card_under_any_driver(void **state) {
  struct fixture *f = *state;
  kjit_device_info device = device_of(f);
  kjit_config config;
  char *text = NULL;
  const kjit_tune_result result = causal_result(f, &config);
  assert_status(KJIT_OK, kjit_tune_print(f->runtime, &device, &result, NULL, &text, &f->error), &f->error);
  expect_shipped(f, text, &device, 1);
  device.driver_version += 10;
  expect_shipped(f, text, &device, 1);
  device.multiprocessors--;
  expect_shipped(f, text, &device, 0);
  kjit_text_free(f->runtime, text);
}

static void test_tune__shipped_table_decides_for_its_architecture(void **state) {
  struct fixture *f = *state;
  const kjit_device_info device = device_of(f);
  struct family_place place;
  struct attention_choice choice;
  kjit_config config;
  char *text = NULL;
  const kjit_tune_result result = causal_result(f, &config);
  assert_status(KJIT_OK, kjit_tune_print(f->runtime, &device, &result, NULL, &text, &f->error), &f->error);
  struct shipped made = ship(f, text);
  made.places.shipped.files = &made.file;
  assert_status(KJIT_OK, family_place_of_arch("sm_90a", &place, &f->error), &f->error);
  struct tune_table *table = tune_load_of_arch(&made.places, &place);
  const struct attention_measured measured = tune_attention_measured(table);
  assert_status(KJIT_OK, attention_choose(&result.problem.attention, &place, &measured, false, &choice, &f->error),
                &f->error);
  assert_int_equal(choice.decided_by, KJIT_DECIDED_BY_TABLE);
  tune_table_destroy(table);
  assert_status(KJIT_OK, family_place_of_arch("sm_80", &place, &f->error), &f->error);
  table = tune_load_of_arch(&made.places, &place);
  assert_int_equal(table->count, 0);
  tune_table_destroy(table);
  free(made.packed);
  kjit_text_free(f->runtime, text);
}

/* The table of an H100 comes first by name. */
static void test_tune__of_shipped_tables_the_usual_cards_decides_for_its_architecture(void **state) {
  struct fixture *f = *state;
  const struct tune_places places = tune_store_places(f->runtime, &tune_attention);
  struct family_place place;
  assert_status(KJIT_OK, family_place_of_arch("sm_90a", &place, &f->error), &f->error);
  struct tune_table *table = tune_load_of_arch(&places, &place);
  assert_string_equal(table->header.device, "NVIDIA H200");
  tune_table_destroy(table);
}

/* The library as it is built here: every table in it is sound, and measured on the kernels that are in it. After a
 * change of kernel text that leaves the machine code alone, tools/restamp_tuned writes the tables' digests anew. */
static void test_tune__every_shipped_table_is_sound(void **state) {
  struct fixture *f = *state;
  const struct tune_places places = tune_store_places(f->runtime, &tune_attention);
  char *texts = places.shipped.count ? tune_shipped_unpack(&places.shipped, places.mem) : NULL;
  for (size_t i = 0; i < places.shipped.count; i++) {
    const struct embedded_source *file = &places.shipped.files[i];
    struct tune_header header;
    struct family_place place;
    assert_status(KJIT_OK,
                  tune_text_read_header(&tune_attention, texts + file->offset, file->bytes, &header, &f->error),
                  &f->error);
    assert_status(KJIT_OK, family_place_of_arch(header.arch, &place, &f->error), &f->error);
    kjit_device_info device = tune_device_of_place(&place);
    snprintf(device.name, sizeof device.name, "%s", header.device);
    device.multiprocessors = header.multiprocessors;
    struct tune_table *table = tune_load_of_device(&places, &device);
    assert_true(table->count > 0);
    if (table->stale)
      fail_msg("%s was measured on other kernels: measure again, or see tools/restamp_tuned if the machine code is the "
               "same",
               file->name);
    assert_int_equal(table->broken, 0);
    tune_table_destroy(table);
  }
  mem_free(places.mem, texts);
  assert_string_equal(f->warnings, "");
}

/* The first candidate, which is the rules' choice, is the slowest. */
static kjit_status time_by_index(void *user, const kjit_tune_trial *trial, double *microseconds, kjit_error *error) {
  (void)user;
  (void)error;
  *microseconds = trial->index ? 50 + 0.01 * (double)trial->index : 100;
  return KJIT_OK;
}

static void test_tune__attention_is_tuned_by_a_function_of_the_callers(void **state) {
  struct fixture *f = *state;
  const kjit_attention_problem problem = causal_problem();
  const kjit_device_info device = device_of(f);
  kjit_tune_options options = kjit_tune_options_default();
  kjit_tune_outcome outcome = {.struct_size = sizeof outcome};
  const kjit_tune_problem asked = {.attention = problem};
  options.time = time_by_index;
  assert_status(KJIT_OK, kjit_tune_run(f->runtime, &asked, &device, NULL, &options, &outcome, &f->error), &f->error);
  assert_int_equal(outcome.decided_by, KJIT_DECIDED_BY_TABLE);
  assert_int_equal(outcome.rules_microseconds, 100);
  open_again(f);
  const kjit_config chosen = choose(f, &problem, NULL);
  assert_int_equal(kjit_config_compare(&chosen, &outcome.config), 0);
  options.set = "all";
  assert_status(KJIT_ERR_INVALID_ARG, kjit_tune_run(f->runtime, &asked, &device, NULL, &options, &outcome, &f->error),
                &f->error);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ATTENTION_TEST(test_tune__without_a_table_the_rules_decide),
      ATTENTION_TEST(test_tune__result_decides_in_the_next_runtime),
      ATTENTION_TEST(test_tune__a_config_of_the_callers_own_is_not_replaced),
      ATTENTION_TEST(test_tune__later_calls_open_no_file),
      ATTENTION_TEST(test_tune__tables_can_be_switched_off),
      ATTENTION_TEST(test_tune__the_users_row_is_believed_before_the_sites),
      ATTENTION_TEST(test_tune__table_of_another_card_or_kernel_is_not_used),
      ATTENTION_TEST(test_tune__shipped_table_holds_for_its_card_under_any_driver),
      ATTENTION_TEST(test_tune__shipped_table_decides_for_its_architecture),
      ATTENTION_TEST(test_tune__of_shipped_tables_the_usual_cards_decides_for_its_architecture),
      ATTENTION_TEST(test_tune__every_shipped_table_is_sound),
      ATTENTION_TEST(test_tune__attention_is_tuned_by_a_function_of_the_callers),
  };
  return cmocka_run_group_tests_name("tune_store", tests, NULL, NULL);
}
