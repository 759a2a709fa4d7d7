/* The key of a request: text that names everything that can change the cubin's bytes, and its digests. The grammar is
 * in cache/README.md. */
#ifndef KJIT_JIT_KEY_KEY_H
#define KJIT_JIT_KEY_KEY_H

#include "base/text.h"
#include "jit/request/request.h"

/* Not to be copied: a short text lies in the struct itself. */
struct key {
  char small[4096];      /* holds the keys of kjit's own families */
  struct text text;      /* the whole key; its first `request_bytes` are the request's part */
  size_t request_bytes;  /* what remains when the compiler's identity is left out */
  struct digest digest;  /* of the whole text; of the request's part when the compiler is unknown */
  struct digest request; /* of the request's part: what any compiler's answer shares */
  _Bool complete;        /* the compiler is known */
};

/* `compiler` NULL: unknown, the key is the request's part alone. KJIT_ERR_NO_MEMORY, or KJIT_ERR_INVALID_ARG for a
 * request beyond the limit. Finish it in either case. */
kjit_status key_make(struct key *key, const struct mem *mem, const struct jit_request *request, const char *compiler,
                     kjit_error *error);
void key_finish(struct key *key);

/* What tells requests apart within a process: equal for two of them exactly when their keys are. Several times as fast
 * as a key, since all sources together stand in it by the digest of their set; nothing on disk has it. */
void key_identify(struct digest *identity, const struct jit_request *request, const char *compiler);

#endif
