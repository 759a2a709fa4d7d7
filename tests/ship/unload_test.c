/* A program opens libkjit with dlopen(), works with it, ends what it made, and closes it: nothing of it may be left.
 * NVRTC is real, and so is what it compiles; libcuda is the fake one, opened by its path as a real one would be.
 * Neither of these two is made to be unloaded, so they stay, once. */
#include "support/test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <kjit/kjit.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Of <sanitizer/allocator_interface.h>, which gcc does not install. */
size_t __sanitizer_get_current_allocated_bytes(void);
#define heap_bytes() __sanitizer_get_current_allocated_bytes()
#else
#define heap_bytes() (mallinfo2().uordblks + mallinfo2().hblkhd)
#endif

/* What malloc keeps for a thread it counts as given out: without, equal work leaves equal counts. */
#define MALLOC_WITHOUT_CACHES "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"
#define LEAST_BLOCK           32 /* bytes that malloc's smallest takes */

#define ROUNDS   100
#define COMPILES 3 /* of the rounds that compile: each takes NVRTC some tenths of a second */
#define THREADS  4
#define WAIT_MS  60000   /* for what takes no time where the machine has some to give */
#define REST_MS  1000    /* until a thread that was joined is gone from the kernel's list */
#define ARCH     "sm_90" /* that of the fake device */
#define CONFIG   "(FP16, 32, 16, 16, 1): load_0_0_0_tiles"

#define FUNCTIONS(X)                                                                                                   \
  X(kjit_artifact_get_info)                                                                                            \
  X(kjit_artifact_release)                                                                                             \
  X(kjit_bundle_close)                                                                                                 \
  X(kjit_bundle_keygen)                                                                                                \
  X(kjit_bundle_open)                                                                                                  \
  X(kjit_bundle_sign)                                                                                                  \
  X(kjit_bundle_writer_add_cache)                                                                                      \
  X(kjit_bundle_writer_create)                                                                                         \
  X(kjit_bundle_writer_destroy)                                                                                        \
  X(kjit_bundle_writer_finish)                                                                                         \
  X(kjit_build)                                                                                                        \
  X(kjit_config_build)                                                                                                 \
  X(kjit_config_parse)                                                                                                 \
  X(kjit_family_find)                                                                                                  \
  X(kjit_attention_forward) X(kjit_kernel_get) X(kjit_kernel_release) X(kjit_runtime_create) X(kjit_runtime_destroy)

#define MEMBER(name) __typeof__(name) *name;
struct library {
  void *handle;
  FUNCTIONS(MEMBER)
};

/* What the process holds that is not memory of its own. */
struct holdings {
  int descriptors;
  char files[64][TEMP_PATH_BYTES]; /* mapped, each once */
  int file_count;
};

struct world {
  struct temp_folder folder;
  char bundle[TEMP_PATH_BYTES];
  struct failing_allocator memory;
  int threads; /* before any work */
  bool has_nvrtc;
};

static const char custom_source[] = "extern \"C\" __global__ void k(int *out) { *out = 1; }";

/* Its status' name could only be asked of the library. */
static void expect_ok(kjit_status status, const kjit_error *error) {
  if (status != KJIT_OK) fail_msg("status %d: %s", (int)status, error ? error->message : "");
}

