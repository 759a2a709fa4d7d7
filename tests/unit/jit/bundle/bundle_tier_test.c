#include "bundle_sample.h"
#include "jit/admin/cache_admin.h"
#include "jit/admin/cache_bundle.h"
#include "support/cache_world.h"

/* Numbers 1 to 3 as a bundle made from the world's folder, which is empty again afterwards. */
static void world_bundle(struct cache_world *world, const char *name) {
  struct bundle_writer *writer = bundle_writer_create(&world->mem, sample_compress, NULL);
  void *data;
  size_t bytes;
  for (long number = 1; number <= 3; number++)
    assert_status(KJIT_OK, cache_world_get(world, number, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_bundle(world->builder, writer, NULL, NULL, NULL), NULL);
  assert_status(KJIT_OK, bundle_writer_build(writer, &data, &bytes, NULL), NULL);
  assert_int_equal(temp_folder_write(&world->folder, name, data, bytes), 0);
  bundle_writer_destroy(writer);
  mem_free(&world->mem, data);
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.compiles, 0);
}

struct tier {
  struct cache_world *world;
  char path[TEMP_PATH_BYTES];
  const char *paths[2];
};

static int setup(void **state) {
  struct tier *tier = calloc(1, sizeof *tier);
  *state = tier;
  if (!tier || cache_world_setup((void **)&tier->world)) return -1;
  world_bundle(tier->world, "numbers.kjb");
  temp_folder_path(&tier->world->folder, "numbers.kjb", tier->path);
  tier->paths[0] = tier->path;
  tier->world->options.bundle_paths = tier->paths;
  tier->world->options.bundle_count = 1;
  return 0;
}

static int teardown(void **state) {
  struct tier *tier = *state;
  cache_world_teardown((void **)&tier->world);
  free(tier);
  return 0;
}

/* Change one byte of a file. */
static void spoil(const char *path, long from_end) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, -from_end, SEEK_END);
  const int byte = fgetc(file);
  fseek(file, -from_end, SEEK_END);
  fputc(byte ^ 0x55, file);
  fclose(file);
}

