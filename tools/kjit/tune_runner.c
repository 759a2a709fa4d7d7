/* Times candidates by the user's program.
 *
 * 1. runner_set() takes a problem and its candidates.
 * 2. runner_time() writes the candidate's cubin to a file, once, and sends one line of words NAME=VALUE:
 *    "time problem=... config=... arch=... entry=... block=x,y,z cluster=x,y,z shared=N grid=x,y,z cubin=PATH".
 * 3. The program answers a line: microseconds; or "error" or "wrong" and a sentence.
 * 4. Whoever answers anything else, ends, or is silent for too long costs the candidate; a program that is gone, or
 *    whose answer is still to come, is killed and started again for the next line, because otherwise its late answer
 *    would be taken for another candidate's.
 *
 * One thread. */
#include "tune_runner.h"

#include "command.h"
#include "interrupt.h"
#include "progress.h"
#include "request_list.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longest answer: a sentence. Longest request: a problem, a config and a path. */
#define ANSWER_MAX  1024
#define REQUEST_MAX (2 * KJIT_FAMILY_PROBLEM_TEXT_MAX + 8192)

struct tune_runner {
  const char *command;
  double seconds;
  kjit_device_info device;
  const char *arch;
  kjit_runtime *runtime;
  char folder[64]; /* of the cubins */
  pid_t process;   /* 0: not running */
  int to, from;    /* its standard input and output */
  char answer[ANSWER_MAX];
  size_t answer_bytes; /* that were read of the present line */
  const kjit_family_problem *problem;
  const struct stage_entrant *entrants;
  char **requests; /* of each entrant; NULL until it is first timed */
  size_t count, written;
};

/* ---- The process ---- */

/* End the program and say how it ended. It has its own process group, so that what a shell started ends with it. */
static void stop(struct tune_runner *runner, char how[64]) {
  int status = 0;
  if (runner->process == 0) return;
  close(runner->to);
  close(runner->from);
  /* A program that ended by itself is not killed any more, so that its own status is told. */
  const pid_t done = waitpid(runner->process, &status, WNOHANG);
  if (done == 0) {
    kill(-runner->process, SIGKILL);
    waitpid(runner->process, &status, 0);
  }
  if (how != NULL && WIFSIGNALED(status))
    snprintf(how, 64, "was ended by signal %d", WTERMSIG(status));
  else if (how != NULL)
    snprintf(how, 64, "ended with exit code %d", WEXITSTATUS(status));
  runner->process = 0;
  runner->answer_bytes = 0;
}

