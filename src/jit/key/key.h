/* The key of a request: text that names everything that can change the cubin's bytes, and its digests. The grammar is
 * in cache/README.md. */
#ifndef KJIT_JIT_KEY_KEY_H
#define KJIT_JIT_KEY_KEY_H

#include <stdbool.h>

#include "base/text.h"
#include "jit/request/request.h"

/* Must not be copied, because a short text lies in the struct itself and `text` points to it. */
struct key {
  char small[4096];      /* holds the keys of kjit's own families */
  struct text text;      /* the whole key; its first `request_bytes` are the request's part */
  size_t request_bytes;  /* what remains when the compiler's identity is left out */
  struct digest digest;  /* of the whole text; of the request's part when the compiler is unknown */
  struct digest request; /* of the request's part, which the answers of all compilers share */
  bool complete;         /* the compiler is known */
};

/* Make the key of a request. A NULL `compiler` means that it is unknown; the key is then the request's part alone.
 * KJIT_ERR_NO_MEMORY, or KJIT_ERR_INVALID_ARG for a request beyond the limit. Finish it in either case. */
kjit_status key_make(struct key *key, const struct mem *mem, const struct jit_request *request, const char *compiler,
                     kjit_error *error);
void key_finish(struct key *key);

/* Append "tag bytes:value\n", the form of every field of a key; key_reader.h reads it. */
void key_put_field(struct text *text, const char *tag, const char *value, size_t bytes);

/* A digest that tells requests apart within a process: equal for two requests exactly when their keys are equal. It
 * takes a fraction of a key's time, because all sources enter as the one digest of their set. It is never written to
 * disk. */
void key_identify(struct digest *identity, const struct jit_request *request, const char *compiler);

#endif
