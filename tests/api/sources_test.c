/* What a source includes, as files change: the answer is that of the files as they are, or the one that the header
 * promises. And programs, and a call that may not touch the system. */
#include "fixture.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EDITS 60

/* V0 to V3 stand in the cubin as they are: a kernel that stores one of them has it among its instructions. */
static const char sum_source[] = "#include <a.h>\n#if __has_include(<extra.h>)\n#include <extra.h>\n#else\n"
                                 "#define EXTRA 0\n#endif\n"
                                 "extern \"C\" __global__ void k(int *p) { *p = 1000000 + VALUE * 100 + EXTRA; }\n";

struct tree {
  struct temp_folder *folder;
  char first[4200], second[4200], path[4400];
  const char *dirs[2];
};

static void tree_init(struct tree *tree, struct temp_folder *folder) {
  tree->folder = folder;
  temp_folder_write_text(folder, "one/start.h", "\n");
  temp_folder_write_text(folder, "two/a.h", "#pragma once\n#include \"value.h\"\n");
  temp_folder_write_text(folder, "two/value.h", "#define VALUE 1\n");
  snprintf(tree->first, sizeof tree->first, "%s/one", folder->path);
  snprintf(tree->second, sizeof tree->second, "%s/two", folder->path);
  tree->dirs[0] = tree->first;
  tree->dirs[1] = tree->second;
}

static kjit_build_request sum_request(const struct tree *tree, uint32_t flags) {
  kjit_build_request request = kjit_build_request_default();
  request.arch = "sm_90";
  request.entry = "k";
  request.source = (kjit_source){.name = "sum.cu", .text = sum_source};
  request.include_dirs = tree->dirs;
  request.include_dir_count = 2;
  request.flags = flags;
  return request;
}

/* Is the number that the kernel stores this one? It is an immediate of a move, as 32 bits in the code. */
static bool stores(const kjit_artifact_info *info, int32_t number) {
  return memmem(info->cubin, info->cubin_bytes, &number, sizeof number) != NULL;
}

static kjit_status ask(struct fixture *f, const kjit_build_request *request, int32_t expected) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  const kjit_status status = kjit_build(f->runtime, request, &artifact, &f->error);
  if (status == KJIT_OK && expected >= 0) {
    assert_status(KJIT_OK, kjit_artifact_get_info(artifact, &info, &f->error), &f->error);
    if (!stores(&info, expected)) fail_msg("the kernel does not store %d", expected);
  }
  kjit_artifact_release(artifact);
  return status;
}

static void remove_file(struct tree *tree, const char *name) {
  snprintf(tree->path, sizeof tree->path, "%s/%s", tree->folder->path, name);
  (void)unlink(tree->path);
}

/* The content changes; size and time of modification are what they were. */
static void write_silently(struct tree *tree, const char *name, int value) {
  struct stat before;
  char text[32];
  snprintf(tree->path, sizeof tree->path, "%s/%s", tree->folder->path, name);
  const int file = open(tree->path, O_RDWR);
  assert_true(file >= 0 && fstat(file, &before) == 0);
  snprintf(text, sizeof text, "#define VALUE %d\n", value);
  assert_int_equal(strlen(text), pwrite(file, text, strlen(text), 0));
  const struct timespec times[2] = {before.st_atim, before.st_mtim};
  assert_int_equal(0, futimens(file, times));
  close(file);
}

struct model {
  int value, extra, shadow; /* extra, shadow: -1 where the file is not there */
};

static int32_t model_answer(const struct model *model) {
  const int value = model->shadow >= 0 ? model->shadow : model->value;
  return 1000000 + value * 100 + (model->extra >= 0 ? model->extra : 0);
}

static void edit(struct tree *tree, struct model *model, unsigned kind, int value) {
  char text[64];
  snprintf(text, sizeof text, "#define VALUE %d\n", value);
  switch (kind % 6) {
  case 0: /* content, by a new file in its place */
    remove_file(tree, "two/value.h");
    temp_folder_write_text(tree->folder, "two/value.h", text);
    model->value = value;
    break;
  case 1: /* content, with the same size and time */
    write_silently(tree, "two/value.h", value);
    model->value = value;
    break;
  case 2: /* __has_include comes to be true */
    snprintf(text, sizeof text, "#define EXTRA %d\n", value);
    temp_folder_write_text(tree->folder, "one/extra.h", text);
    model->extra = value;
    break;
  case 3:
    remove_file(tree, "one/extra.h");
    model->extra = -1;
    break;
  case 4: /* a file in an earlier folder shadows the one that was read */
    snprintf(text, sizeof text, "#define VALUE %d\n", value);
    temp_folder_write_text(tree->folder, "one/a.h", text);
    model->shadow = value;
    break;
  default:
    remove_file(tree, "one/a.h");
    /* Another case of the name is another file. */
    temp_folder_write_text(tree->folder, "one/A.h", "#error\n");
    model->shadow = -1;
  }
}