static void library_open(struct library *kjit) {
  kjit->handle = dlopen(KJIT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!kjit->handle) fail_msg("%s", dlerror());
#define FIND(name)                                                                                                     \
  *(void **)&kjit->name = dlsym(kjit->handle, #name);                                                                  \
  assert_non_null(*(void **)&kjit->name);
  FUNCTIONS(FIND)
}

static void library_close(struct library *kjit) {
  assert_int_equal(0, dlclose(kjit->handle));
  assert_null(dlopen(KJIT_LIBRARY, RTLD_NOW | RTLD_NOLOAD));
  (void)dlerror();
}

static int count_entries(const char *path) {
  DIR *const folder = opendir(path);
  int count = 0;
  assert_non_null(folder);
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

static bool maps(const struct holdings *held, const char *file) {
  for (int i = 0; i < held->file_count; i++)
    if (!strcmp(held->files[i], file)) return true;
  return false;
}

static void holdings_take(struct holdings *held) {
  char line[TEMP_PATH_BYTES + 128];
  *held = (struct holdings){.descriptors = count_entries("/proc/self/fd")};
  FILE *const table = fopen("/proc/self/maps", "r");
  assert_non_null(table);
  while (fgets(line, sizeof line, table)) {
    char *const file = strchr(line, '/');
    if (!file) continue;
    file[strcspn(file, "\n")] = '\0';
    if (maps(held, file)) continue;
    assert_in_range(held->file_count, 0, 63);
    snprintf(held->files[held->file_count++], sizeof *held->files, "%s", file);
  }
  fclose(table);
}

/* A thread that was joined is listed until the kernel is done with it. */
static int count_threads(int wanted) {
  int count = count_entries("/proc/self/task");
  for (int i = 0; i < WAIT_MS && count > wanted; i++) {
    usleep(1000);
    count = count_entries("/proc/self/task");
  }
  return count;
}

static void expect_nothing_more(const struct world *w, const struct holdings *before) {
  static struct holdings after;
  assert_in_range(count_threads(w->threads), 1, w->threads);
  holdings_take(&after);
  assert_int_equal(before->descriptors, after.descriptors);
  for (int i = 0; i < after.file_count; i++)
    if (!maps(before, after.files[i])) fail_msg("%s is still mapped", after.files[i]);
}

/* ---- What a program does with it ---- */

static kjit_runtime_options options_of(struct world *w) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.flags = KJIT_RUNTIME_IGNORE_ENVIRONMENT;
  options.libcuda_path = FAKE_DRIVER;
  options.nvrtc_path = getenv("KJIT_NVRTC");
  options.allocator = failing_allocator_hooks(&w->memory);
  return options;
}

static kjit_config config_of(const struct library *kjit) {
  kjit_config config;
  expect_ok(kjit->kjit_config_parse(kjit->kjit_family_find("flash_forward"), CONFIG, &config, NULL), NULL);
  return config;
}

static uint32_t origin_of(const struct library *kjit, kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  expect_ok(kjit->kjit_artifact_get_info(artifact, &info, NULL), NULL);
  kjit->kjit_artifact_release(artifact);
  return info.origin;
}

/* A source of one's own, loaded into the driver. */
static kjit_status load_custom(const struct library *kjit, kjit_runtime *runtime, kjit_error *error) {
  kjit_build_request request = kjit_build_request_default();
  kjit_kernel *kernel = NULL;
  request.entry = "k";
  request.source = (kjit_source){"k.cu", custom_source, 0};
  const kjit_status status = kjit->kjit_kernel_get(runtime, &request, &kernel, error);
  kjit->kjit_kernel_release(kernel);
  return status;
}

static kjit_status launch_attention(const struct library *kjit, kjit_runtime *runtime, kjit_error *error) {
  const kjit_config config = config_of(kjit);
  kjit_attention_args args = kjit_attention_args_default();
  kjit_tensor *const tensors[] = {&args.q, &args.k, &args.v, &args.o};
  for (uintptr_t i = 0; i < 4; i++)
    *tensors[i] = kjit_tensor_bshd((void *)((i + 1) << 20), KJIT_FP16, 0, 1, 64, 2, 32);
  return kjit->kjit_attention_forward(runtime, &config, &args, NULL, error);
}

/* Compile both kernels into a new folder and put them into a signed bundle: what whoever ships them does. */
static void ship(struct world *w, const struct library *kjit) {
  struct temp_folder cache;
  char secret[65], public[65];
  uint8_t signature[KJIT_BUNDLE_SIGNATURE_BYTES];
  kjit_error error = {0};
  kjit_runtime *runtime = NULL;
  kjit_artifact *artifact = NULL;
  kjit_bundle_writer *writer = NULL;
  kjit_bundle *bundle = NULL;
  kjit_bundle_blob blob;
  const kjit_config config = config_of(kjit);
  kjit_runtime_options options = options_of(w);
  assert_int_equal(0, temp_folder_create(&cache));
  options.cache_dir = cache.path;
  expect_ok(kjit->kjit_runtime_create(&runtime, &options, &error), &error);
  expect_ok(kjit->kjit_config_build(runtime, &config, ARCH, 0, &artifact, &error), &error);
  assert_int_equal(KJIT_ORIGIN_BUILT, origin_of(kjit, artifact));
  expect_ok(load_custom(kjit, runtime, &error), &error);
  expect_ok(kjit->kjit_bundle_writer_create(&writer, NULL, NULL, &error), &error);
  expect_ok(kjit->kjit_bundle_writer_add_cache(writer, runtime, NULL, NULL, &error), &error);
  expect_ok(kjit->kjit_bundle_writer_finish(writer, &blob, &error), &error);
  expect_ok(kjit->kjit_bundle_keygen(secret, public, &error), &error);
  expect_ok(kjit->kjit_bundle_open(&bundle, NULL, &blob, NULL, 0, &error), &error);
  expect_ok(kjit->kjit_bundle_sign(bundle, secret, signature, &error), &error);
  FILE *const file = fopen(w->bundle, "wb");
  assert_non_null(file);
  assert_int_equal(1, fwrite(blob.data, blob.bytes, 1, file));
  assert_int_equal(1, fwrite(signature, sizeof signature, 1, file));
  assert_int_equal(0, fclose(file));
  kjit->kjit_bundle_close(bundle);
  kjit->kjit_bundle_writer_destroy(writer);
  kjit->kjit_runtime_destroy(runtime);
  temp_folder_remove(&cache);
}

struct user {
  const struct library *kjit;
  kjit_runtime *runtime;
  kjit_status status;
};

static void *use_in_thread(void *argument) {
  struct user *const user = argument;
  user->status = launch_attention(user->kjit, user->runtime, NULL);
  if (user->status == KJIT_OK) user->status = load_custom(user->kjit, user->runtime, NULL);
  return NULL;
}

/* The bundle alone: found, loaded and launched, by several threads at once. */
static void use(struct world *w, const struct library *kjit) {
  kjit_error error = {0};
  kjit_runtime *runtime = NULL;
  kjit_runtime_options options = options_of(w);
  const char *const bundle = w->bundle;
  pthread_t threads[THREADS];
  struct user users[THREADS];
  options.cache_mode = KJIT_CACHE_OFF;
  options.nvrtc_path = "/nonexistent";
  options.bundle_paths = &bundle;
  options.bundle_count = 1;
  expect_ok(kjit->kjit_runtime_create(&runtime, &options, &error), &error);
  for (int i = 0; i < THREADS; i++) {
    users[i] = (struct user){kjit, runtime, KJIT_OK};
    assert_int_equal(0, pthread_create(&threads[i], NULL, use_in_thread, &users[i]));
  }
  expect_ok(launch_attention(kjit, runtime, &error), &error);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    expect_ok(users[i].status, NULL);
  }
  kjit->kjit_runtime_destroy(runtime);
}

