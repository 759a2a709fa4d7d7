/* A set-user-id program, a real one: this file is also that program. Nothing that its caller says by environment
 * decides where its kernels are kept. Needs root, to make one and to become its caller. */
#include <errno.h>
#include <fcntl.h>
#include <kjit/kjit.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "support/test.h"

#define OWNER  65534 /* of the program: no user of this machine's but root need exist for that */
#define CALLER 65533

/* The program: its cache folder and mode as the runtime chose them. */
static int report(void) {
  kjit_runtime *runtime = NULL;
  static kjit_doctor_report doctor;
  if (kjit_runtime_create(&runtime, NULL, NULL) != KJIT_OK) return 1;
  const char *path = kjit_cache_path(runtime);
  doctor.struct_size = sizeof doctor;
  if (kjit_doctor(runtime, &doctor, NULL) != KJIT_OK) return 1;
  printf("uid %d euid %d folder %s mode %u\n", (int)getuid(), (int)geteuid(), path ? path : "none",
         (unsigned)doctor.cache_mode);
  kjit_runtime_destroy(runtime);
  /* A leak check looks into its own process, which nobody may do with a set-user-id one. */
  const uid_t owner = geteuid();
  return setresuid(owner, owner, owner) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

struct secure {
  struct temp_folder folder;
  char program[TEMP_PATH_BYTES], cache[TEMP_PATH_BYTES], output[TEMP_PATH_BYTES];
  char said[1024];
};

static bool copy_program(const char *to) {
  char block[65536];
  const int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), file = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
  ssize_t bytes = -1;
  while (from >= 0 && file >= 0 && (bytes = read(from, block, sizeof block)) > 0)
    if (write(file, block, (size_t)bytes) != bytes) break;
  if (from >= 0) close(from);
  if (file >= 0) close(file);
  return bytes == 0;
}

/* Why no set-user-id program can be made here; NULL when one can. */
static const char *obstacle(const struct secure *secure) {
  struct statvfs system;
  if (geteuid()) return "needs root";
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return "this process may gain no privileges";
  if (statvfs(secure->folder.path, &system) || system.f_flag & ST_NOSUID)
    return "temporary files are on a nosuid mount";
  if (chown(secure->program, OWNER, OWNER)) return "files cannot be given to another user";
  return NULL;
}

static int setup(void **state) {
  struct secure *secure = calloc(1, sizeof *secure);
  *state = secure;
  if (!secure || temp_folder_create(&secure->folder)) return -1;
  temp_folder_path(&secure->folder, "program", secure->program);
  temp_folder_path(&secure->folder, "cache", secure->cache);
  temp_folder_path(&secure->folder, "output", secure->output);
  return copy_program(secure->program) ? 0 : -1;
}

static int teardown(void **state) {
  struct secure *secure = *state;
  if (secure) temp_folder_remove(&secure->folder);
  free(secure);
  return 0;
}

/* The caller, who names a folder of his own in every way there is. Returns only when it fails. */
static int become_caller_and_run(const struct secure *secure) {
  char *arguments[] = {(char *)secure->program, (char *)"--report", NULL};
  const int output = open(secure->output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (output < 0 || dup2(output, STDOUT_FILENO) < 0) return 101;
  if (setgid(CALLER) || setuid(CALLER)) return 102;
  setenv("KJIT_CACHE_DIR", secure->cache, 1);
  setenv("KJIT_CACHE_MODE", "ro", 1);
  setenv("XDG_CACHE_HOME", secure->cache, 1);
  setenv("HOME", secure->cache, 1);
  execv(secure->program, arguments);
  return 103;
}

/* Run the program with these mode bits; what it said is in `said`. */
static void run(struct secure *secure, mode_t mode) {
  int status = 0;
  assert_int_equal(0, chmod(secure->folder.path, 0711));
  assert_int_equal(0, chmod(secure->program, mode));
  const pid_t child = fork();
  if (!child) _exit(become_caller_and_run(secure));
  assert_int_equal(child, waitpid(child, &status, 0));
  assert_true(WIFEXITED(status));
  assert_int_equal(0, WEXITSTATUS(status));
  FILE *output = fopen(secure->output, "r");
  assert_non_null(output);
  secure->said[fread(secure->said, 1, sizeof secure->said - 1, output)] = '\0';
  fclose(output);
}

static void test_secure__set_user_id_program_ignores_its_callers_environment(void **state) {
  struct secure *secure = *state;
  const char *why_not = obstacle(secure);
  if (why_not) {
    print_message("%s\n", why_not);
    skip();
  }
  run(secure, 04755);
  assert_contains(secure->said, "uid 65533 euid 65534 folder none mode 1\n");
  assert_int_equal(-1, access(secure->cache, F_OK));
}

/* That the other test's answer comes from the set-user-id bit, and not from a mistake in it. */
static void test_secure__the_same_program_without_the_bit_heeds_it(void **state) {
  struct secure *secure = *state;
  const char *why_not = obstacle(secure);
  if (why_not) {
    print_message("%s\n", why_not);
    skip();
  }
  assert_int_equal(0, mkdir(secure->cache, 0700));
  assert_int_equal(0, chown(secure->cache, CALLER, CALLER));
  run(secure, 0755);
  assert_contains(secure->said, "uid 65533 euid 65533 folder ");
  assert_contains(secure->said, secure->cache);
  assert_contains(secure->said, " mode 2\n");
}

#define SECURE_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--report")) return report();
  const struct CMUnitTest tests[] = {
      SECURE_TEST(test_secure__set_user_id_program_ignores_its_callers_environment),
      SECURE_TEST(test_secure__the_same_program_without_the_bit_heeds_it),
  };
  return cmocka_run_group_tests_name("secure", tests, NULL, NULL);
}
