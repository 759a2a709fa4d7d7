/* The protocol of ccache's storage helpers, version 1, over a wire: a greeting, then requests and answers in turn. */
#ifndef KJIT_JIT_REMOTE_HELPER_WIRE_H
#define KJIT_JIT_REMOTE_HELPER_WIRE_H

#include "base/digest.h"
#include "jit/remote/remote_wire.h"

enum helper_request { HELPER_GET = 0, HELPER_PUT = 1, HELPER_REMOVE = 2 };

/* What a helper answers. */
enum helper_answer {
  HELPER_OK,    /* done */
  HELPER_NOOP,  /* not found; not stored; not removed */
  HELPER_ERROR, /* it says that something went wrong; the connection can be used again */
  HELPER_BROKEN /* no answer of this protocol, too long a value, or too late: the connection cannot be used again */
};

/* Receive the greeting. False unless the helper speaks version 1 and can get, put and remove. */
bool helper_wire_greet(struct remote_wire *wire);

/* Send a request. `data` is the value of a put, which replaces what is there if `overwrite` says so. */
bool helper_wire_send(struct remote_wire *wire, enum helper_request request, const struct digest *key, const void *data,
                      size_t bytes, bool overwrite);

/* Receive the answer to a request. The value of a get goes to `write`; one that is longer than `most` is refused. */
enum helper_answer helper_wire_receive(struct remote_wire *wire, enum helper_request request, size_t most,
                                       kjit_remote_write_fn write, void *user);

#endif
