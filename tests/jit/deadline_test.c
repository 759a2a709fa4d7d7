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

/* A call of TIMEOUT_MS returns so long after its beginning at most. A machine that is busy may return any single call
 * later, so that of TRIES calls the quickest counts. */
#define TIMEOUT_MS 100
#define WITHIN_MS  (TIMEOUT_MS + 50)
#define TRIES      100

/* Looks for a minute, because the machine may be busy; what is waited for comes at once where it is not. */
#define LOOKS   12000
#define LOOK_US 5000

/* Where the file lies for which the compiler or the linker waits, and the words for a source that waits for it. */
static struct temp_folder signs;
static char waits[TEMP_PATH_BYTES + 16], holds_link[TEMP_PATH_BYTES + 16];

/* What waits may go on, and what comes later does not wait. */
static void let_go(void) {
  if (temp_folder_write_text(&signs, "go", "")) abort();
}

static bool has_begun(void) {
  char path[TEMP_PATH_BYTES];
  temp_folder_path(&signs, "go-begun", path);
  return !access(path, F_OK);
}

static kjit_runtime_stats stats_of(const struct world *world) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  builder_add_stats(world->builder, &stats);
  return stats;
}

/* Milliseconds until a call whose kernel is not there in time returns. */
static double time_to_give_up(struct world *world, const char *word) {
  memset(&world->error, 0, sizeof world->error);
  const double start = now_ms();
  const kjit_status status = get(world, word, TIMEOUT_MS, NULL, &world->error);
  const double ms = now_ms() - start;
  assert_status(KJIT_ERR_TIMEOUT, status, &world->error);
  assert_contains(world->error.message, "after 100 ms");
  assert_true(ms >= TIMEOUT_MS - 1);
  return ms;
}

static void assert_gives_up_in_time(struct world *world, const char *word) {
  bool in_time = false;
  for (int i = 0; i < TRIES && !in_time; i++)
    in_time = time_to_give_up(world, word) < WITHIN_MS;
  assert_true(in_time);
}

static void test_deadline__holds_in_a_compiler_that_hangs(void **state) {
  struct world *world = *state;
  assert_works(world, "before");
  assert_gives_up_in_time(world, "HANG");
  assert_works(world, "after");
}

/* The compile goes on: the next call gets it, and it was compiled once. */
static void test_background__deadline_holds_and_the_next_call_gets_the_kernel(void **state) {
  struct world *world = *state;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  assert_gives_up_in_time(world, waits);
  let_go();
  assert_works(world, waits);
  assert_int_equal(1, stats_of(world).builds);
}

/* Until the compiler waits for the test: a minute, because the machine may be busy. */
static void wait_until_begun(void) {
  for (int i = 0; i < LOOKS && !has_begun(); i++)
    (void)usleep(LOOK_US);
  assert_true(has_begun());
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

/* The call cannot return before the compiler is let go, unless it gives up. */
static void test_background__without_a_deadline_the_call_compiles_to_the_end(void **state) {
  struct world *world = *state;
  pthread_t thread;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  assert_works(world, "first");
  struct asker asker = {.world = world, .word = waits};
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &asker));
  wait_until_begun();
  let_go();
  pthread_join(thread, NULL);
  assert_status(KJIT_OK, asker.status, &asker.error);
}

/* By then the builder is ending. It need not be: then the compile has ended before it. */
static void *let_go_soon(void *user) {
  (void)usleep(50000);
  let_go();
  return user;
}

static void test_background__builder_ends_while_a_compile_goes_on(void **state) {
  struct world *world = *state;
  pthread_t thread;
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  (void)time_to_give_up(world, waits);
  assert_int_equal(0, pthread_create(&thread, NULL, let_go_soon, NULL));
  builder_destroy(world->builder); /* waits for the thread: the sanitizers see what it would touch */
  world->builder = NULL;
  pthread_join(thread, NULL);
}

static void test_deadline__with_a_server_repeated_calls_get_the_kernel_in_the_end(void **state) {
  struct world *world = *state;
  for (int i = 0; i < 5; i++)
    (void)time_to_give_up(world, waits);
  let_go();
  kjit_status status = KJIT_ERR_TIMEOUT;
  for (int i = 0; i < TRIES && status == KJIT_ERR_TIMEOUT; i++) {
    memset(&world->error, 0, sizeof world->error);
    status = get(world, waits, TIMEOUT_MS, NULL, &world->error);
  }
  assert_status(KJIT_OK, status, &world->error);
  assert_int_equal(1, stats_of(world).builds);
}

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

/* Asked every few milliseconds. */
static int stop_once_begun(void *user) {
  (void)user;
  return has_begun();
}

/* The compiler never ends by itself, so that the call ends at all is what matters, however late. */
static void test_cancel__compile_that_nobody_wants_is_killed_in_the_server(void **state) {
  struct world *world = *state;
  world->stop = stop_once_begun;
  assert_status(KJIT_ERR_CANCELLED, get(world, waits, 0, NULL, &world->error), &world->error);
  wait_for_failures(world, 1);
}

static void test_background__ends_at_its_bound(void **state) {
  struct world *world = *state;
  world->options.background_max_ms = 100;
  (void)time_to_give_up(world, "HANG");
  wait_for_failures(world, 1);
}

