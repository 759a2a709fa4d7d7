/* The remote tier: hits, fill-back, faults, bounds and what may be written. */
#include "fleet.h"

static void test_remote__built_on_one_machine_is_a_hit_on_the_next(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  next_machine(fleet);
  assert_int_equal(1, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(1, atomic_load(&fleet->stores[0].closed));
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_hits));
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_remote__hit_is_filled_back_into_the_folder(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  get(fleet, 1);
  const long gets = atomic_load(&fleet->stores[0].gets);
  assert_status(KJIT_OK, cache_world_open(fleet->world, NULL), NULL); /* a new process of the same machine */
  assert_int_equal(KJIT_ORIGIN_USER, get(fleet, 1));
  assert_int_equal(gets, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__farther_hit_is_filled_back_into_the_nearer_store(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = &fleet->tables[1];
  next_machine(fleet);
  get(fleet, 1);
  fleet->world->options.remote_stores = fleet->tables;
  fleet->world->options.remote_store_count = 2;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  fleet->world->options.remote_store_count = 1;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
}

static void test_remote__failures_open_the_circuit(void **state) {
  struct fleet *fleet = *state;
  atomic_store(&fleet->stores[0].fails, 1);
  next_machine(fleet);
  for (long number = 1; number <= 10; number++)
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, number));
  const long calls = atomic_load(&fleet->stores[0].gets) + atomic_load(&fleet->stores[0].puts);
  assert_in_range(calls, 3, 5); /* a put and a get may be under way when the circuit opens */
  assert_int_equal((uint64_t)calls, count(fleet, COUNT_remote_errors));
}

static void say_why(void *user, char *text, size_t bytes) {
  (void)user;
  snprintf(text, bytes, "the disk is full");
}

/* The line with which a store is left alone, of a log that many threads write. */
struct left_alone {
  pthread_mutex_t mutex;
  char line[256];
};

static void find_line(void *user, kjit_log_level level, const char *line) {
  struct left_alone *const found = user;
  (void)level;
  if (!strstr(line, "left alone")) return;
  pthread_mutex_lock(&found->mutex);
  snprintf(found->line, sizeof found->line, "%s", line);
  pthread_mutex_unlock(&found->mutex);
}

static void test_remote__store_that_is_left_alone_is_logged_with_the_cause(void **state) {
  struct fleet *fleet = *state;
  struct left_alone found = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  static const char *const wanted[] = {"remote: memory failed 3 times in a row: it is left alone and tried every 10 s",
                                       "remote: memory failed 3 times in a row, the last time because the disk is "
                                       "full: it is left alone and tried every "
                                       "10 s"};
  atomic_store(&fleet->stores[0].fails, 1);
  for (size_t i = 0; i < 2; i++) {
    fleet->tables[0].why = i ? say_why : NULL;
    fleet->world->log = (struct log){find_line, &found, KJIT_LOG_WARNING};
    next_machine(fleet);
    for (long number = 1; number <= 10; number++)
      get(fleet, number);
    builder_destroy(fleet->world->builder); /* waits for the thread that writes */
    fleet->world->builder = NULL;
    assert_string_equal(wanted[i], found.line);
  }
}

static void test_remote__gigabyte_of_nothing_is_refused(void **state) {
  struct fleet *fleet = *state;
  atomic_store(&fleet->stores[0].lies, 1);
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
  assert_int_equal(0, count(fleet, COUNT_remote_errors));
}

static void test_remote__flipped_and_cut_entries_are_refused_and_replaced(void **state) {
  struct fleet *fleet = *state;
  struct object *object = &fleet->stores[0].objects[0];
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  const size_t bytes = object->bytes;
  for (size_t at = 0; at < bytes; at += 97) {
    object->data[at] ^= 0x10;
    next_machine(fleet);
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
    assert_int_equal(1, count(fleet, COUNT_remote_refused));
    next_machine(fleet); /* what was refused has been replaced */
    assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  }
  next_machine(fleet);
  for (size_t cut = 0; cut < bytes; cut += 61) {
    object->bytes = cut;
    next_machine(fleet);
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
    next_machine(fleet);
    assert_int_equal(bytes, object->bytes);
  }
}

