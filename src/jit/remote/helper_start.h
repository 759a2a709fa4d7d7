/* Starting a program that serves a store to all processes of this user: a storage helper of ccache's. */
#ifndef KJIT_JIT_REMOTE_HELPER_START_H
#define KJIT_JIT_REMOTE_HELPER_START_H

#include "jit/remote/remote_url.h"
#include "jit/remote/remote_wire.h"

#define HELPER_PATH_BYTES 108 /* of a socket's address */

struct helper {
  char program[64]; /* "ccache-storage-https"; empty: somebody else starts it */
  char socket[HELPER_PATH_BYTES];
  char **environment;    /* of the program; NULL-terminated, in memory of its own */
  _Atomic(long) process; /* that was started last; 0: none */
};

/* Name the program, its socket and its environment, from a URL "ccache+SCHEME://…" and its attributes. The socket's
 * name is a digest of both, in a folder that nobody else may enter, so that all processes with the same settings share
 * one helper. KJIT_ERR_INVALID_ARG; KJIT_ERR_IO: there is no such folder; KJIT_ERR_NO_MEMORY. */
kjit_status helper_name(struct helper *helper, const struct mem *mem, const struct remote_url *url, kjit_error *error);
void helper_finish(struct helper *helper, const struct mem *mem);

/* Connect `wire` to the helper until `deadline_ns`, and start the helper when nobody listens. */
bool helper_connect(struct helper *helper, struct remote_wire *wire, int64_t deadline_ns);

#endif
