#include "support/test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/threads/gate.h"

#define THREADS 8

struct fixture {
  struct gate_keeper keeper;
  struct gate gate;
  atomic_int inside, most_inside, worked;
  int attempts_that_fail;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  return f && gate_keeper_init(&f->keeper) ? 0 : -1;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  if (f) gate_keeper_finish(&f->keeper);
  free(f);
  return 0;
}

/* Work at the gate until it is open; count who is inside at once. */
static void *pass(void *user) {
  struct fixture *f = user;
  while (gate_enter(&f->keeper, &f->gate)) {
    const int inside = atomic_fetch_add(&f->inside, 1) + 1;
    if (inside > atomic_load(&f->most_inside)) atomic_store(&f->most_inside, inside);
    usleep(2000);
    const int worked = atomic_fetch_add(&f->worked, 1);
    atomic_fetch_sub(&f->inside, 1);
    gate_leave(&f->keeper, &f->gate, worked >= f->attempts_that_fail);
  }
  return NULL;
}

static void run_threads(struct fixture *f) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, pass, f));
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(0, pthread_join(threads[i], NULL));
}

static void test_gate__many_threads_one_works(void **state) {
  struct fixture *f = *state;
  run_threads(f);
  assert_int_equal(1, atomic_load(&f->worked));
  assert_true(gate_is_open(&f->gate));
}

static void test_gate__failed_work_passes_to_the_next_one_at_a_time(void **state) {
  struct fixture *f = *state;
  f->attempts_that_fail = 3;
  run_threads(f);
  assert_int_equal(4, atomic_load(&f->worked));
  assert_int_equal(1, atomic_load(&f->most_inside));
  assert_true(gate_is_open(&f->gate));
}

static void test_gate__open_one_asks_nobody(void **state) {
  struct fixture *f = *state;
  assert_true(gate_enter(&f->keeper, &f->gate));
  assert_false(gate_is_open(&f->gate));
  gate_leave(&f->keeper, &f->gate, 1);
  assert_false(gate_enter(&f->keeper, &f->gate));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_gate__many_threads_one_works, setup, teardown),
      cmocka_unit_test_setup_teardown(test_gate__failed_work_passes_to_the_next_one_at_a_time, setup, teardown),
      cmocka_unit_test_setup_teardown(test_gate__open_one_asks_nobody, setup, teardown),
  };
  return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