static void edit_at_random(struct fixture *f, uint32_t flags) {
  struct tree tree;
  struct model model = {1, -1, -1};
  unsigned random = 12345;
  tree_init(&tree, &f->folder);
  const kjit_build_request request = sum_request(&tree, flags);
  assert_status(KJIT_OK, ask(f, &request, model_answer(&model)), &f->error);
  for (int i = 0; i < EDITS; i++) {
    random = random * 1103515245 + 12345;
    edit(&tree, &model, random >> 16, (int)(random >> 24) % 4 + 1);
    assert_status(KJIT_OK, ask(f, &request, model_answer(&model)), &f->error);
  }
}

static void test_sources__strict_mode_is_never_stale(void **state) {
  struct fixture *f = *state;
  fixture_need_nvrtc(f);
  edit_at_random(f, KJIT_BUILD_STRICT_SOURCES | KJIT_BUILD_NO_TOOLKIT);
}

static void test_sources__stamps_are_never_stale(void **state) {
  struct fixture *f = *state;
  fixture_need_nvrtc(f);
  edit_at_random(f, KJIT_BUILD_NO_TOOLKIT);
}

static void test_sources__a_link_that_leads_elsewhere_is_noticed(void **state) {
  struct fixture *f = *state;
  struct tree tree;
  char target[4400];
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  temp_folder_write_text(&f->folder, "two/v2.h", "#define VALUE 2\n");
  temp_folder_write_text(&f->folder, "two/v3.h", "#define VALUE 3\n");
  const kjit_build_request request = sum_request(&tree, KJIT_BUILD_NO_TOOLKIT);
  for (int i = 2; i < 4; i++) {
    remove_file(&tree, "two/value.h");
    snprintf(target, sizeof target, "v%d.h", i);
    assert_int_equal(0, symlink(target, tree.path));
    assert_status(KJIT_OK, ask(f, &request, 1000000 + 100 * i), &f->error);
  }
}

/* What bare NVRTC does not find out before the compile, the library finds out from it: a name that only the compiler
 * knows decides. */
static void test_sources__a_branch_that_only_the_compiler_takes_is_found(void **state) {
  struct fixture *f = *state;
  struct tree tree;
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  kjit_build_request request = sum_request(&tree, KJIT_BUILD_NO_TOOLKIT);
  request.source.text = "#if __has_feature(no_compiler_has_this)\n#define VALUE 7\n#else\n#include <a.h>\n#endif\n"
                        "extern \"C\" __global__ void k(int *p) { *p = 1000000 + VALUE * 100; }\n";
  assert_status(KJIT_OK, ask(f, &request, 1000100), &f->error);
  assert_status(KJIT_OK, ask(f, &request, 1000100), &f->error);
}

/* Where the child says which system call it made; memory that both processes share. */
static int *forbidden;

static void name_forbidden(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)context;
  *forbidden = info->si_syscall;
  (void)syscall(SYS_exit, 1);
}

/* From here on any system call but exit() ends the process, which tells its number. False where the kernel has no
 * filters. */
