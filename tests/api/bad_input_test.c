/* Every public function that returns a status, with NULL in the place of all its pointers: one that must be there is
 * named. Counts that no array has, models that no server has, and configs whose values are no legal ones. */
#include "fixture.h"

#include <stdbool.h>

static bool begins_with(const char *message, const char *begin) {
  return message && strncmp(message, begin, strlen(begin)) == 0;
}

#define REFUSES(what, call)                                                                                            \
  do {                                                                                                                 \
    assert_status(KJIT_ERR_INVALID_ARG, (call), &f->error);                                                            \
    assert_true(begins_with(f->error.message, what ": must "));                                                        \
  } while (0)

static void test_attention__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("config", kjit_attention_choose(NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("config", kjit_attention_choose_for(NULL, NULL, NULL, &f->error));
  REFUSES("front", kjit_attention_front(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_attention_forward(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_attention_plan_create(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("plan", kjit_attention_plan_run(NULL, NULL, &f->error));
  REFUSES("milliseconds", kjit_attention_plan_time(NULL, NULL, NULL, &f->error));
  REFUSES("count", kjit_attention_backward_choose(NULL, 0, NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_attention_backward(NULL, NULL, 0, NULL, NULL, &f->error));
  REFUSES("out", kjit_attention_backward_plan_create(NULL, NULL, NULL, 0, NULL, &f->error));
  REFUSES("runtime", kjit_attention_serving(NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_attention_schedule(NULL, NULL, NULL, &f->error));
  REFUSES("sizes", kjit_attention_serving_get_sizes(NULL, NULL, NULL, &f->error));
  REFUSES("configs", kjit_attention_serving_kernels(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_attention_variant_create(NULL, NULL, &f->error));
  REFUSES("variant", kjit_attention_variant_get_info(NULL, NULL, &f->error));
  REFUSES("variant", kjit_attention_variant_explain(NULL, NULL, 0, NULL, &f->error));
  REFUSES("variant", kjit_attention_variant_print_kernel(NULL, NULL, 0, NULL, &f->error));
  REFUSES("variant", kjit_attention_variant_evaluate(NULL, NULL, &f->error));
}

static void test_compiling__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("out", kjit_build(NULL, NULL, NULL, &f->error));
  REFUSES("text", kjit_build_source(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_program_create(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_program_get(NULL, NULL, NULL, &f->error));
  REFUSES("artifact", kjit_artifact_get_info(NULL, NULL, &f->error));
  REFUSES("artifact", kjit_artifact_get_kernel(NULL, 0, NULL, &f->error));
  REFUSES("artifact", kjit_artifact_get_phases(NULL, NULL, &f->error));
  REFUSES("artifact", kjit_artifact_get_key(NULL, NULL, &f->error));
  REFUSES("out", kjit_program_get_kernel(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_program_get_module(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_recorded_build(NULL, NULL, NULL, 0, NULL, &f->error));
  REFUSES("path", kjit_record_sweep(NULL, NULL, &f->error));
  REFUSES("out", kjit_program_open(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("program", kjit_program_list(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_sealer_create(NULL, NULL, NULL, &f->error));
  REFUSES("sealer", kjit_sealer_add(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("blob", kjit_sealer_finish(NULL, 0, NULL, &f->error));
  REFUSES("sealer", kjit_sealer_sign(NULL, NULL, NULL, &f->error));
}

static void test_kernel__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("out", kjit_kernel_get(NULL, NULL, NULL, &f->error));
  REFUSES("kernel", kjit_kernel_launch(NULL, NULL, NULL, 0, NULL, &f->error));
  REFUSES("kernel", kjit_kernel_get_occupancy(NULL, NULL, NULL, &f->error));
  REFUSES("kernel", kjit_kernel_get_handles(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_device_count(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_device_get_info(NULL, 0, NULL, &f->error));
  REFUSES("name", kjit_device_find(NULL, NULL, &f->error));
  REFUSES("out", kjit_module_get(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_module_get_kernel(NULL, NULL, NULL, &f->error));
  REFUSES("module", kjit_module_get_global(NULL, NULL, NULL, &f->error));
  REFUSES("module", kjit_module_write_global(NULL, NULL, 0, NULL, 0, NULL, &f->error));
  REFUSES("module", kjit_module_read_global(NULL, NULL, 0, NULL, 0, NULL, &f->error));
  REFUSES("runtime", kjit_tensor_map_create(NULL, NULL, NULL, &f->error));
}

static void test_cache__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("out", kjit_bundle_open(NULL, NULL, NULL, NULL, 0, &f->error));
  REFUSES("bundle", kjit_bundle_get_info(NULL, NULL, &f->error));
  REFUSES("bundle", kjit_bundle_list(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_bundle_writer_create(NULL, NULL, NULL, &f->error));
  REFUSES("writer", kjit_bundle_writer_add(NULL, NULL, &f->error));
  REFUSES("writer", kjit_bundle_writer_add_cache(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("blob", kjit_bundle_writer_finish(NULL, NULL, &f->error));
  REFUSES("keys", kjit_bundle_keygen(NULL, NULL, &f->error));
  REFUSES("bundle", kjit_bundle_sign(NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_list(NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_show(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_verify(NULL, 0, NULL, &f->error));
  REFUSES("runtime", kjit_cache_prune(NULL, 0, NULL, &f->error));
  REFUSES("runtime", kjit_cache_clear(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_get_stats(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_why(NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_export(NULL, NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_cache_import(NULL, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_remote_check(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_remote_push(NULL, NULL, &f->error));
}

static void test_family__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("family", kjit_family_set(NULL, NULL, 0, NULL, NULL, &f->error));
  REFUSES("value", kjit_config_get(NULL, NULL, NULL, &f->error));
  REFUSES("config", kjit_config_set(NULL, NULL, 0, &f->error));
  REFUSES("out", kjit_config_parse(NULL, NULL, NULL, &f->error));
  REFUSES("config", kjit_config_print(NULL, 0, NULL, 0, &f->error));
  REFUSES("config", kjit_config_check(NULL, NULL, &f->error));
  REFUSES("out", kjit_config_build(NULL, NULL, NULL, 0, NULL, &f->error));
  REFUSES("out", kjit_config_get_kernel(NULL, NULL, NULL, 0, NULL, &f->error));
  REFUSES("text", kjit_config_source(NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_family_open(NULL, NULL, &f->error));
  REFUSES("out", kjit_family_parse(NULL, NULL, 0, NULL, NULL, &f->error));
  REFUSES("out", kjit_family_create(NULL, NULL, &f->error));
  REFUSES("grid", kjit_family_grid(NULL, NULL, 0, NULL, &f->error));
  REFUSES("problem", kjit_family_problem_parse(NULL, NULL, NULL, &f->error));
  REFUSES("text", kjit_family_problem_print(NULL, NULL, 0, &f->error));
  REFUSES("config", kjit_family_choose(NULL, NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("out", kjit_flash_config_parse(NULL, NULL, &f->error));
  REFUSES("config", kjit_flash_config_print(NULL, 0, NULL, 0, &f->error));
  REFUSES("count", kjit_flash_config_set(NULL, NULL, 0, NULL, &f->error));
  REFUSES("out", kjit_config_of_flash(NULL, NULL, NULL, &f->error));
}

static void test_runtime__of_nothing_is_refused_by_name(void **state) {
  struct fixture *f = *state;
  REFUSES("outcome", kjit_contest_run(NULL, NULL, 0, NULL, NULL, &f->error));
  REFUSES("runtime", kjit_doctor(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_runtime_record(NULL, NULL, &f->error));
  REFUSES("out", kjit_runtime_create(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_runtime_wait_compiles(NULL, 0, &f->error));
  REFUSES("runtime", kjit_runtime_get_stats(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_tune_get_info(NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("problem", kjit_tune_class(NULL, NULL, 0, &f->error));
  REFUSES("out", kjit_tune_candidates_create(NULL, NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("index", kjit_tune_candidates_judge(NULL, NULL, 0, &f->error));
  REFUSES("arch", kjit_tune_device_any(NULL, NULL, &f->error));
  REFUSES("runtime", kjit_tune_publish(NULL, NULL, NULL, &f->error));
  REFUSES("text", kjit_tune_print(NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("outcome", kjit_tune_run(NULL, NULL, NULL, NULL, NULL, NULL, &f->error));
}

static void test_runtime__alone_is_refused_by_the_next_argument(void **state) {
  struct fixture *f = *state;
  REFUSES("config", kjit_attention_choose(f->runtime, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("args", kjit_attention_forward(f->runtime, NULL, NULL, NULL, &f->error));
  REFUSES("args", kjit_attention_backward(f->runtime, NULL, 0, NULL, NULL, &f->error));
  REFUSES("args", kjit_attention_serving(f->runtime, NULL, NULL, &f->error));
  REFUSES("args", kjit_attention_schedule(f->runtime, NULL, NULL, &f->error));
  REFUSES("sizes", kjit_attention_serving_get_sizes(f->runtime, NULL, NULL, &f->error));
  REFUSES("text", kjit_build_source(f->runtime, NULL, NULL, &f->error));
  REFUSES("visit", kjit_cache_list(f->runtime, NULL, NULL, &f->error));
  REFUSES("visit", kjit_cache_show(f->runtime, NULL, NULL, NULL, &f->error));
  REFUSES("stats", kjit_cache_get_stats(f->runtime, NULL, &f->error));
  REFUSES("nearest", kjit_cache_why(f->runtime, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("path", kjit_cache_export(f->runtime, NULL, NULL, NULL, &f->error));
  REFUSES("path", kjit_cache_import(f->runtime, NULL, NULL, &f->error));
  REFUSES("report", kjit_doctor(f->runtime, NULL, &f->error));
  REFUSES("text", kjit_config_source(f->runtime, NULL, NULL, &f->error));
  REFUSES("config", kjit_family_choose(f->runtime, NULL, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("count", kjit_device_count(f->runtime, NULL, &f->error));
  REFUSES("report", kjit_remote_check(f->runtime, NULL, &f->error));
  REFUSES("report", kjit_remote_push(f->runtime, NULL, &f->error));
  REFUSES("stats", kjit_runtime_get_stats(f->runtime, NULL, &f->error));
  REFUSES("map", kjit_tensor_map_create(f->runtime, NULL, NULL, &f->error));
  REFUSES("arch", kjit_tune_get_info(f->runtime, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("device", kjit_tune_publish(f->runtime, NULL, NULL, &f->error));
  REFUSES("text", kjit_tune_print(f->runtime, NULL, NULL, NULL, NULL, &f->error));
  REFUSES("outcome", kjit_tune_run(f->runtime, NULL, NULL, NULL, NULL, NULL, &f->error));
}

static kjit_status build(struct fixture *f, const kjit_build_request *request) {
  kjit_artifact *artifact = NULL;
  const kjit_status status = kjit_build(f->runtime, request, &artifact, &f->error);
  kjit_artifact_release(artifact);
  return status;
}

static kjit_status create_program(struct fixture *f, const kjit_build_request *request) {
  kjit_program *program = NULL;
  const kjit_status status = kjit_program_create(f->runtime, request, &program, &f->error);
  kjit_program_release(program);
  return status;
}

/* Nothing of an array is read before its count is known to be a possible one: behind these arrays there is nothing. */
static void test_request__counts_beyond_their_bounds_are_refused_by_name(void **state) {
  struct fixture *f = *state;
  static const char text[] = "x";
  static const char *const texts[] = {text};
  const kjit_source header = {.name = text, .text = text};
  const kjit_define define = {.name = text, .value = text};
  const kjit_part part = {.data = text, .bytes = 1};
  kjit_build_request plain = kjit_build_request_default();
  plain.arch = "sm_80", plain.source = header, plain.flags = KJIT_BUILD_NO_COMPILE;
  plain.headers = &header, plain.include_dirs = texts, plain.defines = &define;
  plain.options = texts, plain.names = texts, plain.parts = &part;
  static const struct {
    const char *name;
    size_t count, array; /* where the members lie */
  } rows[] = {
      {"headers", offsetof(kjit_build_request, header_count), offsetof(kjit_build_request, headers)},
      {"include_dirs", offsetof(kjit_build_request, include_dir_count), offsetof(kjit_build_request, include_dirs)},
      {"defines", offsetof(kjit_build_request, define_count), offsetof(kjit_build_request, defines)},
      {"options", offsetof(kjit_build_request, option_count), offsetof(kjit_build_request, options)},
      {"names", offsetof(kjit_build_request, name_count), offsetof(kjit_build_request, names)},
      {"parts", offsetof(kjit_build_request, part_count), offsetof(kjit_build_request, parts)},
  };
  static const size_t counts[] = {5000, (size_t)1 << 32, SIZE_MAX / 16, SIZE_MAX / 8 + 1, SIZE_MAX};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (size_t k = 0; k <= sizeof counts / sizeof *counts; k++) {
      kjit_build_request request = plain;
      const bool is_missing = k == sizeof counts / sizeof *counts;
      const size_t count = is_missing ? 1 : counts[k];
      memcpy((char *)&request + rows[i].count, &count, sizeof count);
      if (is_missing) memset((char *)&request + rows[i].array, 0, sizeof(void *));
      assert_status(KJIT_ERR_INVALID_ARG, build(f, &request), &f->error);
      assert_true(begins_with(f->error.message, rows[i].name));
      assert_status(KJIT_ERR_INVALID_ARG, create_program(f, &request), &f->error);
      assert_true(begins_with(f->error.message, rows[i].name));
    }
  }
}

/* The members of a model, one at a time, beside others that are right. */
static void test_model__member_out_of_range_is_refused_with_its_rule(void **state) {
  struct fixture *f = *state;
  static const struct {
    size_t member;
    int64_t value;
    const char *message;
  } rows[] = {
      {offsetof(kjit_serving_model, heads_q), INT64_C(1) << 31, "model.heads_q: must be from 1 to 2147483647"},
      {offsetof(kjit_serving_model, heads_kv), 3, "model.heads_kv: must divide heads_q"},
      {offsetof(kjit_serving_model, page_size), -1, "model.page_size: must not be negative"},
      {offsetof(kjit_serving_model, softcap), 30, "model.softcap: must be 0 or 1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_serving_model model = kjit_serving_model_default();
    kjit_config configs[KJIT_SERVING_KERNELS_MAX];
    size_t count = 1;
    model.dtype = KJIT_BF16;
    model.heads_q = 8;
    model.head_dim = 128;
    memcpy((char *)&model + rows[i].member, &rows[i].value, sizeof rows[i].value);
    assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_serving_kernels(&model, "sm_90", configs, &count, &f->error),
                  &f->error);
    assert_string_equal(f->error.message, rows[i].message);
    assert_int_equal(count, 0);
  }
}

/* Whatever kjit_config_set() lets through is judged by kjit_config_check(); a size that divides another may be 0. */
static void test_geometry__of_an_illegal_config_is_zero(void **state) {
  struct fixture *f = *state;
  static const char *const names[] = {"flash_forward",          "attention_sm90",    "attention_decode_sm90",
                                      "attention_short_sm90",   "attention_serving", "attention_serving_sm90",
                                      "attention_prefill_sm90", "flash_backward",    "attention_backward_sm90"};
  static const int32_t values[] = {0, -1, INT32_MIN, INT32_MAX};
  const kjit_geometry zero = {0};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    kjit_config config = {.family = kjit_family_find(names[i])};
    assert_non_null(config.family);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
      for (size_t field = 0; field < KJIT_FIELD_COUNT_MAX; field++)
        config.values[field] = values[k];
      const kjit_geometry geometry = kjit_config_geometry(&config);
      assert_memory_equal(&zero, &geometry, sizeof zero);
      assert_status(KJIT_ERR_INVALID_CONFIG, kjit_config_check(&config, NULL, &f->error), &f->error);
    }
  }
  const kjit_geometry geometry = kjit_config_geometry(NULL);
  assert_memory_equal(&zero, &geometry, sizeof zero);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_attention__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_compiling__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_kernel__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_cache__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_family__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_runtime__of_nothing_is_refused_by_name),
      FIXTURE_TEST(test_runtime__alone_is_refused_by_the_next_argument),
      FIXTURE_TEST(test_request__counts_beyond_their_bounds_are_refused_by_name),
      FIXTURE_TEST(test_model__member_out_of_range_is_refused_with_its_rule),
      FIXTURE_TEST(test_geometry__of_an_illegal_config_is_zero),
  };
  return cmocka_run_group_tests_name("api bad input", tests, NULL, NULL);
}