static void round_of(struct world *w, void (*work)(struct world *w, const struct library *kjit)) {
  struct library kjit;
  library_open(&kjit);
  work(w, &kjit);
  library_close(&kjit);
  assert_int_equal(0, atomic_load(&w->memory.live));
}

/* ---- The tests ---- */

static bool find_nvrtc(struct world *w, const struct library *kjit) {
  kjit_runtime *runtime = NULL;
  kjit_artifact *artifact = NULL;
  const kjit_config config = config_of(kjit);
  kjit_runtime_options options = options_of(w);
  options.cache_mode = KJIT_CACHE_OFF;
  expect_ok(kjit->kjit_runtime_create(&runtime, &options, NULL), NULL);
  const kjit_status status = kjit->kjit_config_build(runtime, &config, ARCH, 0, &artifact, NULL);
  kjit->kjit_artifact_release(artifact);
  kjit->kjit_runtime_destroy(runtime);
  return status != KJIT_ERR_NO_NVRTC;
}

static void look_for_nvrtc(struct world *w, const struct library *kjit) {
  w->has_nvrtc = find_nvrtc(w, kjit);
}

static void *end_at_once(void *user) {
  return user;
}

/* With a program's first thread a sanitizer starts one of its own, which stays. */
static int count_threads_at_rest(void) {
  const int before = count_entries("/proc/self/task");
  pthread_t thread;
  int count = before + 1;
  if (pthread_create(&thread, NULL, end_at_once, NULL) != 0) return before;
  pthread_join(thread, NULL);
  for (int i = 0; i < REST_MS && count > before; i++) {
    usleep(1000);
    count = count_entries("/proc/self/task");
  }
  return count;
}