static bool allow_only_exit(void) {
  struct sock_filter lines[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
  const struct sigaction action = {.sa_sigaction = name_forbidden, .sa_flags = SA_SIGINFO};
  return sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void test_sources__resident_only_makes_no_system_call(void **state) {
  struct fixture *f = *state;
#ifdef __SANITIZE_THREAD__
  skip(); /* ThreadSanitizer has a thread of its own in the child, which makes system calls and outlives SYS_exit */
#endif
  struct tree tree;
  int status = 0;
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  kjit_build_request request = sum_request(&tree, 0);
  assert_status(KJIT_OK, ask(f, &request, 1000100), &f->error);
  request.flags = KJIT_BUILD_RESIDENT_ONLY;
  assert_status(KJIT_OK, ask(f, &request, 1000100), &f->error);
  forbidden = mmap(NULL, sizeof *forbidden, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(MAP_FAILED, forbidden);
  *forbidden = -1;
  const pid_t child = fork();
  if (child == 0) {
    static _Alignas(max_align_t) unsigned char memory[1 << 16];
    kjit_artifact *artifact = NULL;
    /* The application's allocator makes no system call either, because malloc() may, AddressSanitizer's in any call. */
    failing_allocator_prepare(&f->memory, memory, sizeof memory);
    if (!allow_only_exit()) (void)syscall(SYS_exit, 77);
    const kjit_status found = kjit_build(f->runtime, &request, &artifact, &f->error);
    (void)syscall(SYS_exit, found == KJIT_OK ? 0 : 3);
  }
  assert_int_equal(child, waitpid(child, &status, 0));
  const int made = *forbidden;
  munmap(forbidden, sizeof *forbidden);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
  if (made >= 0) fail_msg("the call made system call %d", made);
  assert_true(WIFEXITED(status));
  assert_int_equal(0, WEXITSTATUS(status));
}

static void test_sources__the_next_process_recalls_what_was_read(void **state) {
  struct fixture *f = *state;
  struct tree tree;
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  kjit_build_request request = sum_request(&tree, KJIT_BUILD_NO_TOOLKIT);
  assert_status(KJIT_OK, ask(f, &request, 1000100), &f->error);
  fixture_open(f);
  write_silently(&tree, "two/value.h", 2);
  assert_status(KJIT_OK, ask(f, &request, 1000200), &f->error);
}

static void test_sources__equal_options_are_one_key(void **state) {
  struct fixture *f = *state;
  static const char *const spellings[] = {"-lineinfo", "--lineinfo", "--generate-line-info"};
  kjit_key keys[3];
  struct tree tree;
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  for (int i = 0; i < 3; i++) {
    kjit_artifact *artifact = NULL;
    kjit_build_request request = sum_request(&tree, KJIT_BUILD_KEY_ONLY);
    request.options = &spellings[i];
    request.option_count = 1;
    keys[i].struct_size = sizeof keys[i];
    assert_status(KJIT_OK, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
    assert_status(KJIT_OK, kjit_artifact_get_key(artifact, &keys[i], &f->error), &f->error);
    kjit_artifact_release(artifact);
    assert_string_equal(keys[0].key, keys[i].key);
  }
}

static void test_program__gives_one_artifact_for_one_variant(void **state) {
  struct fixture *f = *state;
  struct tree tree;
  kjit_program *program = NULL;
  kjit_artifact *first = NULL, *second = NULL, *other = NULL;
  const kjit_define define = {"OTHER", "1"};
  const kjit_program_variant variant = {.struct_size = sizeof variant, .defines = &define, .define_count = 1};
  fixture_need_nvrtc(f);
  tree_init(&tree, &f->folder);
  const kjit_build_request request = sum_request(&tree, KJIT_BUILD_NO_TOOLKIT);
  assert_status(KJIT_OK, kjit_program_create(f->runtime, &request, &program, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_program_get(program, NULL, &first, &f->error), &f->error);
  write_silently(&tree, "two/value.h", 3); /* a program does not look again */
  assert_status(KJIT_OK, kjit_program_get(program, NULL, &second, &f->error), &f->error);
  assert_status(KJIT_OK, kjit_program_get(program, &variant, &other, &f->error), &f->error);
  assert_ptr_equal(first, second);
  assert_ptr_not_equal(first, other);
  kjit_program_release(program);
  kjit_artifact_release(first);
  kjit_artifact_release(second);
  kjit_artifact_release(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_sources__strict_mode_is_never_stale),
      FIXTURE_TEST(test_sources__stamps_are_never_stale),
      FIXTURE_TEST(test_sources__a_link_that_leads_elsewhere_is_noticed),
      FIXTURE_TEST(test_sources__a_branch_that_only_the_compiler_takes_is_found),
      FIXTURE_TEST(test_sources__resident_only_makes_no_system_call),
      FIXTURE_TEST(test_sources__the_next_process_recalls_what_was_read),
      FIXTURE_TEST(test_sources__equal_options_are_one_key),
      FIXTURE_TEST(test_program__gives_one_artifact_for_one_variant),
  };
  return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
