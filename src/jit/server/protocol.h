/* What a library and its compile workers say to each other: frames over a stream socket, and what is in them.
 *
 * A frame is a head of FRAME_HEAD_BYTES (magic, kind, size and XXH3-64 of the payload) and a payload. Both ends are of
 * one machine and one build of kjit, but neither trusts the other: every size is checked before it is used, because a
 * worker that a compiler has damaged may send anything. The protocol's version is part of the magic. */
#ifndef KJIT_JIT_SERVER_PROTOCOL_H
#define KJIT_JIT_SERVER_PROTOCOL_H

#include <stdbool.h>

#include "base/text.h"
#include "jit/compile/compile.h"

#define FRAME_HEAD_BYTES 24

/* The largest payload: the largest cubin (256 MiB) and log (16 MiB), or the largest source with all its headers
 * (160 MiB) and the largest parts (256 MiB), and room for names. */
#define FRAME_MAX_BYTES ((size_t)512 << 20)

enum frame_kind {
  FRAME_BEGAN = 1,   /* worker: a process for this job is there; no payload */
  FRAME_REQUEST = 2, /* library: what to compile */
  FRAME_ANSWER = 3,  /* worker: what became of it */
  FRAME_DIED = 4,    /* worker: the job's process ended before it had answered */
  FRAME_READY = 5    /* worker: the header is precompiled, and jobs that use it can be sent; no payload */
};

struct frame_head {
  enum frame_kind kind;
  size_t bytes;
  uint64_t checksum;
};

/* Append a whole frame to `out`, which has failed afterwards when memory or FRAME_MAX_BYTES did not suffice. */
void frame_put(struct text *out, enum frame_kind kind, const void *payload, size_t bytes);

/* False: these FRAME_HEAD_BYTES bytes are no head of this protocol version, or announce more than FRAME_MAX_BYTES. */
bool frame_read_head(struct frame_head *head, const uint8_t *bytes);
bool frame_is_intact(const struct frame_head *head, const void *payload);

/* What a worker does with a request. */
enum wire_work {
  WIRE_COMPILE = 0,     /* compile it */
  WIRE_COMPILE_PCH = 1, /* the same with the precompiled header of the process that the job was forked from */
  WIRE_CREATE_PCH = 2   /* precompile the request's preamble, and stay to fork jobs that use it */
};

/* A request with what a worker needs beside it. After wire_request_read() it points into the payload and into the
 * arrays below. */
struct wire_request {
  struct jit_request request;
  struct source_set sources;
  struct source_file *files;
  struct jit_part *parts;
  const char **names, **options;
  const char *identity;  /* of the tools that the key names (compile_identity()); the worker's must be the same */
  uint64_t memory_bytes; /* bound on the process's address space; 0: none */
  enum wire_work work;
};

/* Append the payload of a request. Of its flags only those that say what is made go along; the
 * others, time limit and stop function stay behind: the caller acts on them. */
void wire_request_put(struct text *out, const struct jit_request *request, const char *identity, enum wire_work work,
                      uint64_t memory_bytes);

/* NULL, or what is wrong with the payload, static text. Every string of the request is NUL-terminated, and so are the
 * texts. Finish it in either case; the payload must outlive it. */
const char *wire_request_read(struct wire_request *wire, const struct mem *mem, const void *payload, size_t bytes);
void wire_request_finish(struct wire_request *wire, const struct mem *mem);

/* The payload of an answer: status, error and result of compile_run(). */
void wire_answer_put(struct text *out, kjit_status status, const struct compile_result *result,
                     const kjit_error *error);

/* NULL, or what is wrong. The result is in memory of `mem`, to be finished in either case. */
const char *wire_answer_read(kjit_status *status, struct compile_result *result, kjit_error *error,
                             const struct mem *mem, const void *payload, size_t bytes);

/* How a job's process ended. */
struct wire_death {
  uint32_t how;        /* as waitpid() gives it */
  uint64_t peak_bytes; /* the most memory that the process had in use */
  const char *said;    /* the end of what it wrote on its standard output and error, "" for nothing */
};

void wire_death_put(struct text *out, const struct wire_death *death);
const char *wire_death_read(struct wire_death *death, const void *payload, size_t bytes);

#endif
