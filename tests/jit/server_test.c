/* The compile server over a compiler that misbehaves: what it costs, how soon it ends, and that nothing stays behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server_world.h"

static void test_server__compiles_as_the_process_itself_does(void **state) {
  struct world *world = *state;
  kjit_artifact *there = NULL, *here = NULL;
  kjit_artifact_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
  assert_status(KJIT_OK, get(world, "one", 0, &there, &world->error), &world->error);
  builder_destroy(world->builder);
  world->builder = NULL;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  assert_status(KJIT_OK, get(world, "one", 0, &here, &world->error), &world->error);
  assert_status(KJIT_OK, kjit_artifact_get_info(there, &a, NULL), NULL);
  assert_status(KJIT_OK, kjit_artifact_get_info(here, &b, NULL), NULL);
  assert_int_equal(a.cubin_bytes, b.cubin_bytes);
  assert_memory_equal(a.cubin, b.cubin, a.cubin_bytes);
  assert_string_equal(a.key, b.key);
  kjit_artifact_release(there);
  kjit_artifact_release(here);
  assert_int_equal(0, atomic_load(&world->warnings));
}

static void test_server__crash_costs_one_kernel_and_says_so(void **state) {
  struct world *world = *state;
  assert_status(KJIT_ERR_COMPILE, get(world, "CRASH", 0, NULL, &world->error), &world->error);
  assert_contains(world->error.message, "kernel k for sm_80: the compiler crashed (SIGSEGV");
  assert_works(world, "after");
}

/* The fake nvJitLink stands beside the fake NVRTC. */
static void test_server__crash_of_the_linker_costs_one_kernel(void **state) {
  struct world *world = *state;
  world->option = "-dlto";
  assert_works(world, "before");
  assert_status(KJIT_ERR_COMPILE, get(world, "BADLINK", 0, NULL, &world->error), &world->error);
  assert_contains(world->error.message, "kernel k for sm_80: the compiler or the linker crashed (SIGSEGV");
  assert_works(world, "after");
}

static void test_server__last_words_are_in_error_and_log(void **state) {
  struct world *world = *state;
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  assert_status(KJIT_ERR_COMPILE, get(world, "ABORT", 0, &artifact, &world->error), &world->error);
  assert_contains(world->error.message, "SIGABRT");
  assert_contains(world->error.message, "the compiler's last words");
  assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, NULL), NULL);
  assert_contains(info.log, "first words");
  kjit_artifact_release(artifact);
}

static void test_server__exit_is_told_with_its_code(void **state) {
  struct world *world = *state;
  assert_status(KJIT_ERR_COMPILE, get(world, "LEAVE", 0, NULL, &world->error), &world->error);
  assert_contains(world->error.message, "ended its process with code 3");
  assert_works(world, "after");
}

static void test_server__memory_is_bounded(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)state;
  skip(); /* a sanitizer's own address space is beyond every bound */
#else
  struct world *world = *state;
  world->options.compile_memory_max_bytes = (uint64_t)512 << 20;
  assert_status(KJIT_ERR_NO_MEMORY, get(world, "EAT", 0, NULL, &world->error), &world->error);
  assert_contains(world->error.message, "memory bound of 512 MiB");
  assert_works(world, "after");
#endif
}

static int count_descriptors(void) {
  int open = 0;
  for (int file = 0; file < 1024; file++)
    open += fcntl(file, F_GETFD) >= 0;
  return open;
}

/* Processes whose parent this one is, by /proc; -1 where there is none. `last` (may be NULL) is one of them. */
static int count_children(pid_t *last) {
  char path[64], line[512];
  int children = 0;
  DIR *all = opendir("/proc");
  if (!all) return -1;
  for (const struct dirent *entry; (entry = readdir(all));) {
    snprintf(path, sizeof path, "/proc/%.16s/stat", entry->d_name);
    FILE *stat = *entry->d_name >= '0' && *entry->d_name <= '9' ? fopen(path, "r") : NULL;
    if (!stat) continue;
    const char *after = fgets(line, sizeof line, stat) ? strrchr(line, ')') : NULL;
    /* Behind the name in brackets: a blank, the state's letter, a blank, the parent. */
    const bool is_child = after && strlen(after) > 4 && strtol(after + 4, NULL, 10) == getpid();
    children += is_child;
    if (is_child && last) *last = (pid_t)strtol(entry->d_name, NULL, 10);
    fclose(stat);
  }
  closedir(all);
  return children;
}

