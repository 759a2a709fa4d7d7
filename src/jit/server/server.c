/* The compile server, the library's side: server.h tells what it is for.
 *
 * 1. The first job finds the worker's program and starts it; every job sends it one end of a socket pair.
 * 2. The job talks over the other end (server_job.c) until it has its answer, or shuts the socket down, upon which the
 *    server kills the job's process.
 * 3. When the server itself has died, the next job starts another. After BROKEN_AFTER deaths in a row, or when it
 *    cannot be started, there is none any more, the log says why, and callers compile in their own process.
 *
 * Threads: any number run jobs. `mutex` guards the fields below it, and is held while the process is started, which is
 * the only wait under it, so that threads that come together start one. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "jit/compile/preamble.h"
#include "jit/server/idle_jobs.h"
#include "jit/server/server.h"
#include "jit/server/server_job.h"
#include "jit/server/worker.h"

/* After this many deaths of the server without an answer between them no further one is started. */
#define BROKEN_AFTER 3

struct compile_server {
  struct compile_server_settings settings;
  char *asked; /* path of the worker; NULL: the usual places */
  struct keepers keepers;
  struct idle_jobs idle;
  pthread_mutex_t mutex;
  pid_t process; /* 0: none */
  int control;   /* -1: none */
  uint64_t generation;
  unsigned deaths;
  bool broken;
};

