#include "fixture.h"

static kjit_status enqueue_status;
static int enqueued;

static kjit_status enqueue(void *user, kjit_error *error) {
  (void)error;
  assert_ptr_equal(&enqueued, user);
  enqueued++;
  /* Between the two records: a time that includes nothing else. */
  assert_int_equal(1, fake_driver_calls_of(FAKE_EventRecord));
  return enqueue_status;
}

static kjit_status time_it(struct fixture *f, float *milliseconds) {
  enqueued = 0;
  memset(&f->error, 0, sizeof f->error);
  return runtime_time(f->runtime, NULL, enqueue, &enqueued, milliseconds, &f->error);
}

static int setup(void **state) {
  enqueue_status = KJIT_OK;
  return fixture_setup(state);
}

static void test_timing__gives_the_time_between_two_events(void **state) {
  struct fixture *f = *state;
  float milliseconds = 0;
  assert_status(KJIT_OK, time_it(f, &milliseconds), &f->error);
  assert_true(milliseconds > 1.4f && milliseconds < 1.6f);
  assert_int_equal(1, enqueued);
  assert_int_equal(2, fake_driver_calls_of(FAKE_EventDestroy));
}

static void test_timing__each_failing_call_leaves_no_event_and_no_time(void **state) {
  static const enum fake_call calls[] = {FAKE_StreamIsCapturing, FAKE_EventCreate, FAKE_EventRecord,
                                         FAKE_EventSynchronize, FAKE_EventElapsedTime};
  struct fixture *f = *state;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    float milliseconds = 7;
    fake_driver.fail_call = calls[i];
    assert_status(KJIT_ERR_DRIVER, time_it(f, &milliseconds), &f->error);
    assert_true(milliseconds == 0);
    assert_int_equal(0, atomic_load(&fake_driver.live));
    atomic_store(&fake_driver.calls_of[FAKE_EventRecord], 0);
  }
}

static void test_timing__failed_launch_is_the_result_and_leaves_no_event(void **state) {
  struct fixture *f = *state;
  float milliseconds = 7;
  enqueue_status = KJIT_ERR_INVALID_CONFIG;
  assert_status(KJIT_ERR_INVALID_CONFIG, time_it(f, &milliseconds), &f->error);
  assert_true(milliseconds == 0);
  assert_int_equal(0, atomic_load(&fake_driver.live));
}

static void test_timing__capturing_stream_is_refused_before_anything_is_enqueued(void **state) {
  struct fixture *f = *state;
  float milliseconds;
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  assert_status(KJIT_ERR_INVALID_ARG, time_it(f, &milliseconds), &f->error);
  assert_contains(f->error.message, "captured into a graph");
  assert_int_equal(0, enqueued);
  assert_int_equal(0, fake_driver_calls_of(FAKE_EventCreate));
}

/* What the driver answers for the legacy default stream while another stream is being captured. */
static void test_timing__default_stream_during_a_capture_is_refused(void **state) {
  struct fixture *f = *state;
  float milliseconds;
  fake_driver.fail_call = FAKE_StreamIsCapturing;
  fake_driver.failure = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  assert_status(KJIT_ERR_INVALID_ARG, time_it(f, &milliseconds), &f->error);
  assert_contains(f->error.message, "captured into a graph");
}

#define TIMING_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TIMING_TEST(test_timing__gives_the_time_between_two_events),
      TIMING_TEST(test_timing__each_failing_call_leaves_no_event_and_no_time),
      TIMING_TEST(test_timing__failed_launch_is_the_result_and_leaves_no_event),
      TIMING_TEST(test_timing__capturing_stream_is_refused_before_anything_is_enqueued),
      TIMING_TEST(test_timing__default_stream_during_a_capture_is_refused),
  };
  return cmocka_run_group_tests_name("timing", tests, NULL, NULL);
}
