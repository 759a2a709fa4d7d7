/* The table of job processes that wait for another request: see idle_jobs.h.
 *
 * The process used last is taken first, so that those that are not needed stay unused and end. One mutex guards the
 * table; nothing waits while it is held. Any thread. */
#include "jit/server/idle_jobs.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool idle_jobs_init(struct idle_jobs *idle) {
  idle->count = 0;
  return !pthread_mutex_init(&idle->mutex, NULL);
}

/* Shut the socket down before it is closed, otherwise a forked process with a copy of it would keep the job alive. */
static void end_job(int socket) {
  (void)shutdown(socket, SHUT_RDWR);
  (void)close(socket);
}

void idle_jobs_finish(struct idle_jobs *idle) {
  for (size_t i = 0; i < idle->count; i++)
    end_job(idle->table[i].socket);
  idle->count = 0;
  pthread_mutex_destroy(&idle->mutex);
}

static bool fits(const struct idle_job *job, const struct digest *preamble) {
  return preamble ? job->has_preamble && digest_equal(&job->preamble, preamble) : !job->has_preamble;
}

static void take_out(struct idle_jobs *idle, size_t at) {
  memmove(&idle->table[at], &idle->table[at + 1], (--idle->count - at) * sizeof *idle->table);
}

int idle_jobs_take(struct idle_jobs *idle, const struct digest *preamble) {
  int socket = -1;
  pthread_mutex_lock(&idle->mutex);
  for (size_t i = idle->count; i-- > 0 && socket < 0;) {
    if (!fits(&idle->table[i], preamble)) continue;
    socket = idle->table[i].socket;
    take_out(idle, i);
  }
  pthread_mutex_unlock(&idle->mutex);
  return socket;
}

static bool has_ended(int socket) {
  struct pollfd other_end = {.fd = socket};
  return poll(&other_end, 1, 0) > 0;
}

/* Close the sockets of processes that have ended, otherwise they would fill the table. */
static void drop_ended(struct idle_jobs *idle) {
  for (size_t i = idle->count; i-- > 0;) {
    if (!has_ended(idle->table[i].socket)) continue;
    (void)close(idle->table[i].socket);
    take_out(idle, i);
  }
}

void idle_jobs_put(struct idle_jobs *idle, const struct digest *preamble, int socket) {
  struct idle_job job = {.socket = socket, .has_preamble = preamble != NULL};
  if (preamble) job.preamble = *preamble;
  pthread_mutex_lock(&idle->mutex);
  drop_ended(idle);
  if (idle->count == IDLE_JOBS_MOST) {
    end_job(idle->table[0].socket);
    take_out(idle, 0);
  }
  idle->table[idle->count++] = job;
  pthread_mutex_unlock(&idle->mutex);
}

void idle_jobs_fork_prepare(struct idle_jobs *idle) {
  pthread_mutex_lock(&idle->mutex);
}

void idle_jobs_fork_parent(struct idle_jobs *idle) {
  pthread_mutex_unlock(&idle->mutex);
}

/* The sockets are closed and not shut down, because the parent goes on with them. */
void idle_jobs_fork_child(struct idle_jobs *idle) {
  for (size_t i = 0; i < idle->count; i++)
    (void)close(idle->table[i].socket);
  idle->count = 0;
  pthread_mutex_unlock(&idle->mutex);
}
