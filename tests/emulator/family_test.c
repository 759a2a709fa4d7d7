/* A user's family run from C: described by a struct, built, loaded and launched with the grid and the block that the
 * description says, on the emulator. */
#include "emulator_fixture.h"

#include <string.h>

#include "support/test.h"

enum { COUNT = 1000, FACTOR = 3 };

static const char source[] =
    "extern \"C\" __global__ void scale(float *out, const float *in, float factor, int count) {\n"
    "  const int first = (blockIdx.x * KJIT_threads + threadIdx.x) * KJIT_each;\n"
    "  for (int i = first; i < first + KJIT_each && i < count; i++) out[i] = factor * in[i];\n"
    "}\n";

static kjit_family *make_family(kjit_error *error) {
  const kjit_family_field_row fields[] = {
      {.name = {"threads", 0, 0}, .kind = "int", .least = 32, .most = 256, .step = 32, .default_value = {"64", 0, 0}},
      {.name = {"each", 0, 0}, .kind = "int", .least = 1, .most = 16, .default_value = {"4", 0, 0}}};
  const kjit_family_parameter_row parameters[] = {{{"out", 0, 0}, {"float*", 0, 0}},
                                                  {{"in", 0, 0}, {"const float*", 0, 0}},
                                                  {{"factor", 0, 0}, {"float", 0, 0}},
                                                  {{"count", 0, 0}, {"int32", 0, 0}}};
  kjit_family_description description = kjit_family_description_default();
  kjit_family *family = NULL;
  description.name = "scale";
  description.source = (kjit_source){"scale.cu", source, 0};
  description.entry = "scale";
  description.fields = fields;
  description.field_count = 2;
  description.parameters = parameters;
  description.parameter_count = 4;
  description.block[0].text = "threads";
  description.grid[0].text = "divup(count, threads * each)";
  assert_status(KJIT_OK, kjit_family_create(&family, &description, error), error);
  return family;
}

static void launch(struct gpu_fixture *fixture, const kjit_config *config, CUdeviceptr out, CUdeviceptr in,
                   kjit_error *error) {
  const float factor = FACTOR;
  const int32_t count = COUNT;
  const int64_t parameters[] = {0, 0, 0, count};
  const kjit_geometry geometry = kjit_config_geometry(config);
  const kjit_arg args[] = {KJIT_ARG(out), KJIT_ARG(in), KJIT_ARG(factor), KJIT_ARG(count)};
  kjit_launch how = kjit_launch_default();
  kjit_kernel *kernel = NULL;
  assert_status(KJIT_OK, kjit_config_get_kernel(fixture->runtime, config, NULL, 0, &kernel, error), error);
  assert_status(KJIT_OK, kjit_family_grid(config, parameters, 0, how.grid, error), error);
  memcpy(how.block, geometry.threads, sizeof how.block);
  how.dynamic_shared_bytes = geometry.shared_bytes;
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &how, args, 4, fixture->card.stream, error), error);
  assert_status(KJIT_OK, card_synchronize(&fixture->card, fixture->card.stream, error), error);
  assert_string_equal("", emulator_complaint(&fixture->card));
  kjit_kernel_release(kernel);
}

/* The last element would be missed by a grid or a block that is too small, and one that is too large writes nothing. */
static void test_family__kernel_computes_with_the_grid_of_its_description(void **state) {
  static const char *const texts[] = {"", "threads=32,each=1", "each=16", "threads=256,each=3"};
  struct gpu_fixture *fixture = gpu_require(state);
  static float values[COUNT], found[COUNT];
  kjit_error error = {0};
  kjit_family *family = make_family(&error);
  struct card_buffer in = {0}, out = {0};
  for (int i = 0; i < COUNT; i++)
    values[i] = (float)i;
  assert_status(KJIT_OK, card_buffer_create(&fixture->card, &in, sizeof values, &error), &error);
  assert_status(KJIT_OK, card_buffer_create(&fixture->card, &out, sizeof found, &error), &error);
  assert_status(KJIT_OK, card_write(&fixture->card, in.address, values, sizeof values, &error), &error);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    kjit_config config;
    assert_status(KJIT_OK, kjit_config_parse(family, texts[i], &config, &error), &error);
    assert_status(KJIT_OK, card_poison(&fixture->card, out, fixture->card.stream, &error), &error);
    launch(fixture, &config, out.address, in.address, &error);
    assert_status(KJIT_OK, card_read(&fixture->card, found, out.address, sizeof found, &error), &error);
    for (int k = 0; k < COUNT; k++)
      assert_int_equal(FACTOR * k, (int)found[k]);
  }
  card_buffer_destroy(&fixture->card, &in);
  card_buffer_destroy(&fixture->card, &out);
  kjit_family_release(family);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_family__kernel_computes_with_the_grid_of_its_description),
  };
  return cmocka_run_group_tests_name("families on the emulator", tests, emulator_setup, gpu_teardown);
}