static void test_tier__a_bundle_answers_without_compiling(void **state) {
  struct tier *tier = *state;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  for (long number = 1; number <= 3; number++) {
    assert_status(KJIT_OK, cache_world_get(tier->world, number, 0, &origin, NULL), NULL);
    assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
  }
  assert_int_equal(0, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(3, cache_world_count(tier->world, COUNT_bundle_hits));
  assert_int_equal(0, cache_world_count(tier->world, COUNT_misses));
}

static void test_tier__a_bundle_answers_for_another_compiler(void **state) {
  struct tier *tier = *state;
  kjit_origin origin;
  tier->world->identity = "nvrtc-fake-2";
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 2, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
}

static void test_tier__a_bundle_answers_without_nvrtc_and_cache(void **state) {
  struct tier *tier = *state;
  kjit_origin origin;
  tier->world->identity = NULL;
  tier->world->options.cache_mode = KJIT_CACHE_OFF;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 3, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
  assert_status(KJIT_OK, cache_world_get(tier->world, 3, KJIT_BUILD_RESIDENT_ONLY, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_MEMORY, origin);
}

static void test_tier__no_compile_asks_bundles_too(void **state) {
  struct tier *tier = *state;
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 1, KJIT_BUILD_NO_COMPILE, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
}

static void test_tier__a_miss_names_kernel_architecture_and_remedy(void **state) {
  struct tier *tier = *state;
  kjit_error error = {0};
  tier->world->identity = NULL;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_ERR_NO_NVRTC, cache_world_get(tier->world, 4, 0, NULL, &error), &error);
  assert_contains(error.message, "kernel k for sm_80");
  assert_contains(error.message, "number 4");
  assert_contains(error.message, "kjit bundle create");
  assert_contains(error.message, "/nonexistent/libnvrtc.so");
}

static void test_tier__several_bundles_are_asked_in_order(void **state) {
  struct tier *tier = *state;
  struct sample empty;
  kjit_origin origin;
  sample_make(&empty, 4, NULL);
  const kjit_bundle_blob blob = {empty.data, empty.bytes};
  tier->world->options.bundle_blobs = &blob;
  tier->world->options.bundle_blob_count = 1;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
  builder_destroy(tier->world->builder);
  tier->world->builder = NULL;
  sample_end(&empty);
}

static void test_tier__a_damaged_kernel_is_compiled_instead(void **state) {
  struct tier *tier = *state;
  kjit_origin origin;
  int refused = 0;
  spoil(tier->path, 1);
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  for (long number = 1; number <= 3; number++) {
    assert_status(KJIT_OK, cache_world_get(tier->world, number, 0, &origin, NULL), NULL);
    refused += origin == KJIT_ORIGIN_BUILT;
  }
  assert_int_equal(1, refused);
  assert_int_equal(1, cache_world_count(tier->world, COUNT_rebuilt_entries));
}

static void test_tier__a_damaged_kernel_without_nvrtc_says_so(void **state) {
  struct tier *tier = *state;
  int refused = 0;
  spoil(tier->path, 1);
  tier->world->identity = NULL;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  for (long number = 1; number <= 3; number++) {
    kjit_error error = {0};
    if (cache_world_get(tier->world, number, 0, NULL, &error) == KJIT_OK) continue;
    refused++;
    assert_contains(error.message, "a bundle has it but is refused");
    assert_contains(error.message, "its digest differs");
  }
  assert_int_equal(1, refused);
}

static void test_tier__a_bundle_that_cannot_be_opened_fails_creation(void **state) {
  struct tier *tier = *state;
  kjit_error error = {0};
  tier->paths[0] = "/nonexistent/kernels.kjb";
  assert_status(KJIT_ERR_NOT_FOUND, cache_world_open(tier->world, &error), &error);
  assert_contains(error.message, "/nonexistent/kernels.kjb");
  tier->paths[0] = "/etc/hostname";
  error = (kjit_error){0};
  assert_status(KJIT_ERR_CORRUPT, cache_world_open(tier->world, &error), &error);
  tier->paths[0] = "";
  assert_status(KJIT_ERR_INVALID_ARG, cache_world_open(tier->world, NULL), NULL);
  tier->world->options.bundle_paths = NULL;
  assert_status(KJIT_ERR_INVALID_ARG, cache_world_open(tier->world, NULL), NULL);
}

static void test_tier__the_environment_names_bundles(void **state) {
  struct tier *tier = *state;
  char paths[3 * TEMP_PATH_BYTES];
  kjit_origin origin;
  tier->world->options.bundle_count = 0;
  tier->world->options.flags = 0;
  snprintf(paths, sizeof paths, ":/nonexistent/one.kjb:%s:", tier->path);
  setenv("KJIT_BUNDLE", paths, 1);
  const kjit_status status = cache_world_open(tier->world, NULL);
  unsetenv("KJIT_BUNDLE");
  assert_status(KJIT_OK, status, NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
  assert_int_equal(1, cache_world_count(tier->world, COUNT_cache_errors));
  assert_in_range(atomic_load(&tier->world->log_lines), 1, 10);
}

/* A second key, and the bundle signed by the first. */
struct signing {
  struct trust_key seed, key, other_seed, other_key;
  char hex[DIGEST_HEX_BYTES], other_hex[DIGEST_HEX_BYTES];
  const char *keys[1];
};

static void to_hex(const struct trust_key *key, char *hex) {
  struct digest digest;
  memcpy(digest.bytes, key->bytes, sizeof digest.bytes);
  digest_to_hex(&digest, hex);
}

static void sign_file(const char *path, const struct trust_key *seed) {
  uint8_t head[BUNDLE_HEAD_BYTES], signature[BUNDLE_SIGNATURE_BYTES];
  FILE *file = fopen(path, "r+b");
  assert_int_equal(fread(head, sizeof head, 1, file), 1);
  trust_sign(head, seed, signature);
  fseek(file, 0, SEEK_END);
  assert_int_equal(fwrite(signature, sizeof signature, 1, file), 1);
  fclose(file);
}

static void trust_one(struct tier *tier, struct signing *signing) {
  trust_generate(&signing->seed, &signing->key);
  trust_generate(&signing->other_seed, &signing->other_key);
  to_hex(&signing->key, signing->hex);
  to_hex(&signing->other_key, signing->other_hex);
  signing->keys[0] = signing->hex;
  tier->world->options.trusted_keys = signing->keys;
  tier->world->options.trusted_key_count = 1;
}

static void test_tier__with_trusted_keys_unsigned_fails_creation(void **state) {
  struct tier *tier = *state;
  struct signing signing;
  kjit_error error = {0};
  trust_one(tier, &signing);
  assert_status(KJIT_ERR_UNTRUSTED, cache_world_open(tier->world, &error), &error);
  assert_contains(error.message, "not signed");
}

static void test_tier__with_trusted_keys_signed_answers(void **state) {
  struct tier *tier = *state;
  struct signing signing;
  kjit_origin origin;
  trust_one(tier, &signing);
  sign_file(tier->path, &signing.seed);
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUNDLE, origin);
}

static void test_tier__with_trusted_keys_an_altered_kernel_fails_creation(void **state) {
  struct tier *tier = *state;
  struct signing signing;
  kjit_error error = {0};
  trust_one(tier, &signing);
  sign_file(tier->path, &signing.seed);
  spoil(tier->path, BUNDLE_SIGNATURE_BYTES + 1);
  assert_status(KJIT_ERR_UNTRUSTED, cache_world_open(tier->world, &error), &error);
}

static void test_tier__with_trusted_keys_the_environment_cannot_bring_others(void **state) {
  struct tier *tier = *state;
  struct signing signing;
  kjit_origin origin;
  trust_one(tier, &signing);
  tier->world->options.bundle_count = 0;
  tier->world->options.flags = 0;
  setenv("KJIT_BUNDLE", tier->path, 1);
  const kjit_status status = cache_world_open(tier->world, NULL);
  unsetenv("KJIT_BUNDLE");
  assert_status(KJIT_OK, status, NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin);
}

static void test_tier__a_bundle_is_imported(void **state) {
  struct tier *tier = *state;
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_origin origin;
  tier->world->options.bundle_count = 0;
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, builder_cache_import(tier->world->builder, tier->path, &report, NULL), NULL);
  assert_int_equal(3, report.entries);
  assert_status(KJIT_OK, cache_world_get(tier->world, 2, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
}

static void test_tier__with_trusted_keys_imports_must_be_signed(void **state) {
  struct tier *tier = *state;
  struct signing signing;
  kjit_error error = {0};
  char export[TEMP_PATH_BYTES];
  tier->world->options.bundle_count = 0;
  trust_one(tier, &signing);
  assert_status(KJIT_OK, cache_world_open(tier->world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(tier->world, 9, 0, NULL, NULL), NULL);
  temp_folder_path(&tier->world->folder, "entries.export", export);
  assert_status(KJIT_OK, builder_cache_export(tier->world->builder, export, NULL, NULL, NULL), NULL);
  assert_status(KJIT_ERR_UNTRUSTED, builder_cache_import(tier->world->builder, export, NULL, &error), &error);
  assert_contains(error.message, "not signed");
  assert_status(KJIT_ERR_UNTRUSTED, builder_cache_import(tier->world->builder, tier->path, NULL, &error), &error);
  sign_file(tier->path, &signing.seed);
  assert_status(KJIT_OK, builder_cache_import(tier->world->builder, tier->path, NULL, &error), &error);
}

#define TIER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TIER_TEST(test_tier__a_bundle_answers_without_compiling),
      TIER_TEST(test_tier__a_bundle_answers_for_another_compiler),
      TIER_TEST(test_tier__a_bundle_answers_without_nvrtc_and_cache),
      TIER_TEST(test_tier__no_compile_asks_bundles_too),
      TIER_TEST(test_tier__a_miss_names_kernel_architecture_and_remedy),
      TIER_TEST(test_tier__several_bundles_are_asked_in_order),
      TIER_TEST(test_tier__a_damaged_kernel_is_compiled_instead),
      TIER_TEST(test_tier__a_damaged_kernel_without_nvrtc_says_so),
      TIER_TEST(test_tier__a_bundle_that_cannot_be_opened_fails_creation),
      TIER_TEST(test_tier__the_environment_names_bundles),
      TIER_TEST(test_tier__with_trusted_keys_unsigned_fails_creation),
      TIER_TEST(test_tier__with_trusted_keys_signed_answers),
      TIER_TEST(test_tier__with_trusted_keys_an_altered_kernel_fails_creation),
      TIER_TEST(test_tier__with_trusted_keys_the_environment_cannot_bring_others),
      TIER_TEST(test_tier__a_bundle_is_imported),
      TIER_TEST(test_tier__with_trusted_keys_imports_must_be_signed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
