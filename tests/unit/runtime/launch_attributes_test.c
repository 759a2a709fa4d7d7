/* What a launch says beside its shape, and what is asked of the driver about a kernel. */
#include "launching.h"
#include "runtime/runtime_internal.h"

static void test_launch_attributes__clusters_beyond_eight_are_allowed_once(void **state) {
  struct fixture *f = *state;
  const kjit_launch shape = {.struct_size = sizeof shape, .grid = {32, 1, 1}, .cluster = {16, 1, 1}};
  for (int i = 0; i < 3; i++)
    assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_int_equal(16, fake_driver.launch.cluster[0]);
  assert_int_equal(1, atomic_load(&fake_driver.device[0].large_clusters));
}

static const CUlaunchAttribute *attribute(CUlaunchAttributeID id) {
  for (unsigned int i = 0; i < fake_driver.launch.attribute_count; i++)
    if (fake_driver.launch.attributes[i].id == id) return &fake_driver.launch.attributes[i];
  fail_msg("no attribute %d", (int)id);
  return NULL;
}

static void test_launch_attributes__attributes_reach_the_driver(void **state) {
  struct fixture *f = *state;
  CUlaunchAttribute own = {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW};
  own.value.accessPolicyWindow.num_bytes = 77;
  kjit_launch shape = kjit_launch_default();
  shape.flags = KJIT_LAUNCH_COOPERATIVE | KJIT_LAUNCH_PROGRAMMATIC | KJIT_LAUNCH_PRIORITY | KJIT_LAUNCH_CARVEOUT;
  shape.priority = -3;
  shape.shared_carveout = 60;
  shape.cluster_policy = KJIT_CLUSTER_POLICY_LOAD_BALANCING;
  shape.sync_domain = KJIT_SYNC_DOMAIN_REMOTE;
  shape.attributes = &own;
  shape.attribute_count = 1;
  assert_status(KJIT_OK, launch(f, &shape), &f->error);
  assert_int_equal(7, fake_driver.launch.attribute_count);
  assert_int_equal(1, attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE)->value.cooperative);
  assert_int_equal(
      1,
      attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)->value.programmaticStreamSerializationAllowed);
  assert_int_equal(-3, attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY)->value.priority);
  assert_int_equal(60, attribute(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)->value.sharedMemCarveout);
  assert_int_equal(
      CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING,
      attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)->value.clusterSchedulingPolicyPreference);
  assert_int_equal(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
                   attribute(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)->value.memSyncDomain);
  assert_int_equal(77, attribute(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)->value.accessPolicyWindow.num_bytes);
}

static void test_launch_attributes__bad_attributes_are_named(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = kjit_launch_default();
  shape.flags = 0x100;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.flags: 0x100");
  shape = kjit_launch_default();
  shape.shared_carveout = 101;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.shared_carveout: 101");
  shape = kjit_launch_default();
  shape.cluster_policy = 3;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.cluster_policy: 3");
  shape = kjit_launch_default();
  shape.sync_domain = 3;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.sync_domain: 3");
  shape = kjit_launch_default();
  shape.attribute_count = 1;
  assert_refused(f, &shape, KJIT_ERR_INVALID_ARG, "launch.attributes: must not be NULL");
  shape = kjit_launch_default();
  shape.flags = KJIT_LAUNCH_PROGRAMMATIC;
  fake_driver_set_current(1);
  assert_refused(f, &shape, KJIT_ERR_UNSUPPORTED,
                 "launch.flags: device 1 (sm_80) has no programmatic dependent launches");
}

static void test_launch_attributes__occupancy_is_the_drivers(void **state) {
  struct fixture *f = *state;
  kjit_launch shape = {.struct_size = sizeof shape, .grid = {8, 1, 1}, .block = {256}};
  kjit_occupancy occupancy = {.struct_size = sizeof occupancy};
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_get_occupancy(kernel, &shape, &occupancy, &f->error), &f->error);
  assert_int_equal(8, occupancy.blocks);
  assert_int_equal(0, occupancy.clusters);
  assert_int_equal(512, occupancy.block_threads);
  assert_int_equal(264, occupancy.grid_blocks);
  shape.cluster[0] = 2;
  assert_status(KJIT_OK, kjit_kernel_get_occupancy(kernel, &shape, &occupancy, &f->error), &f->error);
  assert_int_equal(33, occupancy.clusters);
}

static void test_launch_attributes__handles_are_the_drivers(void **state) {
  struct fixture *f = *state;
  kjit_kernel_handles handles = {.struct_size = sizeof handles};
  const kjit_launch shape = kjit_launch_default();
  kjit_kernel *const kernel = kernel_of(f);
  assert_status(KJIT_OK, kjit_kernel_get_handles(kernel, &handles, &f->error), &f->error);
  assert_non_null(handles.library);
  assert_non_null(handles.function);
  assert_non_null(handles.module);
  assert_status(KJIT_OK, kjit_kernel_launch(kernel, &shape, &arg, 1, NULL, &f->error), &f->error);
  assert_ptr_equal(handles.kernel, fake_driver.launch.function);
}

static void test_launch_attributes__a_dependent_is_programmatic(void **state) {
  struct fixture *f = *state;
  const kjit_kernel *const kernel = kernel_of(f);
  const uint32_t grid[3] = {7, 1, 1}, block[3] = {32, 1, 1};
  assert_status(KJIT_OK, runtime_kernel_enqueue_behind(kernel, grid, block, 16, &args, true, NULL, &f->error),
                &f->error);
  assert_int_equal(7, fake_driver.launch.grid[0]);
  assert_int_equal(16, fake_driver.launch.shared_bytes);
  assert_int_equal(1, fake_driver.launch.attribute_count);
  assert_int_equal(
      1,
      attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)->value.programmaticStreamSerializationAllowed);
}

static void test_launch_attributes__dependents_need_hopper_and_a_driver_that_captures_them(void **state) {
  (void)state;
  assert_true(runtime_has_dependents(&(kjit_device_info){.arch = "sm_90", .driver_version = 13000}));
  assert_true(runtime_has_dependents(&(kjit_device_info){.arch = "sm_120", .driver_version = 12080}));
  assert_false(runtime_has_dependents(&(kjit_device_info){.arch = "sm_89", .driver_version = 13000}));
  assert_false(runtime_has_dependents(&(kjit_device_info){.arch = "sm_90", .driver_version = 12020}));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_launch_attributes__clusters_beyond_eight_are_allowed_once),
      FIXTURE_TEST(test_launch_attributes__attributes_reach_the_driver),
      FIXTURE_TEST(test_launch_attributes__bad_attributes_are_named),
      FIXTURE_TEST(test_launch_attributes__occupancy_is_the_drivers),
      FIXTURE_TEST(test_launch_attributes__handles_are_the_drivers),
      FIXTURE_TEST(test_launch_attributes__a_dependent_is_programmatic),
      FIXTURE_TEST(test_launch_attributes__dependents_need_hopper_and_a_driver_that_captures_them),
  };
  return cmocka_run_group_tests_name("launch_attributes", tests, NULL, NULL);
}
