/* Starting a storage helper when nobody listens at its socket.
 *
 * 1. Connect. When that fails, take the lock on "<socket>.lock", and connect again, since another process may have
 *    started the helper meanwhile. A process that does not get the lock tries to connect every few
 *    milliseconds until the helper answers.
 * 2. Remove a socket that a killed helper left, and start the program with the variables CRSH_* that the protocol
 * names. It is a session of its own and outlives this process; it ends by itself after IDLE_S seconds without clients.
 * 3. Connect until it answers or the time is over.
 *
 * The program is looked for in $PATH, and never in a set-user-id process. A helper that ends while this process lives
 * is waited for at the next start. Any thread: the lock orders threads too, since each opens the file anew. */
#include "jit/remote/helper_start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/error.h"
#include "jit/remote/remote_clock.h"

#define IDLE_S    "600" /* as ccache starts them */
#define POLL_NS   2000000
#define VARIABLES (4 + 2 * REMOTE_ATTRIBUTES_MAX)

/* ---- Naming ---- */

/* The folder of the sockets: made where it is missing, and refused unless it is ours alone. */
static kjit_status make_folder(char folder[HELPER_PATH_BYTES], kjit_error *error) {
  struct stat status;
  const char *const runtime = secure_getenv("XDG_RUNTIME_DIR");
  const int bytes = runtime && *runtime == '/' ? snprintf(folder, HELPER_PATH_BYTES, "%s/kjit", runtime)
                                               : snprintf(folder, HELPER_PATH_BYTES, "/tmp/kjit-%ld", (long)geteuid());
  if (bytes < 0 || bytes >= HELPER_PATH_BYTES - 48)
    return error_set(error, KJIT_ERR_INVALID_ARG, "XDG_RUNTIME_DIR: too long for a socket in it");
  if ((mkdir(folder, 0700) && errno != EEXIST) || lstat(folder, &status))
    return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, errno, "%s: %s", folder, strerror(errno));
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || status.st_mode & 077)
    return error_set(error, KJIT_ERR_IO, "%s: must be a folder of this user that nobody else may enter", folder);
  return KJIT_OK;
}

static void name_socket(struct helper *helper, const struct remote_url *url, const char *folder) {
  struct digest_state state;
  struct digest digest;
  char hex[DIGEST_HEX_BYTES];
  digest_begin(&state);
  digest_add(&state, url->address, strlen(url->address) + 1);
  for (size_t i = 0; i < url->attribute_count; i++)
    digest_add(&state, url->attributes[i], strlen(url->attributes[i]) + 1);
  digest_end(&state, &digest);
  digest_to_hex(&digest, hex);
  snprintf(helper->socket, sizeof helper->socket, "%.66s/crsh-%.32s", folder, hex);
}

/* "NAME=VALUE" in memory of its own. */
static bool add_variable(struct helper *helper, const struct mem *mem, size_t *count, const char *name,
                         const char *value) {
  const size_t bytes = strlen(name) + strlen(value) + 2;
  char *const text = mem_alloc(mem, bytes);
  if (!text) return false;
  snprintf(text, bytes, "%s=%s", name, value);
  helper->environment[(*count)++] = text;
  return true;
}

static bool add_attribute(struct helper *helper, const struct mem *mem, size_t *count, const char *attribute,
                          size_t number) {
  char name[32];
  char *const key = mem_strdup(mem, attribute);
  if (!key) return false;
  char *const equals = strchr(key, '=');
  if (equals) *equals = '\0';
  snprintf(name, sizeof name, "CRSH_ATTR_KEY_%zu", number);
  bool added = add_variable(helper, mem, count, name, key);
  snprintf(name, sizeof name, "CRSH_ATTR_VALUE_%zu", number);
  added = added && add_variable(helper, mem, count, name, equals ? equals + 1 : "");
  mem_free(mem, key);
  return added;
}

/* The program's environment: this process's own without CRSH_*, and what the protocol names. */
static bool make_environment(struct helper *helper, const struct mem *mem, const struct remote_url *url,
                             const char *address) {
  size_t own = 0, count = 0;
  char number[16];
  while (environ && environ[own])
    own++;
  helper->environment = mem_alloc_array(mem, own + VARIABLES + 1, sizeof *helper->environment);
  if (!helper->environment) return false;
  bool added = true;
  for (size_t i = 0; i < own && added; i++)
    if (strncmp(environ[i], "CRSH_", 5) != 0)
      added = (helper->environment[count] = mem_strdup(mem, environ[i])) != NULL && ++count;
  snprintf(number, sizeof number, "%zu", url->attribute_count);
  added = added && add_variable(helper, mem, &count, "CRSH_IPC_ENDPOINT", helper->socket) &&
          add_variable(helper, mem, &count, "CRSH_URL", address) &&
          add_variable(helper, mem, &count, "CRSH_IDLE_TIMEOUT", IDLE_S) &&
          add_variable(helper, mem, &count, "CRSH_NUM_ATTR", number);
  for (size_t i = 0; i < url->attribute_count && added; i++)
    added = add_attribute(helper, mem, &count, url->attributes[i], i);
  return added;
}