static kjit_status spawn(struct tune_runner *runner, int input, int output, kjit_error *error) {
  char *words[] = {"sh", "-c", (char *)runner->command, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const int failed = posix_spawn(&runner->process, "/bin/sh", &files, &attributes, words, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed == 0) return KJIT_OK;
  runner->process = 0;
  return error_say(error, KJIT_ERR_IO, "the runner was not started: %s", strerror(failed));
}

static kjit_status start(struct tune_runner *runner, kjit_error *error) {
  int input[2], output[2];
  if (runner->process != 0) return KJIT_OK;
  if (pipe2(input, O_CLOEXEC) != 0) return error_say(error, KJIT_ERR_IO, "pipe: %s", strerror(errno));
  if (pipe2(output, O_CLOEXEC) != 0) {
    close(input[0]);
    close(input[1]);
    return error_say(error, KJIT_ERR_IO, "pipe: %s", strerror(errno));
  }
  const kjit_status status = spawn(runner, input[0], output[1], error);
  close(input[0]);
  close(output[1]);
  runner->to = input[1];
  runner->from = output[0];
  if (status == KJIT_OK) return KJIT_OK;
  close(input[1]);
  close(output[0]);
  return status;
}

/* ---- Lines ---- */

static bool send_line(const struct tune_runner *runner, const char *line) {
  size_t left = strlen(line);
  while (left > 0) {
    const ssize_t piece = write(runner->to, line, left);
    if (piece < 0 && errno == EINTR && interrupt_signal() == 0) continue;
    if (piece <= 0) return false;
    line += piece;
    left -= (size_t)piece;
  }
  return true;
}

enum heard { HEARD_LINE, HEARD_END, HEARD_NOTHING, HEARD_INTERRUPT, HEARD_TOO_MUCH };

static enum heard receive_line(struct tune_runner *runner) {
  const double until = seconds_now() + runner->seconds;
  for (;;) {
    char *const end = memchr(runner->answer, '\n', runner->answer_bytes);
    if (end != NULL) {
      *end = '\0';
      const bool more = end + 1 < runner->answer + runner->answer_bytes;
      runner->answer_bytes = 0;
      return more ? HEARD_TOO_MUCH : HEARD_LINE;
    }
    if (runner->answer_bytes == sizeof runner->answer) return HEARD_TOO_MUCH;
    const double left = until - seconds_now();
    if (interrupt_signal() != 0) return HEARD_INTERRUPT;
    if (left <= 0) return HEARD_NOTHING;
    struct pollfd event = {.fd = runner->from, .events = POLLIN};
    if (poll(&event, 1, left < 0.2 ? (int)(1000 * left) + 1 : 200) <= 0) continue;
    const ssize_t piece =
        read(runner->from, runner->answer + runner->answer_bytes, sizeof runner->answer - runner->answer_bytes);
    if (piece < 0 && errno == EINTR) continue;
    if (piece <= 0) return HEARD_END;
    runner->answer_bytes += (size_t)piece;
  }
}

static kjit_status take_answer(struct tune_runner *runner, double *microseconds, kjit_error *error) {
  char *end;
  const char *const answer = runner->answer;
  if (strncmp(answer, "error ", 6) == 0) return error_say(error, KJIT_ERR_DRIVER, "the runner: %s", answer + 6);
  if (strncmp(answer, "wrong ", 6) == 0)
    return error_say(error, KJIT_ERR_DRIVER, "the runner says that the result is wrong: %s", answer + 6);
  *microseconds = strtod(answer, &end);
  if (end != answer && *end == '\0' && *microseconds > 0 && *microseconds < 86400e6) return KJIT_OK;
  return error_say(
      error, KJIT_ERR_PARSE,
      "the runner answered \"%.80s\": expected microseconds above 0, or \"error\" or \"wrong\" and a sentence", answer);
}

static kjit_status talk(struct tune_runner *runner, const char *request, double *microseconds, kjit_error *error) {
  char how[64] = "";
  const kjit_status status = start(runner, error);
  if (status != KJIT_OK) return status;
  const enum heard heard = send_line(runner, request) ? receive_line(runner) : HEARD_END;
  if (heard == HEARD_LINE) return take_answer(runner, microseconds, error);
  if (heard == HEARD_END) usleep(20000); /* its end of the pipe closes a moment before it can be waited for */
  stop(runner, how);
  if (heard == HEARD_INTERRUPT) return error_say(error, KJIT_ERR_CANCELLED, "not measured: interrupted");
  if (heard == HEARD_END) return error_say(error, KJIT_ERR_DRIVER, "the runner %s before it answered", how);
  if (heard == HEARD_NOTHING)
    return error_say(error, KJIT_ERR_TIMEOUT, "the runner did not answer within %.0f s and was ended", runner->seconds);
  return error_say(error, KJIT_ERR_PARSE, "the runner answered more than one line of %d bytes and was ended",
                   ANSWER_MAX);
}

/* ---- Requests ---- */

static kjit_status write_cubin(const char *path, const kjit_artifact_info *info, kjit_error *error) {
  FILE *stream = fopen(path, "wbx");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  const bool written = fwrite(info->cubin, 1, info->cubin_bytes, stream) == info->cubin_bytes;
  if (fclose(stream) == 0 && written) return KJIT_OK;
  return error_say(error, KJIT_ERR_IO, "%s: not written", path);
}

static void print_three(char text[64], const uint32_t of[3]) {
  snprintf(text, 64, "%u,%u,%u", of[0], of[1], of[2]);
}

/* The words of a request. A grid that the problem's parameters do not give is "-". */
static void print_request(const struct tune_runner *runner, const kjit_config *config, const char *entry,
                          const char *path, char *request) {
  const kjit_geometry geometry = kjit_config_geometry(config);
  char problem[KJIT_FAMILY_PROBLEM_TEXT_MAX], text[KJIT_CONFIG_TEXT_MAX], block[64], cluster[64], blocks[64] = "-";
  uint32_t grid[3];
  kjit_error error = {0};
  request_print_config(config, text);
  if (kjit_family_problem_print(runner->problem, problem, sizeof problem, &error) != KJIT_OK) problem[0] = '\0';
  if (kjit_family_grid(config, runner->problem->parameters, runner->device.multiprocessors, grid, &error) == KJIT_OK)
    print_three(blocks, grid);
  print_three(block, geometry.threads);
  print_three(cluster, geometry.cluster);
  snprintf(request, REQUEST_MAX,
           "time problem=%s config=%s arch=%s entry=%s block=%s cluster=%s shared=%u grid=%s cubin=%s\n", problem, text,
           runner->arch, entry, block, cluster, geometry.shared_bytes, blocks, path);
}

static kjit_status make_request(struct tune_runner *runner, size_t entrant, kjit_error *error) {
  const kjit_config *const config = runner->entrants[entrant].config;
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  char path[128];
  kjit_status status = kjit_config_build(runner->runtime, config, runner->arch, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  snprintf(path, sizeof path, "%s/%zu.cubin", runner->folder, runner->written++);
  if (status == KJIT_OK) status = write_cubin(path, &info, error);
  char *const request = status == KJIT_OK ? malloc(REQUEST_MAX) : NULL;
  if (request != NULL) {
    print_request(runner, config, info.entry, path, request);
    runner->requests[entrant] = strdup(request);
  }
  free(request);
  kjit_artifact_release(artifact);
  if (status == KJIT_OK && runner->requests[entrant] == NULL)
    return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for a request to the runner");
  return status;
}

kjit_status runner_time(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  struct tune_runner *const runner = user;
  kjit_status status = KJIT_OK;
  if (runner->requests[entrant] == NULL) status = make_request(runner, entrant, error);
  return status == KJIT_OK ? talk(runner, runner->requests[entrant], microseconds, error) : status;
}

/* ---- Beginning and end ---- */

static void clear(struct tune_runner *runner) {
  char path[128];
  for (size_t i = 0; i < runner->count; i++)
    free(runner->requests[i]);
  free(runner->requests);
  for (size_t i = 0; i < runner->written; i++) {
    snprintf(path, sizeof path, "%s/%zu.cubin", runner->folder, i);
    (void)unlink(path);
  }
  runner->requests = NULL;
  runner->count = runner->written = 0;
}

kjit_status runner_set(struct tune_runner *runner, const kjit_family_problem *problem,
                       const struct stage_entrant *entrants, size_t count, kjit_error *error) {
  clear(runner);
  runner->requests = calloc(count, sizeof *runner->requests);
  if (runner->requests == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu requests", count);
  runner->count = count;
  runner->problem = problem;
  runner->entrants = entrants;
  return KJIT_OK;
}

static kjit_status make_folder(struct tune_runner *runner, kjit_error *error) {
  const char *place = getenv("TMPDIR");
  if (place == NULL || place[0] != '/' || strlen(place) > 40 || strpbrk(place, " \t\n") != NULL) place = "/tmp";
  snprintf(runner->folder, sizeof runner->folder, "%s/kjit-tune-XXXXXX", place);
  if (mkdtemp(runner->folder) != NULL) return KJIT_OK;
  const kjit_status status = error_say(error, KJIT_ERR_IO, "%s: %s", runner->folder, strerror(errno));
  runner->folder[0] = '\0';
  return status;
}

kjit_status runner_open(struct tune_runner **out, const char *command, uint64_t seconds, const kjit_device_info *device,
                        const char *arch, kjit_error *error) {
  struct tune_runner *runner = calloc(1, sizeof *runner);
  *out = NULL;
  if (runner == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for the runner");
  runner->command = command;
  runner->seconds = (double)seconds;
  runner->device = *device;
  runner->arch = arch;
  signal(SIGPIPE, SIG_IGN); /* a program that ended is noticed by the failed write */
  kjit_status status = open_runtime(&runner->runtime, error);
  if (status == KJIT_OK) status = make_folder(runner, error);
  if (status == KJIT_OK)
    *out = runner;
  else
    runner_close(runner);
  return status;
}

void runner_close(struct tune_runner *runner) {
  if (runner == NULL) return;
  stop(runner, NULL);
  clear(runner);
  if (runner->folder[0] != '\0') (void)rmdir(runner->folder);
  kjit_runtime_destroy(runner->runtime);
  free(runner);
}
