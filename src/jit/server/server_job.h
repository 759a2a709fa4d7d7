/* One compile on its way through the compile server: what is sent, waited for and said of its end. */
#ifndef KJIT_JIT_SERVER_SERVER_JOB_H
#define KJIT_JIT_SERVER_SERVER_JOB_H

#include <stdatomic.h>
#include <stdbool.h>

#include "jit/server/keepers.h"
#include "jit/server/server_settings.h"
#include "jit/server/spawn.h"

/* One compile on its way through the server. */
struct server_job {
  const struct jit_request *request;
  const char *identity; /* of NVRTC */
  compile_stop stop;
  void *stop_user;
  struct compile_result *result;
  kjit_error *error;
  struct digest preamble; /* when `has_preamble` */
  bool has_preamble;
  struct wire_death death; /* how its process ended; `said` points into `last_words` */
  void *last_words;
};

enum job_end {
  JOB_ANSWERED, /* status, result and error are set */
  JOB_STOPPED,
  JOB_DIED,    /* its own process did */
  JOB_LOST,    /* its process is gone without a word, or said what no worker would */
  JOB_NOWHERE, /* nothing began: there is no server, or it could not fork */
  JOB_SILENT,  /* nothing began within BEGIN_WITHIN_NS: that is no server */
  JOB_NO_MEMORY
};

/* Send the job over `channel` and wait for what becomes of it. */
enum job_end server_job_talk(const struct compile_server_settings *settings, struct server_job *job,
                             struct channel *channel, enum wire_work work, kjit_status *status);

/* The first half of server_job_talk(): ends when the job's process is there and has the request. */
enum job_end server_job_begin(const struct compile_server_settings *settings, const struct server_job *job,
                              struct channel *channel, enum wire_work work);

/* Fill in the error about a process that died: how it ended, and what it had printed last. */
kjit_status server_job_explain(const struct compile_server_settings *settings, struct server_job *job);

#endif
