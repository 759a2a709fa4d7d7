/* The line of writes to remote stores, and the thread that works it off.
 *
 * The thread is started by the first job. A job is written to the folder, then to its stores, then its lease is given
 * back. At most QUEUE_BYTES and QUEUE_JOBS wait; a further one is dropped, because a store that is slower than the
 * compiler must not cost memory. At the end what is in line is still written for `end_ms`, and the rest dropped.
 *
 * `mutex` guards all members; it is not held while a job is worked on. */
#include <string.h>

#include "base/threads/quiet_thread.h"
#include "jit/cache/cache_publish.h"
#include "jit/remote/remote.h"
#include "jit/remote/remote_internal.h"

#define QUEUE_BYTES ((size_t)64 << 20)
#define QUEUE_JOBS  4096

bool remote_queue_init(struct remote_queue *queue) {
  queue->last = &queue->first;
  if (pthread_mutex_init(&queue->mutex, NULL)) return false;
  if (!pthread_cond_init(&queue->changed, NULL)) return true;
  pthread_mutex_destroy(&queue->mutex);
  return false;
}

struct remote_job *remote_job_create(const struct remote *remote, const struct digest *key, const void *image,
                                     size_t bytes) {
  struct remote_job *job = mem_alloc(remote->mem, sizeof *job + bytes + REMOTE_SIGNATURE_BYTES);
  if (!job) return NULL;
  job->key = *key;
  job->bytes = job->entry_bytes = bytes;
  if (!image) return job;
  memcpy(job->data, image, bytes);
  if (!remote->signs) return job;
  remote_object_sign(job->data, bytes, key, &remote->seed, job->data + bytes);
  job->bytes += REMOTE_SIGNATURE_BYTES;
  return job;
}

/* Write the entry to the folder unless it is there, since another process may have been first. */
static void fill_folder(struct remote *remote, const struct remote_job *job) {
  struct disk_cache *folder = remote->folder;
  struct entry entry;
  struct entry_name name;
  struct entry_image there;
  struct stat status;
  const char *damage = NULL;
  if (folder->dir.folder < 0 || !atomic_load(&folder->writable)) return;
  if (entry_read(job->data, job->entry_bytes, &entry)) return;
  entry_name_of_key(&name, entry.key_text.data, entry.key_text.bytes);
  if (disk_cache_read(folder, &name, &there, &status, &damage) == 0)
    entry_image_finish(&there, remote->mem);
  else
    (void)cache_publish(folder, &name, job->data, job->entry_bytes);
}

static void work(struct remote *remote, const struct remote_job *job, int64_t deadline_ns) {
  if (job->fill) fill_folder(remote, job);
  for (size_t i = 0; i < remote->count; i++) {
    if (!(job->stores >> i & 1)) continue;
    const bool put = remote_tier_put(remote, &remote->tiers[i], &job->key, job->data, job->bytes, deadline_ns);
    count_add(remote->counters, put ? COUNT_remote_puts : COUNT_remote_dropped, 1);
  }
  if (job->lease) remote_lease_return(remote, &job->key, deadline_ns);
}

/* The next job, once there is one. NULL at the end. */
static struct remote_job *take(struct remote *remote, int64_t *deadline_ns) {
  struct remote_queue *queue = &remote->queue;
  pthread_mutex_lock(&queue->mutex);
  while (!queue->first && !queue->ending)
    pthread_cond_wait(&queue->changed, &queue->mutex);
  struct remote_job *job = queue->first;
  *deadline_ns = queue->ending ? queue->end_ns : INT64_MAX;
  if (job && remote_now_ns(remote) >= *deadline_ns) job = NULL;
  if (job) {
    queue->first = job->next;
    if (!queue->first) queue->last = &queue->first;
    queue->count--;
    queue->bytes -= job->bytes;
  }
  pthread_mutex_unlock(&queue->mutex);
  return job;
}

static void *run(void *user) {
  struct remote *remote = user;
  struct remote_job *job;
  int64_t deadline_ns;
  while ((job = take(remote, &deadline_ns))) {
    work(remote, job, deadline_ns);
    mem_free(remote->mem, job);
  }
  return NULL;
}

void remote_queue_add(struct remote *remote, struct remote_job *job) {
  struct remote_queue *queue = &remote->queue;
  pthread_mutex_lock(&queue->mutex);
  if (!queue->started) queue->started = quiet_thread_start(&queue->thread, run, remote);
  const bool taken = queue->started && queue->count < QUEUE_JOBS && queue->bytes + job->bytes <= QUEUE_BYTES;
  if (taken) {
    job->next = NULL;
    *queue->last = job;
    queue->last = &job->next;
    queue->count++;
    queue->bytes += job->bytes;
    pthread_cond_signal(&queue->changed);
  }
  pthread_mutex_unlock(&queue->mutex);
  if (taken) return;
  count_add(remote->counters, COUNT_remote_dropped, 1);
  mem_free(remote->mem, job);
}

void remote_queue_finish(struct remote *remote) {
  struct remote_queue *queue = &remote->queue;
  pthread_mutex_lock(&queue->mutex);
  queue->ending = true;
  queue->end_ns = remote_now_ns(remote) + remote->end_ms * (int64_t)1000000;
  const bool started = queue->started;
  pthread_cond_signal(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  if (started) (void)pthread_join(queue->thread, NULL);
  if (queue->count) {
    count_add(remote->counters, COUNT_remote_dropped, queue->count);
    log_write(remote->log, KJIT_LOG_WARNING, "remote: %zu entries were not written before the runtime ended",
              queue->count);
  }
  while (queue->first) {
    struct remote_job *const job = queue->first;
    queue->first = job->next;
    mem_free(remote->mem, job);
  }
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->mutex);
}

void remote_fork_prepare(struct remote *remote) {
  if (remote) pthread_mutex_lock(&remote->queue.mutex);
}

void remote_fork_parent(struct remote *remote) {
  if (remote) pthread_mutex_unlock(&remote->queue.mutex);
}

/* The thread does not exist in the child, and the parent writes what is in line. The jobs are not freed, because the
 * thread may have been in the middle of a change. */
void remote_fork_child(struct remote *remote) {
  if (!remote) return;
  struct remote_queue *queue = &remote->queue;
  queue->first = NULL;
  queue->last = &queue->first;
  queue->count = queue->bytes = 0;
  queue->started = false;
  (void)pthread_cond_init(&queue->changed, NULL);
  pthread_mutex_unlock(&queue->mutex);
}
