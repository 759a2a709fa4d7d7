/* The library's end of one job: sends the request, waits for the answer, and finds the words for a compiler that gave
 * none. Runs in the thread that wants the kernel, and shares nothing with other jobs. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"
#include "jit/server/server_job.h"

/* A server that forks answers within milliseconds. On a machine that is overloaded it may take a second; a program that
 * is no worker would never. */
#define BEGIN_WITHIN_NS (10 * (int64_t)1000000000)

static enum job_end end_of(enum channel_end end) {
  switch (end) {
  case CHANNEL_STOPPED:
    return JOB_STOPPED;
  case CHANNEL_NO_MEMORY:
    return JOB_NO_MEMORY;
  default:
    return JOB_LOST;
  }
}

/* The first frame says that a process has begun this job. If the socket closes before it, nothing has been done yet,
 * and the job can be given to another process; if there is silence, the program is no worker. */
static enum job_end await_begin(struct channel *channel) {
  struct frame_head head;
  void *payload;
  channel->until_ns = channel_now_ns() + BEGIN_WITHIN_NS;
  const enum channel_end end = channel_read(channel, &head, &payload);
  mem_free(channel->mem, payload);
  channel->until_ns = INT64_MAX;
  if (end == CHANNEL_STOPPED || end == CHANNEL_NO_MEMORY) return end_of(end);
  if (end == CHANNEL_LATE || end == CHANNEL_DAMAGED) return JOB_SILENT;
  return end == CHANNEL_OK && head.kind == FRAME_BEGAN ? JOB_ANSWERED : JOB_NOWHERE;
}

static enum job_end send_request(const struct compile_server_settings *settings, const struct server_job *job,
                                 const struct channel *channel, enum wire_work work) {
  struct text payload, frame;
  enum job_end end = JOB_NO_MEMORY;
  text_init(&payload, settings->mem, FRAME_MAX_BYTES);
  text_init(&frame, settings->mem, FRAME_MAX_BYTES + FRAME_HEAD_BYTES);
  wire_request_put(&payload, job->request, job->identity, work, settings->memory_bytes);
  if (!payload.failed) frame_put(&frame, FRAME_REQUEST, payload.data, payload.bytes);
  text_finish(&payload);
  if (!payload.failed && !frame.failed) {
    const enum channel_end written = channel_write(channel, frame.data, frame.bytes);
    /* A process that died while it read has said so, or its server will. */
    end = written == CHANNEL_OK || written == CHANNEL_CLOSED ? JOB_ANSWERED : end_of(written);
  }
  text_finish(&frame);
  return end;
}

/* An answer, or the server's word that the process died, whose last output is kept for the message. What cannot be read
 * counts as an answer that was lost, and leaves no result. */
static enum job_end take_answer(const struct compile_server_settings *settings, struct server_job *job,
                                const struct channel *channel, kjit_status *status) {
  struct frame_head head;
  void *payload;
  const enum channel_end end = channel_read(channel, &head, &payload);
  if (end != CHANNEL_OK) return end_of(end);
  const char *fault = "it is of another kind";
  enum job_end outcome = JOB_LOST;
  if (head.kind == FRAME_DIED) {
    fault = wire_death_read(&job->death, payload, head.bytes);
    job->last_words = payload;
    return fault ? JOB_LOST : JOB_DIED;
  }
  kjit_error found;
  if (head.kind == FRAME_ANSWER)
    fault = wire_answer_read(status, job->result, &found, settings->mem, payload, head.bytes);
  if (!fault) {
    outcome = JOB_ANSWERED;
    if (*status != KJIT_OK && job->error) *job->error = found;
  } else {
    compile_result_finish(job->result, settings->mem);
  }
  mem_free(settings->mem, payload);
  return outcome;
}