static void test_deadline__holds_while_another_thread_compiles(void **state) {
  struct world *world = *state;
  pthread_t thread;
  assert_works(world, "first");
  struct asker leader = {.world = world, .word = waits};
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &leader));
  wait_for_misses(world, 2);
  assert_gives_up_in_time(world, waits);
  let_go();
  pthread_join(thread, NULL);
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
    const kjit_status status = get(world, waits, 0, NULL, NULL);
    builder_destroy(world->builder);
    _exit(status == KJIT_OK ? 0 : 1);
  }
  for (int i = 0; i < LOOKS && !is_locked(world); i++)
    (void)usleep(LOOK_US);
  assert_gives_up_in_time(world, waits);
  let_go();
  assert_works(world, waits); /* the other's entry */
  int how = 0;
  assert_int_equal(other, waitpid(other, &how, 0));
  assert_int_equal(0, how);
  assert_int_equal(0, stats_of(world).builds);
}

static atomic_bool may_sync;

static int sync_when_allowed(void *user, int file) {
  (void)user;
  while (!atomic_load(&may_sync))
    (void)usleep(LOOK_US);
  return file_ops_system()->sync(NULL, file);
}

static void test_deadline__holds_while_a_slow_file_system_publishes(void **state) {
  struct world *world = *state;
  struct faulty_ops faulty;
  faulty_ops_init(&faulty);
  atomic_store(&may_sync, false);
  faulty.ops.sync = sync_when_allowed;
  world->ops = &faulty.ops;
  use_folder(world);
  assert_gives_up_in_time(world, "plain");
  atomic_store(&may_sync, true);
  assert_works(world, "plain");
  builder_destroy(world->builder);
  world->builder = NULL;
}

static void test_deadline__holds_in_the_linker(void **state) {
  struct world *world = *state;
  world->option = "-dlto";
  assert_works(world, "before");
  assert_gives_up_in_time(world, holds_link);
  world->options.compile_server = KJIT_COMPILE_SERVER_OFF;
  builder_destroy(world->builder);
  world->builder = NULL;
  assert_gives_up_in_time(world, holds_link);
}

static void test_cancel__of_the_runtime_ends_a_call_that_has_no_deadline(void **state) {
  struct world *world = *state;
  pthread_t thread;
  assert_works(world, "first");
  struct asker asker = {.world = world, .word = "HANG"};
  assert_int_equal(0, pthread_create(&thread, NULL, ask, &asker));
  wait_for_misses(world, 2);
  builder_cancel(world->builder);
  assert_true(builder_wait_compiles(world->builder, 0)); /* another process compiles */
  pthread_join(thread, NULL);
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
  request.timeout_ms = TIMEOUT_MS;
  double ms = WITHIN_MS;
  for (int i = 0; i < TRIES && ms >= WITHIN_MS; i++) {
    const double start = now_ms();
    const kjit_status status = kjit_build(runtime, &request, &artifact, &error);
    ms = now_ms() - start;
    assert_status(KJIT_ERR_TIMEOUT, status, &error);
    assert_contains(error.message, "includes were still being read after 100 ms");
  }
  assert_true(ms >= TIMEOUT_MS - 1 && ms < WITHIN_MS);
  kjit_runtime_destroy(runtime);
}

static int setup_with_signs(void **state) {
  if (setup(state) || temp_folder_create(&signs)) return -1;
  snprintf(waits, sizeof waits, "WAITS %s/go", signs.path);
  snprintf(holds_link, sizeof holds_link, "HOLDLINK %s/go", signs.path);
  return 0;
}

/* A compile in this process has to end first. */
static int teardown_with_signs(void **state) {
  atomic_store(&may_sync, true);
  let_go();
  return teardown(state) || temp_folder_remove(&signs);
}

#define DEADLINE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_with_signs, teardown_with_signs)

int main(void) {
  const struct CMUnitTest tests[] = {
      DEADLINE_TEST(test_deadline__holds_in_a_compiler_that_hangs),
      DEADLINE_TEST(test_background__deadline_holds_and_the_next_call_gets_the_kernel),
      DEADLINE_TEST(test_background__without_a_deadline_the_call_compiles_to_the_end),
      DEADLINE_TEST(test_background__builder_ends_while_a_compile_goes_on),
      DEADLINE_TEST(test_background__ends_at_its_bound),
      DEADLINE_TEST(test_deadline__with_a_server_repeated_calls_get_the_kernel_in_the_end),
      DEADLINE_TEST(test_deadline__holds_while_another_thread_compiles),
      DEADLINE_TEST(test_deadline__holds_while_another_process_compiles),
      DEADLINE_TEST(test_deadline__holds_while_a_slow_file_system_publishes),
      DEADLINE_TEST(test_deadline__holds_in_the_linker),
      DEADLINE_TEST(test_deadline__holds_in_the_walk_through_the_includes),
      DEADLINE_TEST(test_cancel__compile_that_nobody_wants_is_killed_in_the_server),
      DEADLINE_TEST(test_cancel__of_the_runtime_ends_a_call_that_has_no_deadline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