static void test_server__hundred_compiles_leave_nothing_behind(void **state) {
  struct world *world = *state;
  char word[32];
  assert_works(world, "first");
  const int before = count_descriptors();
  for (int i = 0; i < 100; i++) {
    snprintf(word, sizeof word, "%s %d", i % 10 ? "number" : "CRASH", i);
    (void)get(world, word, 0, NULL, &world->error);
  }
  assert_int_equal(before, count_descriptors());
  if (count_children(NULL) >= 0) assert_int_equal(1, count_children(NULL)); /* the server */
  builder_destroy(world->builder);
  world->builder = NULL;
  assert_int_equal(-1, waitpid(-1, NULL, WNOHANG));
  assert_int_equal(ECHILD, errno);
}

static void refuse_worker(struct world *world, const char *path) {
  world->options.worker_path = path;
  assert_works(world, "one");
  assert_works(world, "two");
  assert_int_equal(1, atomic_load(&world->warnings)); /* said once */
  builder_destroy(world->builder);
  world->builder = NULL;
  assert_int_equal(-1, waitpid(-1, NULL, WNOHANG));
}

static void test_server__worker_that_is_missing_falls_back(void **state) {
  refuse_worker(*state, "/nonexistent/kjit-compile-worker");
}

static void test_server__worker_that_is_another_program_falls_back(void **state) {
  refuse_worker(*state, "/bin/false");
}

static void test_server__system_that_refuses_sockets_falls_back(void **state) {
  struct world *world = *state;
  struct rlimit before, none;
  assert_works(world, "first");
  assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &before));
  none = before;
  none.rlim_cur = 3;
  assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &none));
  const kjit_status status = get(world, "one", 0, NULL, &world->error);
  assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &before));
  assert_status(KJIT_OK, status, &world->error);
}

static void test_server__killed_server_is_replaced(void **state) {
  struct world *world = *state;
  pid_t server = 0;
  assert_works(world, "one");
  if (count_children(&server) < 0) skip();
  assert_int_equal(0, kill(server, SIGKILL));
  assert_works(world, "two");
  assert_int_equal(0, atomic_load(&world->warnings));
}

struct asker {
  struct world *world;
  int number;
  kjit_status status;
};

static void *ask(void *user) {
  struct asker *asker = user;
  char word[32];
  for (int i = 0; i < 10 && asker->status == KJIT_OK; i++) {
    snprintf(word, sizeof word, "asker %d, %d", asker->number, i);
    asker->status = get(asker->world, word, 0, NULL, NULL);
  }
  return NULL;
}

/* While threads compile, the program forks; each child compiles by a server of its own. */
static void test_server__program_with_threads_may_fork(void **state) {
  struct world *world = *state;
  struct asker askers[4];
  pthread_t threads[4];
  assert_works(world, "first");
  for (int i = 0; i < 4; i++) {
    askers[i] = (struct asker){world, i, KJIT_OK};
    assert_int_equal(0, pthread_create(&threads[i], NULL, ask, &askers[i]));
  }
  for (int i = 0; i < 5; i++) {
    const pid_t child = fork();
    if (child == 0) {
      const kjit_status status = get(world, "of the child", 0, NULL, NULL);
      builder_destroy(world->builder);
      _exit(status == KJIT_OK && waitpid(-1, NULL, WNOHANG) < 0 ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(child, waitpid(child, &how, 0));
    assert_int_equal(0, how);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_status(KJIT_OK, askers[i].status, NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SERVER_TEST(test_server__compiles_as_the_process_itself_does),
      SERVER_TEST(test_server__crash_costs_one_kernel_and_says_so),
      SERVER_TEST(test_server__crash_of_the_linker_costs_one_kernel),
      SERVER_TEST(test_server__last_words_are_in_error_and_log),
      SERVER_TEST(test_server__exit_is_told_with_its_code),
      SERVER_TEST(test_server__memory_is_bounded),
      SERVER_TEST(test_server__hundred_compiles_leave_nothing_behind),
      SERVER_TEST(test_server__worker_that_is_missing_falls_back),
      SERVER_TEST(test_server__worker_that_is_another_program_falls_back),
      SERVER_TEST(test_server__system_that_refuses_sockets_falls_back),
      SERVER_TEST(test_server__killed_server_is_replaced),
      SERVER_TEST(test_server__program_with_threads_may_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
