/* One builder and every call on it at once, from many threads: for ThreadSanitizer, and for the answers. */
#include <pthread.h>
#include <stdbool.h>

#include "jit/admin/cache_admin.h"
#include "support/cache_world.h"

#define KEYS   24
#define ROUNDS 200

struct worker {
  struct cache_world *world;
  const char *(*work)(struct cache_world *world, long round); /* what went wrong; NULL: nothing */
  const char *wrong;
};

/* Asks in turn, some of them only of memory or of the tiers. */
static const char *ask(struct cache_world *world, long round) {
  static const uint32_t flags[] = {0, KJIT_BUILD_RESIDENT_ONLY, 0, KJIT_BUILD_NO_COMPILE};
  const uint32_t flag = flags[round % 4];
  const kjit_status status = cache_world_get(world, round * 7 % KEYS, flag, NULL, NULL);
  if (status == KJIT_OK || (flag == KJIT_BUILD_RESIDENT_ONLY && status == KJIT_ERR_NOT_RESIDENT)) return NULL;
  return flag == KJIT_BUILD_NO_COMPILE && status == KJIT_ERR_NOT_FOUND ? NULL : "asking";
}

static const char *refuse(struct cache_world *world, long round) {
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  cache_request_make(&made, round * 5 % KEYS);
  if (builder_get(world->builder, &made.request, &artifact, NULL) != KJIT_OK) return "asking for what is refused";
  if (round % 8 == 0) builder_forget(world->builder, artifact);
  const bool right = cache_world_right(&made, artifact);
  kjit_artifact_release(artifact);
  return right ? NULL : "a held kernel changed";
}

static int see(void *user, const kjit_cache_entry *entry) {
  *(bool *)user |= entry->status != KJIT_OK;
  return 0;
}

static int see_difference(void *user, const kjit_cache_difference *difference) {
  (void)user;
  return !difference->field[0];
}

static const char *look(struct cache_world *world, long round) {
  struct entry_name name;
  char nearest[65];
  bool damaged = false;
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  kjit_runtime_stats own = {.struct_size = sizeof own};
  builder_add_stats(world->builder, &own);
  if (builder_cache_get_stats(world->builder, &stats, NULL) != KJIT_OK) return "stats";
  if (!builder_cache_path(world->builder)) return "path";
  cache_world_name(world, round % KEYS, &name);
  kjit_status status = builder_cache_show(world->builder, entry_name_key(&name), see, &damaged, NULL);
  if (status != KJIT_OK && status != KJIT_ERR_NOT_FOUND) return "show";
  if (round % 8) return damaged ? "show found damage" : NULL;
  if (builder_cache_list(world->builder, see, &damaged, NULL) != KJIT_OK || damaged) return "list";
  status = builder_cache_why(world->builder, entry_name_key(&name), nearest, see_difference, NULL, NULL);
  return status == KJIT_OK || status == KJIT_ERR_NOT_FOUND ? NULL : "why";
}

static const char *maintain(struct cache_world *world, long round) {
  char path[TEMP_PATH_BYTES];
  kjit_cache_report report = {.struct_size = sizeof report};
  if (round % 10) return NULL;
  temp_folder_path(&world->folder, "export", path);
  if (builder_cache_export(world->builder, path, NULL, &report, NULL) != KJIT_OK || report.damaged) return "export";
  if (builder_cache_verify(world->builder, KJIT_CACHE_REPAIR, &report, NULL) != KJIT_OK || report.damaged)
    return "verify";
  if (builder_cache_prune(world->builder, 5000, &report, NULL) != KJIT_OK) return "prune";
  if (round % 40 == 0 && builder_cache_clear(world->builder, &report, NULL) != KJIT_OK) return "clear";
  return builder_cache_import(world->builder, path, &report, NULL) == KJIT_OK ? NULL : "import";
}

static void *run(void *user) {
  struct worker *worker = user;
  for (long round = 0; round < ROUNDS && !worker->wrong; round++)
    worker->wrong = worker->work(worker->world, round);
  return NULL;
}

static void test_threads__every_call_at_once_is_answered(void **state) {
  static const char *(*const works[])(struct cache_world *, long) = {ask,    ask,  ask,  refuse,
                                                                     refuse, look, look, maintain};
  enum { WORKERS = sizeof works / sizeof *works };
  struct cache_world *world = *state;
  struct worker workers[WORKERS];
  pthread_t threads[WORKERS];
  world->options.memory_max_entries = KEYS / 2; /* the table lets go all the time */
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
  for (size_t i = 0; i < WORKERS; i++) {
    workers[i] = (struct worker){world, works[i], NULL};
    assert_int_equal(0, pthread_create(&threads[i], NULL, run, &workers[i]));
  }
  for (size_t i = 0; i < WORKERS; i++)
    pthread_join(threads[i], NULL);
  for (size_t i = 0; i < WORKERS; i++)
    if (workers[i].wrong) fail_msg("%s", workers[i].wrong);
  assert_int_equal(0, cache_world_count(world, COUNT_cache_errors));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_threads__every_call_at_once_is_answered, cache_world_setup_fast,
                                      cache_world_teardown),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
