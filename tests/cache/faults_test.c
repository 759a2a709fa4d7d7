/* Every file call and every allocation of a scenario made to fail in turn: the right status, the right cubin, nothing
 * leaked, and a cache that works afterwards. */
#include "jit/admin/cache_admin.h"

#include "support/cache_world.h"
#include "support/faulty_ops.h"
#include <stdbool.h>

static struct faulty_ops faulty;
static struct failing_allocator failing;

static int setup(void **state) {
  if (cache_world_setup(state)) return -1;
  struct cache_world *world = *state;
  faulty_ops_init(&faulty);
  faulty.ops.sync = cache_world_no_sync; /* counted nowhere, so that it can be made to fail by kind only */
  world->parts.ops = &faulty.ops;
  world->parts.use_grain_s = -1;
  world->parts.wait_bound_ns = 10000000;
  world->options.cache_max_entries = 3;
  return 0;
}

static int keep_going(void *user, const kjit_cache_entry *entry) {
  (void)user, (void)entry;
  return 0;
}

/* A cold folder, hits from memory and disk, a failure, evictions, and a look at it all. `allowed` says which statuses a
 * request may end with. */
static void scenario(struct cache_world *world, bool (*allowed)(kjit_status status)) {
  kjit_cache_report report = {.struct_size = sizeof report};
  char pack[TEMP_PATH_BYTES];
  if (cache_world_open(world, NULL) != KJIT_OK) return;
  for (long number = 1; number <= 5; number++) {
    assert_true(allowed(cache_world_get(world, number, 0, NULL, NULL)));
    assert_true(allowed(cache_world_get(world, number, 0, NULL, NULL)));
  }
  atomic_store(&fake_nvrtc.reject, 1);
  const kjit_status rejected = cache_world_get(world, 99, 0, NULL, NULL);
  assert_true(rejected == KJIT_ERR_COMPILE || (allowed(rejected) && rejected != KJIT_OK));
  atomic_store(&fake_nvrtc.reject, 0);
  if (cache_world_open(world, NULL) != KJIT_OK) return;
  assert_true(allowed(cache_world_get(world, 5, 0, NULL, NULL)));
  temp_folder_path(&world->folder, "pack", pack);
  (void)!builder_cache_list(world->builder, keep_going, NULL, NULL);
  (void)!builder_cache_verify(world->builder, KJIT_CACHE_REPAIR, &report, NULL);
  (void)!builder_cache_export(world->builder, pack, NULL, &report, NULL);
  (void)!builder_cache_prune(world->builder, 1000, &report, NULL);
  (void)!builder_cache_import(world->builder, pack, &report, NULL);
  (void)!builder_cache_clear(world->builder, &report, NULL);
}

static void close_world(struct cache_world *world) {
  builder_destroy(world->builder);
  world->builder = NULL;
}

static void assert_works_now(struct cache_world *world) {
  kjit_origin origin;
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, NULL, NULL), NULL);
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  assert_status(KJIT_OK, cache_world_get(world, 1, 0, &origin, NULL), NULL);
  assert_int_equal(KJIT_ORIGIN_USER, origin);
  assert_status(KJIT_OK, builder_cache_clear(world->builder, NULL, NULL), NULL);
  close_world(world);
}

static bool only_ok(kjit_status status) {
  return status == KJIT_OK;
}

static void fail_each_call(struct cache_world *world, int code) {
  for (long at = 0;; at++) {
    atomic_store(&faulty.calls, 0);
    atomic_store(&faulty.fail_at, at);
    atomic_store(&faulty.code, code);
    scenario(world, only_ok);
    close_world(world);
    assert_int_equal(0, atomic_load(&faulty.open));
    const bool reached = atomic_load(&faulty.calls) > at;
    atomic_store(&faulty.fail_at, -1);
    assert_works_now(world);
    if (!reached) break;
  }
}

static void test_faults__each_file_call_failing_with_eio_is_survived(void **state) {
  fail_each_call(*state, EIO);
}

static void test_faults__each_file_call_failing_with_enospc_is_survived(void **state) {
  fail_each_call(*state, ENOSPC);
}

static void test_faults__each_file_call_failing_with_estale_is_survived(void **state) {
  fail_each_call(*state, ESTALE);
}

static void test_faults__each_file_call_failing_with_eacces_is_survived(void **state) {
  fail_each_call(*state, EACCES);
}

static bool ok_or_no_memory(kjit_status status) {
  return status == KJIT_OK || status == KJIT_ERR_NO_MEMORY;
}

/* `once`: that allocation alone, otherwise all from there on. */
static void fail_each_allocation(struct cache_world *world, int once) {
  const kjit_allocator hooks = failing_allocator_hooks(&failing);
  close_world(world); /* made by other hooks */
  for (long at = 0;; at++) {
    failing_allocator_reset(&failing, at);
    atomic_store(&failing.once, once);
    mem_init(&world->mem, &hooks);
    scenario(world, ok_or_no_memory);
    close_world(world);
    assert_int_equal(0, atomic_load(&failing.live));
    assert_int_equal(0, atomic_load(&faulty.open));
    const bool reached = atomic_load(&failing.calls) > at;
    mem_init(&world->mem, NULL);
    assert_works_now(world);
    if (!reached) break;
  }
}

static void test_faults__each_allocation_failing_is_reported(void **state) {
  fail_each_allocation(*state, 1);
}

static void test_faults__memory_running_out_for_good_is_reported(void **state) {
  fail_each_allocation(*state, 0);
}

#define FAULTS_TEST(test) cmocka_unit_test_setup_teardown(test, setup, cache_world_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      FAULTS_TEST(test_faults__each_file_call_failing_with_eio_is_survived),
      FAULTS_TEST(test_faults__each_file_call_failing_with_enospc_is_survived),
      FAULTS_TEST(test_faults__each_file_call_failing_with_estale_is_survived),
      FAULTS_TEST(test_faults__each_file_call_failing_with_eacces_is_survived),
      FAULTS_TEST(test_faults__each_allocation_failing_is_reported),
      FAULTS_TEST(test_faults__memory_running_out_for_good_is_reported),
  };
  return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