enum job_end server_job_begin(const struct compile_server_settings *settings, const struct server_job *job,
                              struct channel *channel, enum wire_work work) {
  const enum job_end end = await_begin(channel);
  return end == JOB_ANSWERED ? send_request(settings, job, channel, work) : end;
}

enum job_end server_job_talk(const struct compile_server_settings *settings, struct server_job *job,
                             struct channel *channel, enum wire_work work, kjit_status *status) {
  enum job_end end = server_job_begin(settings, job, channel, work);
  if (end == JOB_ANSWERED) end = take_answer(settings, job, channel, status);
  return end;
}

/* strsignal() would give the words of the program's locale. */
static const char *signal_name(int number) {
  static const struct {
    int number;
    const char *name;
  } names[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
               {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
               {SIGSYS, "SIGSYS"},   {SIGTRAP, "SIGTRAP"}, {SIGXFSZ, "SIGXFSZ"}, {SIGPIPE, "SIGPIPE"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].number == number) return names[i].name;
  return "a signal";
}

/* True when the process most likely died for want of memory: it had half of its bound in real memory. The other half
 * are addresses of libraries and memory that was reserved and never used. */
static bool reached_bound(const struct compile_server_settings *settings, const struct wire_death *death) {
  return settings->memory_bytes && death->peak_bytes >= settings->memory_bytes / 2;
}

static kjit_status explain_memory(const struct compile_server_settings *settings, const struct server_job *job,
                                  bool killed) {
  const unsigned long long used = (unsigned long long)job->death.peak_bytes >> 20;
  if (killed)
    return error_set(job->error, KJIT_ERR_NO_MEMORY,
                     "kernel %.120s for %s: the compiler's process was killed (SIGKILL) with %llu MiB in use: the "
                     "machine or its container may be out of memory",
                     job->request->entry, job->request->target.name, used);
  return error_set(job->error, KJIT_ERR_NO_MEMORY,
                   "kernel %.120s for %s: the compiler reached its memory bound of %llu MiB "
                   "(compile_memory_max_bytes), with %llu MiB in use",
                   job->request->entry, job->request->target.name, (unsigned long long)settings->memory_bytes >> 20,
                   used);
}

/* Copy the last line of what the process had printed. */
static void last_line(const char *said, char *out, size_t bytes) {
  size_t end = strlen(said);
  while (end && strchr("\r\n \t", said[end - 1]))
    end--;
  size_t begin = end;
  while (begin && said[begin - 1] != '\n')
    begin--;
  (void)snprintf(out, bytes, "%.*s", (int)(end - begin), said + begin);
  for (char *at = out; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
}

/* Which of the tools that the request needs it was, the process did not say. */
static const char *tool_of(const struct jit_request *request) {
  switch (compile_tools_of(request)) {
  case COMPILE_TOOLS_LINKER:
    return "linker";
  case COMPILE_TOOLS_BOTH:
    return "compiler or the linker";
  default:
    return "compiler";
  }
}

/* Memory comes first, because a compiler that gets none dies in one of many ways. The log has all that the process
 * printed, the message its last line. */
kjit_status server_job_explain(const struct compile_server_settings *settings, struct server_job *job) {
  const struct wire_death *death = &job->death;
  const int how = (int)death->how;
  const int number = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
  char line[160], end[64];
  if (number == SIGKILL || reached_bound(settings, death)) return explain_memory(settings, job, number == SIGKILL);
  last_line(death->said, line, sizeof line);
  if (number)
    (void)snprintf(end, sizeof end, "crashed (%s, signal %d)", signal_name(number), number);
  else
    (void)snprintf(end, sizeof end, "ended its process with code %d", WEXITSTATUS(how));
  job->result->log = mem_strdup(settings->mem, death->said);
  return error_set(job->error, KJIT_ERR_COMPILE, "kernel %.120s for %s: the %s %s; %s%s", job->request->entry,
                   job->request->target.name, tool_of(job->request), end,
                   *line ? "it had printed: " : "it had printed nothing", line);
}
