/* Compiling many kernels at once, so that what follows only loads and launches them. Each thread takes the next
 * kernel from a shared counter until none is left or one has failed; the calling thread takes part. The first
 * failure is kept and returned after all threads have ended. */
#include "support/prebuild.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/card.h"

#define MOST_THREADS 64

struct work {
  kjit_runtime *runtime;
  const kjit_config *configs;
  size_t count;
  const char *arch;
  atomic_size_t next;
  atomic_int failures; /* the first to fail fills `error` */
  kjit_error error;
};

static void record_failure(struct work *work, const kjit_config *config, const kjit_error *cause) {
  char name[KJIT_CONFIG_TEXT_MAX];
  if (atomic_fetch_add(&work->failures, 1) > 0) return;
  if (kjit_config_print(config, 0, name, sizeof name, NULL) != KJIT_OK) name[0] = '\0';
  card_fail(&work->error, (kjit_status)cause->status, "%.160s for %s: %.300s", name, work->arch, cause->message);
}

static void *build_some(void *argument) {
  struct work *work = argument;
  size_t i;
  while ((i = atomic_fetch_add(&work->next, 1)) < work->count && atomic_load(&work->failures) == 0) {
    kjit_artifact *artifact = NULL;
    kjit_error error = {0};
    if (kjit_config_build(work->runtime, &work->configs[i], work->arch, 0, &artifact, &error) != KJIT_OK)
      record_failure(work, &work->configs[i], &error);
    kjit_artifact_release(artifact);
  }
  return NULL;
}

static unsigned thread_count(unsigned asked, size_t work_items) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  size_t count = asked ? asked : processors > 0 ? (size_t)processors : 1;
  if (count > MOST_THREADS) count = MOST_THREADS;
  return (unsigned)(count < work_items ? count : work_items);
}

kjit_status prebuild(kjit_runtime *runtime, const kjit_config *configs, size_t count, const char *arch,
                     unsigned threads, kjit_error *error) {
  struct work work = {.runtime = runtime, .configs = configs, .count = count, .arch = arch};
  pthread_t helpers[MOST_THREADS];
  unsigned started = 0;
  const unsigned wanted = thread_count(threads, count);
  while (started + 1 < wanted && pthread_create(&helpers[started], NULL, build_some, &work) == 0)
    started++;
  build_some(&work); /* this thread is one of them */
  for (unsigned i = 0; i < started; i++)
    pthread_join(helpers[i], NULL);
  if (atomic_load(&work.failures) == 0) return KJIT_OK;
  if (error) *error = work.error;
  return (kjit_status)work.error.status;
}
