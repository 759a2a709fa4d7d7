/* Deadlines and cancelling, in each phase that a call may be in: who waits is let go in time, and what was begun is not
 * lost. The fake compiler's words are explained in support/fake_nvrtc_library.c. */
#include <kjit/kjit.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server_world.h"
#include "support/faulty_ops.h"

/* A compiler that hangs never ends by itself, so that a cancelled call ends at all is what matters, however late. */
#define LATE_MS 10000

static kjit_runtime_stats stats_of(const struct world *world) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  builder_add_stats(world->builder, &stats);
  return stats;
}

/* Milliseconds until a call with 100 ms returns. */
static double time_to_give_up(struct world *world, const char *word) {
  const double start = now_ms();
  const kjit_status status = get(world, word, 100, NULL, &world->error);
  const double ms = now_ms() - start;
  assert_status(KJIT_ERR_TIMEOUT, status, &world->error);
  assert_contains(world->error.message, "after 100 ms");
  assert_true(ms >= 100 - 1);
  return ms;
}

static void test_deadline__holds_in_a_compiler_that_hangs(void **state) {
  struct world *world = *state;
  assert_works(world, "before");
  assert_true(time_to_give_up(world, "HANG") < 100 + 50 + SLACK_MS);
  assert_works(world, "after");
}

/* The compile goes on: the next call gets it, and it was compiled once. */
static void test_background__deadline_holds_and_the_next_call_gets_the_kernel(void **state) {
  struct world *world = *state;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  const double start = now_ms();
  assert_true(time_to_give_up(world, "SLOW") < 100 + 50 + SLACK_MS);
  assert_works(world, "SLOW");
  const double ms = now_ms() - start;
  assert_true(ms > 950 && ms < 1000 + SLACK_MS * 2);
}

/* The test can fail: this is how long a call took before, and still takes without a deadline. */
static void test_background__without_a_deadline_the_call_compiles_to_the_end(void **state) {
  struct world *world = *state;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  const double start = now_ms();
  assert_works(world, "SLOW");
  assert_true(now_ms() - start > 950);
}

static void test_background__builder_ends_while_a_compile_goes_on(void **state) {
  struct world *world = *state;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  (void)time_to_give_up(world, "SLOW");
  builder_destroy(world->builder); /* waits for the thread: the sanitizers see what it would touch */
  world->builder = NULL;
}

static void test_deadline__with_a_server_repeated_calls_get_the_kernel_in_the_end(void **state) {
  struct world *world = *state;
  const double start = now_ms();
  kjit_status status = KJIT_ERR_TIMEOUT;
  for (int i = 0; i < 40 && status == KJIT_ERR_TIMEOUT; i++) {
    memset(&world->error, 0, sizeof world->error);
    status = get(world, "SLOW", 100, NULL, &world->error);
  }
  assert_status(KJIT_OK, status, &world->error);
  assert_true(now_ms() - start > 950);
  assert_int_equal(1, stats_of(world).builds);
}

/* Asked every few milliseconds, from the first request's beginning on. */
static double stop_from_ms;

static int stop_at_its_time(void *user) {
  (void)user;
  return now_ms() >= stop_from_ms;
}

/* Looks for a minute, because the machine may be busy; what is waited for comes at once where it is not. */
#define LOOKS   12000
#define LOOK_US 5000

static void wait_for_failures(const struct world *world, uint64_t count) {
  for (int i = 0; i < LOOKS && stats_of(world).build_failures < count; i++)
    (void)usleep(LOOK_US);
  assert_int_equal(count, stats_of(world).build_failures);
}

/* Until so many requests have found nothing and are about to be compiled. */
static void wait_for_misses(const struct world *world, uint64_t count) {
  for (int i = 0; i < LOOKS && stats_of(world).misses < count; i++)
    (void)usleep(LOOK_US);
  assert_int_equal(count, stats_of(world).misses);
}

/* Does another process hold a key's lock in the world's folder? */
static bool is_locked(const struct world *world) {
  char path[TEMP_PATH_BYTES];
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  temp_folder_path(&world->folder, "locks", path);
  const int file = open(path, O_RDWR);
  if (file < 0) return false;
  const bool asked = !fcntl(file, F_OFD_GETLK, &lock);
  close(file);
  return asked && lock.l_type != F_UNLCK;
}

static void test_cancel__compile_that_nobody_wants_is_killed_in_the_server(void **state) {
  struct world *world = *state;
  world->stop = stop_at_its_time;
  stop_from_ms = now_ms() + 100;
  const double start = now_ms();
  assert_status(KJIT_ERR_CANCELLED, get(world, "HANG", 0, NULL, &world->error), &world->error);
  assert_true(now_ms() - start < LATE_MS);
  wait_for_failures(world, 1);
}

static void test_background__ends_at_its_bound(void **state) {
  struct world *world = *state;
  world->options.background_max_ms = 100;
  assert_true(time_to_give_up(world, "HANG") < 100 + 50 + SLACK_MS);
  wait_for_failures(world, 1);
}

struct asker {
  struct world *world;
  const char *word;
  uint32_t timeout_ms;
  kjit_status status;
  kjit_error error;
};

static void *ask(void *user) {
  struct asker *asker = user;
  asker->status = get(asker->world, asker->word, asker->timeout_ms, NULL, &asker->error);
  return NULL;
}

static void test_deadline__holds_while_another_thread_compiles(void **state) {
  struct world *world = *state;
  pthread_t thread;
  assert_works(world, "first");
  struct asker leader = {.world = world, .word = "SLOW"};
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &leader));
  wait_for_misses(world, 2);
  const double ms = time_to_give_up(world, "SLOW");
  pthread_join(thread, NULL);
  assert_true(ms < 100 + 50 + SLACK_MS);
  assert_status(KJIT_OK, leader.status, &leader.error);
}