static int setup(void **state) {
  static struct world w;
  w = (struct world){.threads = count_threads_at_rest()};
  *state = &w;
  failing_allocator_reset(&w.memory, FAIL_NEVER);
  if (temp_folder_create(&w.folder)) return -1;
  temp_folder_path(&w.folder, "kernels.kjb", w.bundle);
  return 0;
}

static int teardown(void **state) {
  struct world *w = *state;
  return temp_folder_remove(&w->folder);
}

static struct world *world_or_skip(void **state) {
  struct world *w = *state;
  round_of(w, look_for_nvrtc);
  if (!w->has_nvrtc) skip();
  return w;
}

/* The first round brings NVRTC with what it needs, and libcuda. */
static void test_unload__leaves_no_mapping_descriptor_or_thread(void **state) {
  static struct holdings before;
  struct world *const w = world_or_skip(state);
  round_of(w, ship);
  round_of(w, use);
  holdings_take(&before);
  for (int i = 0; i < before.file_count; i++) {
    assert_lacks(before.files[i], KJIT_LIBRARY);
    assert_lacks(before.files[i], w->folder.path);
  }
  for (int i = 0; i < COMPILES; i++) {
    round_of(w, ship);
    round_of(w, use);
    expect_nothing_more(w, &before);
  }
}

static void test_unload__a_hundred_rounds_leave_no_memory(void **state) {
  static struct holdings before;
  struct world *const w = world_or_skip(state);
  round_of(w, ship);
  for (int i = 0; i < 5; i++) /* until libc has what it keeps for itself: stacks of ended threads, room in its tables */
    round_of(w, use);
  holdings_take(&before);
  const size_t bytes = heap_bytes();
  for (int i = 0; i < ROUNDS; i++)
    round_of(w, use);
  expect_nothing_more(w, &before);
  assert_in_range(heap_bytes(), 0, bytes + ROUNDS * LEAST_BLOCK / 2);
}

/* Handlers that stayed would be called in code that is gone. */
static void test_unload__the_process_can_fork_and_leave(void **state) {
  struct world *const w = world_or_skip(state);
  round_of(w, ship);
  round_of(w, use);
  const pid_t child = fork();
  if (child == 0) exit(7);
  int how = 0;
  assert_int_equal(child, waitpid(child, &how, 0));
  assert_true(WIFEXITED(how));
  assert_int_equal(7, WEXITSTATUS(how));
}

int main(int argc, char **argv) {
  (void)argc;
  if (!getenv("GLIBC_TUNABLES")) {
    setenv("GLIBC_TUNABLES", MALLOC_WITHOUT_CACHES, 1);
    execv("/proc/self/exe", argv);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_unload__leaves_no_mapping_descriptor_or_thread, setup, teardown),
      cmocka_unit_test_setup_teardown(test_unload__a_hundred_rounds_leave_no_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(test_unload__the_process_can_fork_and_leave, setup, teardown),
  };
  return cmocka_run_group_tests_name("unload", tests, NULL, NULL);
}
