/* One job of a compile worker, from the request to the answer, in the process that was forked for it.
 *
 * 1. Say that the process is there, so that the library knows a working server from a wrong program.
 * 2. Read the request and bound the process's memory by it.
 * 3. Compile, and link where the request says so: plainly, or with the precompiled header that the server has, and
 *    plainly if NVRTC does not take it.
 * 4. Answer, say again that the process is there, and go on with step 2 when another request comes.
 *
 * The process has one thread, unless NVRTC starts some of its own. */
#include "jit/server/worker_job.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "jit/compile/preamble.h"
#include "jit/server/channel.h"

/* A source may have 64 MiB, the defines in front of it 18 MiB. */
#define SOURCE_LIMIT ((size_t)96 << 20)

/* A process without a request for this long ends, so that its memory is free again. */
#define IDLE_MS 10000

/* A process ends after this many requests, so that what a compiler leaks or breaks in it does not stay. */
#define SERVED_MOST 64

static struct channel channel_of(const struct worker_job *job) {
  return (struct channel){.mem = job->mem, .socket = job->socket, .until_ns = INT64_MAX};
}

static bool say(const struct worker_job *job, enum frame_kind kind, const struct text *payload) {
  const struct channel channel = channel_of(job);
  struct text frame;
  text_init(&frame, job->mem, FRAME_MAX_BYTES);
  frame_put(&frame, kind, payload ? payload->data : NULL, payload ? payload->bytes : 0);
  const bool said = !frame.failed && channel_write(&channel, frame.data, frame.bytes) == CHANNEL_OK;
  text_finish(&frame);
  return said;
}

static bool answer(const struct worker_job *job, kjit_status status, const struct compile_result *result,
                   const kjit_error *error) {
  struct text payload;
  text_init(&payload, job->mem, FRAME_MAX_BYTES);
  wire_answer_put(&payload, status, result, error);
  const bool said = !payload.failed && say(job, FRAME_ANSWER, &payload);
  text_finish(&payload);
  return said;
}

