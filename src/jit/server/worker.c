/* A worker server: one thread that waits for packets and for its children, forks, kills and reaps. worker.h tells the
 * life of a job.
 *
 * This file is the body of a program of its own, kjit-compile-worker: it alone in the library ends the process that it
 * runs in, and that process is never a user's. It blocks SIGCHLD and reads it from a descriptor, so that nothing runs
 * in a handler. A server never waits for a socket of a job; only the job's process does. */
#include "jit/server/worker.h"

#include <kjit/worker.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/server/channel.h"
#include "jit/server/worker_job.h"

/* Jobs of one server at once; what is beyond waits in the control socket. */
#define JOBS_MAX 1024

/* A server that holds a precompiled header ends after this time without a job, so that its memory is free again. */
#define KEEPER_IDLE_MS (120 * 1000)

/* The end of what a dead process had written: more does not fit an error message and its log. */
#define SAID_MAX 4096

/* The score by which the kernel chooses what to kill when memory is short: rather a compile than the program that asked
 * for it. */
#define OOM_SCORE "800"

struct running {
  pid_t process;
  int socket;    /* of the job: closed by the library when it no longer wants it */
  int said;      /* what the process writes on its standard output and error; -1: nowhere */
  bool unwanted; /* the library has closed its end, and the process was killed */
};

struct server {
  struct mem mem;
  struct nvrtc *nvrtc;
  int control;
  int children; /* signalfd of SIGCHLD */
  int pch;      /* precompiled header; -1: none */
  char pch_file[64];
  struct running *jobs;
  size_t count;
};

/* ---- In a forked process ---- */

/* Close the descriptors of the server and of other jobs, otherwise they would keep sockets open that the library has
 * closed. */
static void forget_others(const struct server *server) {
  for (size_t i = 0; i < server->count; i++) {
    (void)close(server->jobs[i].socket);
    if (server->jobs[i].said >= 0) (void)close(server->jobs[i].said);
  }
  (void)close(server->control);
  (void)close(server->children);
}

static void speak_into(int said) {
  const int sink = said >= 0 ? said : open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (sink < 0) return;
  (void)dup2(sink, STDOUT_FILENO);
  (void)dup2(sink, STDERR_FILENO);
}

/* Ask the kernel to kill this process when the server dies, and end at once if it already has. */
static void tie_to(pid_t server) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(EXIT_FAILURE);
}

static int serve(struct server *server);

static _Noreturn void be_job(struct server *server, int socket) {
  const struct worker_job job = {&server->mem, server->nvrtc, socket, server->pch >= 0 ? server->pch_file : NULL};
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  _exit(worker_job_run(&job) ? EXIT_SUCCESS : EXIT_FAILURE);
}

static _Noreturn void be_keeper(struct server *server, int socket, int control) {
  const struct worker_job job = {&server->mem, server->nvrtc, socket, NULL};
  server->count = 0;
  server->control = control;
  server->children = -1;
  if (!worker_job_precompile(&job, &server->pch)) _exit(EXIT_SUCCESS); /* it has said why */
  (void)snprintf(server->pch_file, sizeof server->pch_file, "/proc/self/fd/%d", server->pch);
  _exit(serve(server));
}

/* ---- In the server ---- */

static bool can_hold_more(const struct server *server) {
  return server->count < JOBS_MAX;
}

static void start_job(struct server *server, uint32_t number, const int *sockets, int count) {
  const pid_t self = getpid();
  const int said = (int)syscall(SYS_memfd_create, "kjit-job", 1u /* MFD_CLOEXEC */);
  const pid_t process = fork();
  if (process == 0) {
    forget_others(server);
    tie_to(self);
    speak_into(said);
    if (number == WORKER_KEEPER) be_keeper(server, sockets[0], sockets[1]);
    be_job(server, sockets[0]);
  }
  if (count > 1) (void)close(sockets[1]);
  if (process > 0) {
    server->jobs[server->count++] = (struct running){process, sockets[0], said, 0};
    return;
  }
  /* The library sees the socket end, and compiles by itself. */
  (void)close(sockets[0]);
  if (said >= 0) (void)close(said);
}

/* Take one packet from the control socket. Returns false when the library is gone. */
static bool take_packet(struct server *server) {
  uint32_t number = 0;
  int sockets[PACKET_SOCKETS_MAX];
  const int count = packet_receive(server->control, &number, sockets);
  if (count <= 0) return false;
  if ((number == WORKER_JOB && count == 1) || (number == WORKER_KEEPER && count == 2)) {
    start_job(server, number, sockets, count);
    return true;
  }
  for (int i = 0; i < count; i++)
    (void)close(sockets[i]);
  return false;
}

static void read_said(int said, char text[SAID_MAX + 1]) {
  const off_t end = said >= 0 ? lseek(said, 0, SEEK_END) : 0;
  const off_t from = end > SAID_MAX ? end - SAID_MAX : 0;
  const ssize_t bytes = end > 0 ? pread(said, text, (size_t)(end - from), from) : 0;
  size_t out = 0;
  for (ssize_t i = 0; i < bytes; i++)
    if (text[i]) text[out++] = text[i];
  text[out] = '\0';
}