kjit_status helper_name(struct helper *helper, const struct mem *mem, const struct remote_url *url, kjit_error *error) {
  char folder[HELPER_PATH_BYTES];
  const char *const address = url->address + strlen("ccache+");
  const size_t scheme = strspn(address, "abcdefghijklmnopqrstuvwxyz0123456789+-");
  if (!scheme || scheme > 40 || strncmp(address + scheme, "://", 3) != 0)
    return error_set(error, KJIT_ERR_INVALID_ARG, "must be ccache+SCHEME://..., for the helper ccache-storage-SCHEME");
  const kjit_status status = make_folder(folder, error);
  if (status != KJIT_OK) return status;
  snprintf(helper->program, sizeof helper->program, "ccache-storage-%.*s", (int)scheme, address);
  name_socket(helper, url, folder);
  return make_environment(helper, mem, url, address) ? KJIT_OK : error_no_memory(error);
}

/* Let the system forget the helper that was started last, if it has ended. */
static void forget_ended(struct helper *helper) {
  const long process = atomic_exchange(&helper->process, 0);
  if (process && waitpid((pid_t)process, NULL, WNOHANG) == 0) atomic_store(&helper->process, process);
}

void helper_finish(struct helper *helper, const struct mem *mem) {
  forget_ended(helper);
  for (char **variable = helper->environment; variable && *variable; variable++) {
    explicit_bzero(*variable, strlen(*variable)); /* an attribute may be a password */
    mem_free(mem, *variable);
  }
  mem_free(mem, (void *)helper->environment);
  helper->environment = NULL;
}

/* ---- Starting ---- */

/* Nothing that this process has open may stay open in a program that outlives it. Closing what is closed already is no
 * failure there. */
static int close_others(posix_spawn_file_actions_t *actions) {
  DIR *const folder = opendir("/proc/self/fd");
  int failed = 0;
  if (!folder) return 0;
  for (const struct dirent *entry; !failed && (entry = readdir(folder));) {
    const long file = strtol(entry->d_name, NULL, 10);
    if (file > 2) failed = posix_spawn_file_actions_addclose(actions, (int)file);
  }
  (void)closedir(folder);
  return failed;
}

static int set_files(posix_spawn_file_actions_t *actions) {
  int failed = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDWR, 0);
  if (!failed) failed = posix_spawn_file_actions_adddup2(actions, 0, 1);
  if (!failed) failed = posix_spawn_file_actions_adddup2(actions, 0, 2);
  return failed ? failed : close_others(actions);
}

static void set_attributes(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  (void)posix_spawnattr_setsigmask(attributes, &none);
  (void)posix_spawnattr_setsigdefault(attributes, &all);
  (void)posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
}

/* True when the program was started; whether it works is seen by connecting. */
static bool start(struct helper *helper) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  char program[sizeof helper->program];
  char *const arguments[] = {program, NULL};
  pid_t process = 0;
  if (!secure_getenv("PATH")) return false;
  memcpy(program, helper->program, sizeof program);
  if (posix_spawn_file_actions_init(&actions)) return false;
  int failed = posix_spawnattr_init(&attributes);
  if (!failed) {
    set_attributes(&attributes);
    failed = set_files(&actions);
    if (!failed) failed = posix_spawnp(&process, program, &actions, &attributes, arguments, helper->environment);
    (void)posix_spawnattr_destroy(&attributes);
  }
  (void)posix_spawn_file_actions_destroy(&actions);
  if (!failed) atomic_store(&helper->process, process);
  return !failed;
}

/* The lock that lets one process start the helper; -1: another has it. It goes with the file's closing. */
static int take_lock(const struct helper *helper) {
  char path[HELPER_PATH_BYTES + 8];
  snprintf(path, sizeof path, "%s.lock", helper->socket);
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0 || !flock(file, LOCK_EX | LOCK_NB)) return file;
  (void)close(file);
  return -1;
}

/* Connect until the helper answers or the time is over. With a lock, who starts it is this process, once. */
static bool connect_starting(struct helper *helper, struct remote_wire *wire, int64_t deadline_ns) {
  static const struct timespec pause = {.tv_nsec = POLL_NS};
  bool connected = false, started = false;
  int lock = -1;
  while (!connected && remote_left_ms(deadline_ns)) {
    if (lock < 0) lock = take_lock(helper);
    connected = remote_wire_open(wire, helper->socket, NULL, deadline_ns);
    if (!connected && lock >= 0 && !started) {
      (void)unlink(helper->socket);
      forget_ended(helper);
      started = true;
      if (!start(helper)) break;
    }
    if (!connected) (void)nanosleep(&pause, NULL);
  }
  if (lock >= 0) (void)close(lock);
  return connected;
}

bool helper_connect(struct helper *helper, struct remote_wire *wire, int64_t deadline_ns) {
  if (remote_wire_open(wire, helper->socket, NULL, deadline_ns)) return true;
  return *helper->program && connect_starting(helper, wire, deadline_ns);
}