static void test_remote__entry_of_another_key_is_refused(void **state) {
  struct fleet *fleet = *state;
  struct entry_name one;
  next_machine(fleet);
  get(fleet, 1);
  get(fleet, 2);
  next_machine(fleet);
  struct object *objects = fleet->stores[0].objects;
  cache_world_name(fleet->world, 1, &one);
  struct object *first = find(&fleet->stores[0], entry_name_key(&one));
  struct object *second = first == objects ? objects + 1 : objects;
  store_set(&fleet->stores[0], first->name, second->data, second->bytes);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
}

static void test_remote__push_and_check_compare_the_folder_with_the_store(void **state) {
  struct fleet *fleet = *state;
  kjit_remote_report report = {.struct_size = sizeof report};
  fleet->tables[0].flags = KJIT_REMOTE_READ_ONLY;
  next_machine(fleet);
  for (long number = 1; number <= 3; number++)
    get(fleet, number);
  fleet->tables[0].flags = 0;
  assert_status(KJIT_OK, cache_world_open(fleet->world, NULL), NULL);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(3, report.missing);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 1, &report, NULL), NULL);
  assert_int_equal(3, report.written);
  fleet->stores[0].objects[0].data[200] ^= 1;
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(2, report.present);
  assert_int_equal(1, report.refused);
  atomic_store(&fleet->stores[0].fails, 1);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(3, report.failed);
}

static void test_remote__read_only_store_is_never_written(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].flags = KJIT_REMOTE_READ_ONLY;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  assert_int_equal(0, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(1, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__write_only_store_is_never_read(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].flags = KJIT_REMOTE_WRITE_ONLY;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  assert_int_equal(1, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(0, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__end_waits_no_longer_than_it_says(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_end_ms = 50;
  next_machine(fleet);
  fleet->stores[0].sleep_ms = 100;
  atomic_store(&fleet->stores[0].paused, 1); /* so that all ten are in line, however long the calls take */
  for (long number = 1; number <= 10; number++)
    get(fleet, number);
  atomic_store(&fleet->stores[0].paused, 0);
  builder_destroy(fleet->world->builder);
  fleet->world->builder = NULL;
  assert_true(atomic_load(&fleet->stores[0].puts) < 10);
}

static void test_remote__bad_urls_are_left_out(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = NULL;
  fleet->world->options.remote_store_count = 0;
  fleet->world->options.cache_remote =
      "ftp://x,http://h/|sometimes,redis://,redis://h:123456,s3://,http://h|total_ms=0,crsh:relative,crsh:,"
      "ccache+://x,ccache+UP://x,ccache+https:x,ccache+x://y|@,ccache+x://y|@1|@2|@3|@4|@5|@6|@7|@8|@9|@10|@11|@12|@13|"
      "@14|@15|@16|@17";
  next_machine(fleet);
  assert_null(remote_of(fleet));
  assert_int_equal(13, count(fleet, COUNT_remote_errors));
}

static void test_remote__title_has_no_password(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = NULL;
  fleet->world->options.remote_store_count = 0;
  fleet->world->options.cache_remote = "redis://u:se@cret@localhost:1/2";
  next_machine(fleet);
  const struct remote *remote = remote_of(fleet);
  assert_non_null(remote);
  assert_string_equal("redis://localhost:1/2", remote ? remote->tiers[0].title : NULL);
}

static void test_remote__resident_only_asks_no_store(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  get(fleet, 1);
  const long gets = atomic_load(&fleet->stores[0].gets);
  assert_status(KJIT_OK, cache_world_get(fleet->world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  assert_status(KJIT_ERR_NOT_RESIDENT, cache_world_get(fleet->world, 2, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  assert_int_equal(gets, atomic_load(&fleet->stores[0].gets));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(built_on_one_machine_is_a_hit_on_the_next),
      CASE(hit_is_filled_back_into_the_folder),
      CASE(farther_hit_is_filled_back_into_the_nearer_store),
      CASE(failures_open_the_circuit),
      CASE(store_that_is_left_alone_is_logged_with_the_cause),
      CASE(gigabyte_of_nothing_is_refused),
      CASE(flipped_and_cut_entries_are_refused_and_replaced),
      CASE(entry_of_another_key_is_refused),
      CASE(push_and_check_compare_the_folder_with_the_store),
      CASE(read_only_store_is_never_written),
      CASE(write_only_store_is_never_read),
      CASE(end_waits_no_longer_than_it_says),
      CASE(bad_urls_are_left_out),
      CASE(title_has_no_password),
      CASE(resident_only_asks_no_store),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