/* Tell the library how a job's process died. The library may no longer listen. */
static void report_death(const struct server *server, const struct running *job, int how, const struct rusage *usage) {
  char said[SAID_MAX + 1];
  struct text payload, frame;
  read_said(job->said, said);
  const struct wire_death death = {(uint32_t)how, (uint64_t)usage->ru_maxrss * 1024, said};
  text_init(&payload, &server->mem, 2 * SAID_MAX);
  text_init(&frame, &server->mem, 3 * SAID_MAX);
  wire_death_put(&payload, &death);
  frame_put(&frame, FRAME_DIED, payload.data, payload.bytes);
  /* Never waits: the socket's buffer holds it, unless the process died in the middle of a long answer. */
  const struct channel channel = {.socket = job->socket, .until_ns = 0};
  if (!frame.failed) (void)channel_write(&channel, frame.data, frame.bytes);
  text_finish(&frame);
  text_finish(&payload);
}

static void drop_job(struct server *server, size_t at) {
  (void)close(server->jobs[at].socket);
  if (server->jobs[at].said >= 0) (void)close(server->jobs[at].said);
  server->jobs[at] = server->jobs[--server->count];
}

static void reap(struct server *server) {
  struct signalfd_siginfo noted[8];
  struct rusage usage;
  int how;
  while (read(server->children, noted, sizeof noted) > 0) {
  }
  for (pid_t process; (process = wait4(-1, &how, WNOHANG, &usage)) > 0;) {
    for (size_t i = 0; i < server->count; i++) {
      if (server->jobs[i].process != process) continue;
      if (!WIFEXITED(how) || WEXITSTATUS(how) != EXIT_SUCCESS) report_death(server, &server->jobs[i], how, &usage);
      drop_job(server, i);
      break;
    }
  }
}

/* The library has closed the other end: it no longer wants the answer. The process is reaped when it has ended. */
static void kill_unwanted(struct server *server, const struct pollfd *polled, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct running *job = &server->jobs[i];
    if (job->unwanted || !(polled[i].revents & (POLLHUP | POLLERR))) continue;
    job->unwanted = true;
    (void)kill(job->process, SIGKILL);
  }
}

static int open_children(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  (void)sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* False: it is over. The socket of a job that is no longer wanted would end every poll until its process has been
 * reaped, so it is left out. */
static bool turn(struct server *server, struct pollfd *polled) {
  const size_t jobs = server->count;
  for (size_t i = 0; i < jobs; i++)
    polled[2 + i] = (struct pollfd){.fd = server->jobs[i].unwanted ? -1 : server->jobs[i].socket};
  polled[0] = (struct pollfd){.fd = server->children, .events = POLLIN};
  polled[1] = (struct pollfd){.fd = can_hold_more(server) ? server->control : -1, .events = POLLIN};
  const bool idle_ends = server->pch >= 0 && !jobs;
  const int ready = poll(polled, 2 + jobs, idle_ends ? KEEPER_IDLE_MS : -1);
  if (ready == 0) return false;
  if (ready < 0) return true;
  kill_unwanted(server, polled + 2, jobs);
  if (polled[0].revents) reap(server);
  return !polled[1].revents || take_packet(server);
}

static int serve(struct server *server) {
  struct pollfd *polled = calloc(2 + JOBS_MAX, sizeof *polled);
  server->jobs = calloc(JOBS_MAX, sizeof *server->jobs);
  server->children = open_children();
  const bool able = polled && server->jobs && server->children >= 0;
  while (able && turn(server, polled)) {
  }
  for (size_t i = 0; able && i < server->count; i++)
    (void)kill(server->jobs[i].process, SIGKILL);
  free(server->jobs);
  free(polled);
  return able ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Close what the program had open without close-on-exec, because it does not concern this process. */
static void close_inherited(void) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, WORKER_CONTROL + 1, ~0u, 0) == 0) return;
#endif
  struct rlimit limit;
  const int most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? (int)limit.rlim_cur : 65536;
  for (int file = WORKER_CONTROL + 1; file < most; file++)
    (void)close(file);
}

/* Best effort: if the kernel refuses the score, it chooses for itself. */
static void offer_to_be_killed(void) {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!write(file, OOM_SCORE, sizeof OOM_SCORE - 1);
  (void)close(file);
}

/* Open descriptors 0, 1 and 2 if they are closed, so that no socket gets their numbers. */
static void open_standard(void) {
  int file = open("/dev/null", O_RDWR);
  while (file >= 0 && file < WORKER_CONTROL)
    file = dup(file);
  if (file > STDERR_FILENO) (void)close(file);
}

int worker_run(const char *nvrtc_path) {
  struct server server = {.control = WORKER_CONTROL, .pch = -1};
  const struct nvrtc_api *api;
  int major, minor;
  if (fcntl(WORKER_CONTROL, F_GETFD) < 0 || !mem_init(&server.mem, NULL)) return EXIT_FAILURE;
  close_inherited();
  if (fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0) open_standard();
  (void)fcntl(WORKER_CONTROL, F_SETFD, FD_CLOEXEC);
  (void)signal(SIGPIPE, SIG_IGN);
  offer_to_be_killed();
  /* Opened here, once: the jobs inherit it. Each job finds out, and says, what is wrong with it. */
  if (nvrtc_create(&server.nvrtc, &server.mem, nvrtc_path, 0, NULL) != KJIT_OK) return EXIT_FAILURE;
  (void)nvrtc_open(server.nvrtc, &api, &major, &minor, NULL);
  const int code = serve(&server);
  nvrtc_destroy(server.nvrtc);
  return code;
}

int kjit_worker_main(int argc, char **argv) {
  return argc == 2 ? worker_run(argv[1]) : 2;
}
