/* Tickets: which launches get which, and what becomes of their memory. */
#include "unit/attention/attention_fixture.h"

#include <stdbool.h>

static void test_sm90_tickets__each_stream_has_tickets_of_its_own(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  int *tickets[3];
  for (uintptr_t i = 0; i < 3; i++) {
    forward(f, &args, STREAM(1 + i));
    tickets[i] = launched()->tickets;
    assert_non_null(tickets[i]);
    assert_int_equal(tickets[i][0], 0);
    assert_int_equal(tickets[i][1], 0);
  }
  assert_int_equal(tickets[1] - tickets[0], 2);
  assert_int_equal(tickets[2] - tickets[1], 2);
  forward(f, &args, STREAM(1));
  assert_ptr_equal(launched()->tickets, tickets[0]);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 1);
  assert_int_equal(fake_driver_calls_of(FAKE_MemsetD32Async), 3);
}

static void test_sm90_tickets__each_context_has_memory_of_its_own(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  forward(f, &args, STREAM(1));
  const int *first = launched()->tickets;
  fake_driver.context_id = 2;
  forward(f, &args, STREAM(1));
  assert_ptr_not_equal(launched()->tickets, first);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 2);
}

static void test_sm90_tickets__memory_of_an_ended_context_is_left_alone(void **state) {
  struct fixture *f = *state;
  const kjit_attention_args args = causal_args();
  forward(f, &args, STREAM(1));
  int *memory = launched()->tickets;
  fake_driver.buffer_id = 2; /* somebody else's memory is there now */
  fixture_close(f);
  assert_int_equal(fake_driver_calls_of(FAKE_MemFree), 0);
  free(memory);
  atomic_fetch_sub(&fake_driver.live, 1);
}

static void test_sm90_tickets__no_tickets_without_need(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = grouped_args(0, 6, 2, 0);
  forward(f, &args, STREAM(1)); /* full attention */
  assert_null(launched()->tickets);
  args = grouped_args(0, 1, 1, KJIT_ATTENTION_CAUSAL);
  args.q.shape[1] = args.k.shape[1] = args.v.shape[1] = args.o.shape[1] = 64;
  forward(f, &args, STREAM(1)); /* a tile for each multiprocessor */
  assert_null(launched()->tickets);
  assert_int_equal(fake_driver.launch.grid[0], 2);
  args = causal_args();
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  forward(f, &args, STREAM(1));
  assert_null(launched()->tickets);
  assert_int_equal(fake_driver_calls_of(FAKE_MemAlloc), 0);
}

static void test_sm90_tickets__tickets_that_fail_are_done_without(void **state) {
  static const enum fake_call calls[] = {FAKE_MemAlloc, FAKE_MemsetD32Async, FAKE_StreamGetId, FAKE_CtxGetId,
                                         FAKE_StreamIsCapturing};
  const kjit_attention_args args = causal_args();
  bool ready = true;
  for (size_t i = 0; ready && i < sizeof calls / sizeof *calls; i++) {
    struct fixture *f = *state;
    fake_driver.fail_call = calls[i];
    for (int n = 0; n < 2; n++)
      forward(f, &args, STREAM(1));
    assert_null(launched()->tickets);
    assert_true(i != 0 || fake_driver_calls_of(FAKE_MemAlloc) == 1); /* the driver is not asked again */
    ready = !fixture_teardown(state) && !setup(state);
  }
  assert_true(ready);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ATTENTION_TEST(test_sm90_tickets__each_stream_has_tickets_of_its_own),
      ATTENTION_TEST(test_sm90_tickets__each_context_has_memory_of_its_own),
      ATTENTION_TEST(test_sm90_tickets__memory_of_an_ended_context_is_left_alone),
      ATTENTION_TEST(test_sm90_tickets__no_tickets_without_need),
      ATTENTION_TEST(test_sm90_tickets__tickets_that_fail_are_done_without),
  };
  return cmocka_run_group_tests_name("sm90_tickets", tests, NULL, NULL);
}