/* Bound the process's address space. Not with a sanitizer, which reserves terabytes of addresses. */
static void bound_memory(uint64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)bytes;
#else
  const struct rlimit limit = {bytes, bytes};
  if (bytes) (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

/* The request and the memory that it points into. */
struct received {
  struct wire_request wire;
  void *payload;
};

static void received_finish(struct received *received, const struct mem *mem) {
  wire_request_finish(&received->wire, mem);
  mem_free(mem, received->payload);
}

static bool receive(const struct worker_job *job, struct received *received) {
  const struct channel channel = channel_of(job);
  struct frame_head head;
  *received = (struct received){0};
  if (channel_read(&channel, &head, &received->payload) != CHANNEL_OK || head.kind != FRAME_REQUEST) return false;
  const char *fault = wire_request_read(&received->wire, job->mem, received->payload, head.bytes);
  bound_memory(received->wire.memory_bytes);
  return !fault;
}

/* The key names a build of NVRTC, nvJitLink or both; others must not work for it. */
static kjit_status check_compiler(const struct worker_job *job, const struct wire_request *wire, kjit_error *error) {
  const char *identity = compile_identity(job->nvrtc, &wire->request, error);
  if (!identity) return KJIT_ERR_NO_NVRTC;
  if (!strcmp(identity, wire->identity)) return KJIT_OK;
  return error_set(error, KJIT_ERR_NO_NVRTC,
                   "%s: it or its nvJitLink was replaced while this process ran; start it again",
                   nvrtc_file(job->nvrtc, NULL));
}

/* Compile with the server's precompiled header. Returns false when NVRTC did not take it; the source is not judged
 * then. */
static bool compile_with_pch(const struct worker_job *job, const struct jit_request *request, kjit_status *status,
                             struct compile_result *result, kjit_error *error) {
  struct text source;
  text_init(&source, job->mem, SOURCE_LIMIT);
  struct compile_pch pch = {.file = job->pch_file};
  if (job->pch_file && preamble_write(request, 0, &source)) {
    pch.source = source.data;
    *status = compile_run_pch(job->nvrtc, request, job->mem, NULL, NULL, &pch, result, error);
    if (!pch.done) {
      compile_result_finish(result, job->mem);
      error_clear(error);
    }
  }
  text_finish(&source);
  return pch.done;
}

static bool serve_one(const struct worker_job *job) {
  struct received received;
  struct compile_result result = {0};
  kjit_error error = {0};
  bool said = false;
  if (receive(job, &received)) {
    const struct wire_request *wire = &received.wire;
    kjit_status status = check_compiler(job, wire, &error);
    const bool with_pch = status == KJIT_OK && wire->work == WIRE_COMPILE_PCH &&
                          compile_with_pch(job, &wire->request, &status, &result, &error);
    if (status == KJIT_OK && !with_pch)
      status = compile_run(job->nvrtc, &wire->request, job->mem, NULL, NULL, &result, &error);
    said = answer(job, status, &result, &error);
  }
  compile_result_finish(&result, job->mem);
  received_finish(&received, job->mem);
  return said;
}

/* Forget what was printed for the last request, otherwise it would be told as this one's last words. */
static void forget_said(void) {
  (void)!ftruncate(STDOUT_FILENO, 0);
  (void)lseek(STDOUT_FILENO, 0, SEEK_SET);
}

static bool another_comes(const struct worker_job *job) {
  struct pollfd request = {.fd = job->socket, .events = POLLIN};
  return poll(&request, 1, IDLE_MS) > 0 && request.revents == POLLIN;
}

bool worker_job_run(const struct worker_job *job) {
  if (!say(job, FRAME_BEGAN, NULL) || !serve_one(job)) return false;
  /* From the second request on it is the library that may have left, which is an ordinary end. */
  for (int served = 1; served < SERVED_MOST && say(job, FRAME_BEGAN, NULL) && another_comes(job); served++) {
    forget_said();
    if (!serve_one(job)) return true;
  }
  return true;
}

/* NVRTC writes the header under a path, which no other process needs: it is unlinked as soon as it is open here. */
static kjit_status precompile(const struct worker_job *job, const struct jit_request *request, const char *folder,
                              int *file, kjit_error *error) {
  char path[PCH_OPTION_BYTES];
  struct text source;
  struct compile_result result = {0};
  (void)snprintf(path, sizeof path, "%s/pch", folder);
  struct compile_pch pch = {.file = path, .create = true};
  text_init(&source, job->mem, SOURCE_LIMIT);
  kjit_status status = KJIT_ERR_UNSUPPORTED;
  if (preamble_write(request, 1, &source)) {
    pch.source = source.data;
    status = compile_run_pch(job->nvrtc, request, job->mem, NULL, NULL, &pch, &result, error);
  }
  if (status == KJIT_OK && !pch.done)
    status = error_set(error, KJIT_ERR_UNSUPPORTED, "the headers cannot be precompiled, or give warnings");
  if (status == KJIT_OK && (*file = open(path, O_RDONLY)) < 0)
    status = error_set(error, KJIT_ERR_IO, "%s: NVRTC wrote no precompiled header", path);
  (void)unlink(path);
  compile_result_finish(&result, job->mem);
  text_finish(&source);
  return status;
}

bool worker_job_precompile(const struct worker_job *job, int *file) {
  const char *base = secure_getenv("TMPDIR");
  char folder[400];
  struct received received = {0};
  const struct compile_result nothing = {0};
  kjit_error error = {0};
  kjit_status status = KJIT_ERR_IO;
  *file = -1;
  (void)snprintf(folder, sizeof folder, "%.350s/kjit-pch-XXXXXX", base && *base == '/' ? base : "/tmp");
  if (say(job, FRAME_BEGAN, NULL) && receive(job, &received) && mkdtemp(folder)) {
    status = check_compiler(job, &received.wire, &error);
    if (status == KJIT_OK) status = precompile(job, &received.wire.request, folder, file, &error);
    (void)rmdir(folder);
  }
  received_finish(&received, job->mem);
  if (status == KJIT_OK) return say(job, FRAME_READY, NULL);
  (void)answer(job, status, &nothing, &error);
  return false;
}
