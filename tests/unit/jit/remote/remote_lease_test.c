/* One builder in the fleet: leases, and the bound on waiting for one. */
#include "fleet.h"

static void test_remote__lease_is_taken_and_given_back(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].remove = memory_remove;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_leases));
  atomic_store(&fake_nvrtc.reject, 1);
  assert_status(KJIT_ERR_COMPILE, cache_world_get(fleet->world, 2, 0, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.reject, 0);
  next_machine(fleet);
  assert_int_equal(2, atomic_load(&fleet->stores[0].removals));
  assert_int_equal(0, count_leases(&fleet->stores[0]));
}

/* Asked for the second time, because the wait is counted after the first. */
static void *give_lease_back(void *user) {
  struct fleet *fleet = user;
  while (atomic_load(&fleet->stores[0].leases) < 2)
    usleep(1000);
  pthread_mutex_lock(&fleet->stores[0].mutex);
  store_set(&fleet->stores[0], fleet->stores[1].objects[0].name, fleet->stores[1].objects[0].data,
            fleet->stores[1].objects[0].bytes);
  pthread_mutex_unlock(&fleet->stores[0].mutex);
  atomic_store(&fleet->stores[0].held, 0);
  return NULL;
}

static void test_remote__who_lacks_the_lease_waits_for_the_entry(void **state) {
  struct fleet *fleet = *state;
  pthread_t thread;
  fleet->tables[0].remove = memory_remove;
  fleet->world->options.remote_stores = &fleet->tables[1]; /* the entry, made aside */
  next_machine(fleet);
  get(fleet, 1);
  fleet->world->options.remote_stores = fleet->tables;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
  assert_int_equal(0, pthread_create(&thread, NULL, give_lease_back, fleet));
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  pthread_join(thread, NULL);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(1, count(fleet, COUNT_remote_waits));
}

static void test_remote__wait_for_a_lease_ends_at_the_deadline(void **state) {
  struct fleet *fleet = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  fleet->tables[0].remove = memory_remove;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
  cache_request_make(&made, 1);
  made.request.timeout_ms = 100;
  assert_status(KJIT_ERR_TIMEOUT, builder_get(fleet->world->builder, &made.request, &artifact, NULL), NULL);
  assert_null(artifact);
}

static _Atomic int64_t hurried_ns; /* how far the clock below is ahead; the thread that writes looks at it too */

static int64_t hurried_monotonic_ns(void *user) {
  (void)user;
  return file_ops_system()->monotonic_ns(NULL) + hurried_ns;
}

static void hurried_sleep_ns(void *user, int64_t ns) {
  (void)user;
  hurried_ns += ns;
}

/* Every lease is held, and sleeping only sets the clock. */
static void hold_every_lease(struct fleet *fleet, struct file_ops *ops) {
  *ops = *file_ops_system();
  ops->monotonic_ns = hurried_monotonic_ns;
  ops->sleep_ns = hurried_sleep_ns;
  hurried_ns = 0;
  fleet->world->parts.ops = ops;
  fleet->tables[0].remove = memory_remove;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
}

static void let_go(struct fleet *fleet) {
  fleet->world->parts.ops = NULL;
  builder_destroy(fleet->world->builder);
  fleet->world->builder = NULL;
}

static void test_remote__lease_that_is_never_given_back_costs_its_bound(void **state) {
  struct fleet *fleet = *state;
  struct file_ops ops;
  hold_every_lease(fleet, &ops);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  /* What the calls themselves took counts too, and may be seconds on a busy machine. */
  assert_in_range(hurried_ns / 1000000000, REMOTE_LEASE_S / 2, REMOTE_LEASE_S + 1);
  let_go(fleet);
}

static void test_remote__store_that_holds_every_lease_costs_one_wait(void **state) {
  struct fleet *fleet = *state;
  struct file_ops ops;
  hold_every_lease(fleet, &ops);
  for (long number = 1; number <= 5; number++)
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, number));
  /* What the calls themselves took counts too, and may be seconds on a busy machine. */
  assert_in_range(hurried_ns / 1000000000, REMOTE_LEASE_S / 2, REMOTE_LEASE_S + 1);
  assert_int_equal(1, count(fleet, COUNT_remote_waits));
  hurried_ns += REMOTE_LEASE_PAUSE_S * (int64_t)1000000000;
  const long leases = atomic_load(&fleet->stores[0].leases);
  get(fleet, 6);
  assert_true(atomic_load(&fleet->stores[0].leases) > leases);
  let_go(fleet);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(lease_is_taken_and_given_back),
      CASE(who_lacks_the_lease_waits_for_the_entry),
      CASE(wait_for_a_lease_ends_at_the_deadline),
      CASE(lease_that_is_never_given_back_costs_its_bound),
      CASE(store_that_holds_every_lease_costs_one_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