/* The default bound on a compile's memory: a compile that needs more than the machine has would not end anyway. */
static uint64_t machine_memory(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

kjit_status compile_server_create(struct compile_server **out, const struct compile_server_settings *settings,
                                  kjit_error *error) {
  const struct mem *mem = settings->mem;
  struct compile_server *server = mem_alloc(mem, sizeof *server);
  *out = NULL;
  if (!server) return error_no_memory(error);
  server->settings = *settings;
  if (!server->settings.memory_bytes) server->settings.memory_bytes = machine_memory();
  server->control = -1;
  server->asked = mem_strdup(mem, settings->worker_path);
  const bool sound = server->asked || !settings->worker_path;
  if (sound && keepers_init(&server->keepers)) {
    if (idle_jobs_init(&server->idle)) {
      if (!pthread_mutex_init(&server->mutex, NULL)) {
        *out = server;
        return KJIT_OK;
      }
      idle_jobs_finish(&server->idle);
    }
    keepers_finish(&server->keepers);
  }
  mem_free(mem, server->asked);
  mem_free(mem, server);
  return error_no_memory(error);
}

/* The caller holds the mutex. */
static void end_process(struct compile_server *server) {
  if (server->control >= 0) (void)close(server->control);
  if (server->process) spawn_end(server->process);
  server->control = -1;
  server->process = 0;
}

void compile_server_destroy(struct compile_server *server) {
  if (!server) return;
  const struct mem *mem = server->settings.mem;
  idle_jobs_finish(&server->idle);
  keepers_finish(&server->keepers);
  end_process(server);
  pthread_mutex_destroy(&server->mutex);
  mem_free(mem, server->asked);
  mem_free(mem, server);
}

/* ---- The process ---- */

/* Start the server's process unless it is running. The caller holds the mutex. */
static kjit_status ensure_process(struct compile_server *server, const char *nvrtc_path, kjit_error *error) {
  char path[DYNLIB_PATH_BYTES];
  if (server->process) return KJIT_OK;
  kjit_status status = spawn_find(path, server->asked, server->settings.use_environment, error);
  if (status == KJIT_OK) status = spawn_start(path, nvrtc_path, &server->process, &server->control, error);
  if (status == KJIT_OK) server->generation++;
  return status;
}

/* Send a packet to the server, which is started if it is not running. CHANNEL_CLOSED when it cannot be. */
static enum channel_end send_packet(struct compile_server *server, uint32_t number, const int *sockets, size_t count,
                                    uint64_t *generation) {
  kjit_error error = {0};
  bool tell = false;
  enum channel_end end = CHANNEL_CLOSED;
  const char *nvrtc_path = nvrtc_file(server->settings.nvrtc, &error);
  pthread_mutex_lock(&server->mutex);
  if (!server->broken && nvrtc_path) {
    if (ensure_process(server, nvrtc_path, &error) == KJIT_OK)
      end = packet_send(server->control, number, sockets, count);
    else
      tell = server->broken = 1;
  }
  *generation = server->generation;
  pthread_mutex_unlock(&server->mutex);
  if (tell)
    log_write(server->settings.log, KJIT_LOG_WARNING,
              "no compile server: %s; kernels are compiled in this process, where a compiler that crashes or hangs "
              "takes the process with it",
              error.message);
  return end;
}

/* True when the server has closed its end of the control socket. The caller holds the mutex. */
static bool has_ended(const struct compile_server *server) {
  struct pollfd control = {.fd = server->control};
  return server->control < 0 || (poll(&control, 1, 0) > 0 && control.revents & (POLLHUP | POLLERR));
}

/* Forget the server of this generation if it has died, or in any case. Returns false when it lives on. */
static bool lose_process(struct compile_server *server, uint64_t generation, bool in_any_case) {
  bool tell = false;
  pthread_mutex_lock(&server->mutex);
  const bool is_it = server->generation == generation && server->process;
  const bool lost = is_it && (in_any_case || has_ended(server));
  if (lost) {
    end_process(server);
    server->deaths++;
    tell = server->deaths >= BROKEN_AFTER && !server->broken;
    if (tell) server->broken = 1;
  }
  pthread_mutex_unlock(&server->mutex);
  if (lost) keepers_forget(&server->keepers);
  if (tell)
    log_write(server->settings.log, KJIT_LOG_WARNING,
              "no compile server: it ended %d times in a row without an answer; kernels are compiled in this process",
              BROKEN_AFTER);
  return lost || !is_it;
}

static void note_answer(struct compile_server *server) {
  pthread_mutex_lock(&server->mutex);
  server->deaths = 0;
  pthread_mutex_unlock(&server->mutex);
}

/* ---- A job ---- */

static bool open_pair(int ends[2]) {
  return !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

/* Shut the socket down, so that the other end sees the end even if a forked process still holds a copy of ours. */
static void close_end(int socket) {
  (void)shutdown(socket, SHUT_RDWR);
  (void)close(socket);
}

/* Hand a socket to the server or to the process that holds a preamble; waits while too many jobs are queued. */
static enum channel_end hand_over(struct compile_server *server, struct server_job *job, bool with_pch, int socket,
                                  uint64_t *generation) {
  for (;;) {
    const enum channel_end end = with_pch ? keepers_send(&server->keepers, &job->preamble, WORKER_JOB, socket)
                                          : send_packet(server, WORKER_JOB, &socket, 1, generation);
    if (end != CHANNEL_LATE) return end;
    if (job->stop && job->stop(job->stop_user)) return CHANNEL_STOPPED;
    (void)usleep(1000);
  }
}

static void forget_last_words(struct compile_server *server, struct server_job *job) {
  mem_free(server->settings.mem, job->last_words);
  job->last_words = NULL;
}

/* Have the process at the other end of the socket do the job. It is kept for another one when it gave a sound answer;
 * else the socket is closed, which ends it. */
static enum job_end talk(struct compile_server *server, struct server_job *job, bool with_pch, int socket,
                         kjit_status *status) {
  struct channel channel = {.mem = server->settings.mem,
                            .socket = socket,
                            .stop = job->stop,
                            .stop_user = job->stop_user,
                            .until_ns = INT64_MAX};
  const enum wire_work work = with_pch ? WIRE_COMPILE_PCH : WIRE_COMPILE;
  const enum job_end end = server_job_talk(&server->settings, job, &channel, work, status);
  if (end == JOB_ANSWERED && (*status == KJIT_OK || *status == KJIT_ERR_COMPILE))
    idle_jobs_put(&server->idle, with_pch ? &job->preamble : NULL, socket);
  else
    close_end(socket);
  return end;
}

/* Try a process that has served before. What goes wrong there may come from an earlier kernel, so only an answer and
 * the caller's own wish to stop count; a new process shows the rest. */
static bool run_idle(struct compile_server *server, struct server_job *job, bool with_pch, kjit_status *status,
                     enum job_end *end) {
  const int socket = idle_jobs_take(&server->idle, with_pch ? &job->preamble : NULL);
  if (socket < 0) return false;
  *end = talk(server, job, with_pch, socket, status);
  if (*end == JOB_STOPPED || (*end == JOB_ANSWERED && *status != KJIT_ERR_NO_MEMORY)) return true;
  forget_last_words(server, job);
  compile_result_finish(job->result, server->settings.mem);
  error_clear(job->error);
  return false;
}

static enum job_end run_once(struct compile_server *server, struct server_job *job, bool with_pch, kjit_status *status,
                             uint64_t *generation) {
  int ends[2];
  *generation = 0;
  if (!open_pair(ends)) return JOB_NOWHERE;
  const enum channel_end handed = hand_over(server, job, with_pch, ends[1], generation);
  (void)close(ends[1]);
  if (handed == CHANNEL_OK) return talk(server, job, with_pch, ends[0], status);
  close_end(ends[0]);
  return handed == CHANNEL_STOPPED ? JOB_STOPPED : JOB_NOWHERE;
}

/* Ask for a process that precompiles the preamble. `ours` and `theirs` are the ends of its two sockets. */
static bool send_for_keeper(struct compile_server *server, const struct server_job *job, const int ours[2],
                            const int theirs[2]) {
  uint64_t generation;
  struct channel channel = {.mem = server->settings.mem,
                            .socket = ours[0],
                            .stop = job->stop,
                            .stop_user = job->stop_user,
                            .until_ns = INT64_MAX};
  if (send_packet(server, WORKER_KEEPER, theirs, 2, &generation) != CHANNEL_OK) return false;
  return server_job_begin(&server->settings, job, &channel, WIRE_CREATE_PCH) == JOB_ANSWERED;
}

static void make_keeper(struct compile_server *server, const struct server_job *job) {
  int stream[2] = {-1, -1}, control[2] = {-1, -1};
  bool sent = open_pair(stream) && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control);
  if (sent) {
    const int ours[] = {stream[0], control[0]}, theirs[] = {stream[1], control[1]};
    sent = send_for_keeper(server, job, ours, theirs);
  }
  if (stream[1] >= 0) (void)close(stream[1]);
  if (control[1] >= 0) (void)close(control[1]);
  if (sent) {
    keepers_made(&server->keepers, &job->preamble, stream[0], control[0]);
    return;
  }
  if (stream[0] >= 0) close_end(stream[0]);
  if (control[0] >= 0) (void)close(control[0]);
  keepers_refuse(&server->keepers, &job->preamble);
}

/* True when there is a precompiled header to use. Has one made where it is worth it. */
static bool find_keeper(struct compile_server *server, struct server_job *job) {
  const bool eager = server->settings.pch == KJIT_PCH_ALWAYS;
  job->has_preamble =
      server->settings.pch != KJIT_PCH_OFF && preamble_identify(job->request, job->identity, &job->preamble);
  if (!job->has_preamble) return false;
  for (;;) {
    switch (keepers_ask(&server->keepers, &job->preamble, eager)) {
    case KEEPER_USE:
      return true;
    case KEEPER_MAKE:
      make_keeper(server, job);
      if (!eager) return false;
      break;
    case KEEPER_WAIT:
      if (job->stop && job->stop(job->stop_user)) return false;
      (void)usleep(2000);
      break;
    case KEEPER_COMPILE_PLAINLY:
      return false;
    }
  }
}

static enum job_end run(struct compile_server *server, struct server_job *job, kjit_status *status) {
  uint64_t generation;
  enum job_end idle_end;
  if (find_keeper(server, job)) {
    if (run_idle(server, job, 1, status, &idle_end)) return idle_end;
    const enum job_end end = run_once(server, job, 1, status, &generation);
    if (end == JOB_ANSWERED || end == JOB_STOPPED) return end;
    /* Whatever went wrong, a plain compile will show whether the source was at fault. */
    if (end == JOB_DIED || end == JOB_LOST) keepers_refuse(&server->keepers, &job->preamble);
    forget_last_words(server, job);
  }
  if (run_idle(server, job, 0, status, &idle_end)) return idle_end;
  for (int tries = 0;; tries++) {
    const enum job_end end = run_once(server, job, 0, status, &generation);
    const bool is_lost = end == JOB_LOST || end == JOB_NOWHERE || end == JOB_SILENT;
    if (!is_lost || !generation || tries == BROKEN_AFTER) return end;
    if (!lose_process(server, generation, end == JOB_SILENT)) return end;
  }
}

bool compile_server_run(struct compile_server *server, const struct jit_request *request, compile_stop stop,
                        void *stop_user, struct compile_result *result, kjit_status *status, kjit_error *error) {
  struct server_job job = {.request = request, .stop = stop, .stop_user = stop_user, .result = result, .error = error};
  *result = (struct compile_result){0};
  if (compile_tools_of(request) == COMPILE_TOOLS_NONE) return false; /* nothing that could crash */
  job.identity = compile_identity(server->settings.nvrtc, request, NULL);
  if (!job.identity) return false;
  enum job_end end = run(server, &job, status);
  switch (end) {
  case JOB_ANSWERED:
    note_answer(server);
    break;
  case JOB_DIED:
    note_answer(server);
    *status = server_job_explain(&server->settings, &job);
    break;
  case JOB_STOPPED:
    *status = error_set(error, KJIT_ERR_CANCELLED, "kernel %s for %s: the compile was stopped", request->entry,
                        request->target.name);
    break;
  case JOB_NO_MEMORY:
    *status = error_no_memory(error);
    break;
  case JOB_LOST:
    *status =
        error_set(error, KJIT_ERR_INTERNAL, "kernel %s for %s: the compiler's process ended without a sound answer",
                  request->entry, request->target.name);
    break;
  case JOB_NOWHERE:
  case JOB_SILENT:
    break;
  }
  mem_free(server->settings.mem, job.last_words);
  return end != JOB_NOWHERE && end != JOB_SILENT;
}

/* ---- fork() ---- */

void compile_server_fork_prepare(struct compile_server *server) {
  if (!server) return;
  pthread_mutex_lock(&server->mutex);
  keepers_fork_prepare(&server->keepers);
  idle_jobs_fork_prepare(&server->idle);
}

void compile_server_fork_parent(struct compile_server *server) {
  if (!server) return;
  idle_jobs_fork_parent(&server->idle);
  keepers_fork_parent(&server->keepers);
  pthread_mutex_unlock(&server->mutex);
}

/* The server's process is the parent's child, so this process must neither use it nor wait for it. */
void compile_server_fork_child(struct compile_server *server) {
  if (!server) return;
  idle_jobs_fork_child(&server->idle);
  keepers_fork_child(&server->keepers);
  if (server->control >= 0) (void)close(server->control);
  server->control = -1;
  server->process = 0;
  server->deaths = 0;
  server->broken = 0;
  pthread_mutex_unlock(&server->mutex);
}