static void use_folder(struct world *world) {
  world->options.cache_mode = KJIT_CACHE_RW;
  world->options.cache_dir = world->folder.path;
}

static void test_deadline__holds_while_another_process_compiles(void **state) {
  struct world *world = *state;
  use_folder(world);
  const pid_t other = fork();
  if (other == 0) {
    const kjit_status status = get(world, "SLOW", 0, NULL, NULL);
    builder_destroy(world->builder);
    _exit(status == KJIT_OK ? 0 : 1);
  }
  for (int i = 0; i < LOOKS && !is_locked(world); i++)
    (void)usleep(LOOK_US);
  const double ms = time_to_give_up(world, "SLOW");
  assert_works(world, "SLOW"); /* the other's entry */
  int how = 0;
  assert_int_equal(other, waitpid(other, &how, 0));
  assert_int_equal(0, how);
  assert_true(ms < 100 + 50 + SLACK_MS);
  assert_int_equal(0, stats_of(world).builds);
}

static int sync_slowly(void *user, int file) {
  (void)user;
  (void)usleep(800000);
  return file_ops_system()->sync(NULL, file);
}

static void test_deadline__holds_while_a_slow_file_system_publishes(void **state) {
  struct world *world = *state;
  struct faulty_ops faulty;
  faulty_ops_init(&faulty);
  faulty.ops.sync = sync_slowly;
  world->ops = &faulty.ops;
  use_folder(world);
  assert_true(time_to_give_up(world, "plain") < 100 + 50 + SLACK_MS);
  assert_works(world, "plain");
  builder_destroy(world->builder);
  world->builder = NULL;
}

static void test_deadline__holds_in_the_linker(void **state) {
  struct world *world = *state;
  world->option = "-dlto";
  assert_works(world, "before");
  assert_true(time_to_give_up(world, "HOLDLINK") < 100 + 50 + SLACK_MS);
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  builder_destroy(world->builder);
  world->builder = NULL;
  assert_true(time_to_give_up(world, "HOLDLINK") < 100 + 50 + SLACK_MS);
}

static void test_cancel__of_the_runtime_ends_a_call_that_has_no_deadline(void **state) {
  struct world *world = *state;
  pthread_t thread;
  assert_works(world, "first");
  struct asker asker = {.world = world, .word = "HANG"};
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &asker));
  wait_for_misses(world, 2);
  const double start = now_ms();
  builder_cancel(world->builder);
  assert_true(builder_wait_compiles(world->builder, 0)); /* another process compiles */
  pthread_join(thread, NULL);
  assert_true(now_ms() - start < LATE_MS);
  assert_status(KJIT_ERR_CANCELLED, asker.status, &asker.error);
  assert_contains(asker.error.message, "the runtime was cancelled");
  assert_works(world, "first");
}

/* Thirty headers that each include the next one twice: the walk would go through a thousand million files. */
static void test_deadline__holds_in_the_walk_through_the_includes(void **state) {
  struct world *world = *state;
  enum { DEPTH = 30 };
  char names[DEPTH + 1][16], texts[DEPTH][64];
  kjit_source headers[DEPTH];
  kjit_runtime *runtime = NULL;
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  for (int i = 0; i < DEPTH; i++) {
    snprintf(names[i], sizeof names[i], "h%d.h", i);
    snprintf(texts[i], sizeof texts[i], i + 1 < DEPTH ? "#include <h%d.h>\n#include <h%d.h>\n" : "\n", i + 1, i + 1);
    headers[i] = (kjit_source){.name = names[i], .text = texts[i]};
  }
  assert_status(KJIT_OK, kjit_runtime_create(&runtime, &world->options, &error), &error);
  kjit_build_request request = kjit_build_request_default();
  request.arch = "sm_90";
  request.entry = "k";
  request.source = (kjit_source){.name = "k.cu", .text = "#include <h0.h>\nextern \"C\" __global__ void k() {}\n"};
  request.headers = headers;
  request.header_count = DEPTH;
  request.timeout_ms = 100;
  const double start = now_ms();
  const kjit_status status = kjit_build(runtime, &request, &artifact, &error);
  const double ms = now_ms() - start;
  assert_status(KJIT_ERR_TIMEOUT, status, &error);
  assert_contains(error.message, "includes were still being read after 100 ms");
  assert_true(ms >= 99 && ms < 100 + 50 + SLACK_MS);
  kjit_runtime_destroy(runtime);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SERVER_TEST(test_deadline__holds_in_a_compiler_that_hangs),
      SERVER_TEST(test_background__deadline_holds_and_the_next_call_gets_the_kernel),
      SERVER_TEST(test_background__without_a_deadline_the_call_compiles_to_the_end),
      SERVER_TEST(test_background__builder_ends_while_a_compile_goes_on),
      SERVER_TEST(test_background__ends_at_its_bound),
      SERVER_TEST(test_deadline__with_a_server_repeated_calls_get_the_kernel_in_the_end),
      SERVER_TEST(test_deadline__holds_while_another_thread_compiles),
      SERVER_TEST(test_deadline__holds_while_another_process_compiles),
      SERVER_TEST(test_deadline__holds_while_a_slow_file_system_publishes),
      SERVER_TEST(test_deadline__holds_in_the_linker),
      SERVER_TEST(test_deadline__holds_in_the_walk_through_the_includes),
      SERVER_TEST(test_cancel__compile_that_nobody_wants_is_killed_in_the_server),
      SERVER_TEST(test_cancel__of_the_runtime_ends_a_call_that_has_no_deadline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
