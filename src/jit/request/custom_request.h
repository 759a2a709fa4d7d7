/* A caller's own kernel: kjit_build_request -> jit_request, with the include closure resolved and hashed. */
#ifndef KJIT_JIT_REQUEST_CUSTOM_REQUEST_H
#define KJIT_JIT_REQUEST_CUSTOM_REQUEST_H

#include <stdbool.h>

#include <kjit/build.h>

#include "jit/request/request.h"
#include "jit/source/include_closure.h"

/* The smallest kjit_build_request that is accepted ends with stop_user; later members get their defaults. */
#define REQUEST_OLDEST_BYTES (offsetof(kjit_build_request, stop_user) + sizeof(void *))

struct custom_request {
  struct jit_request request; /* points into what follows; nothing of the public request is kept */
  void *storage;              /* private */
  bool (*stop)(void *user);   /* asked while the includes are read (include_terms.h); NULL: never */
  void *stop_user;
};

/* What a request stands for that is a config of a user's family, and not a plain kjit_build_request. Texts live as long
 * as the request. */
struct custom_role {
  const char *family;   /* in place of "custom" */
  const char *file;     /* the family file, absolute; NULL: none */
  const char *label;    /* in place of the source's name */
  const char *prologue; /* in place of the defines and their #line */
};

/* The folders and headers that the runtime adds to a request: the toolkit's, and a family's role. */
struct custom_extras {
  const struct custom_role *role; /* NULL: a plain request */
  bool open_ended;                /* see struct include_terms */
  const char *const *dirs;        /* folders behind the request's own: the toolkit's */
  size_t dir_count;
  unsigned cuda_version; /* of the compiler, 13000 for 13.0; 0: not known */
};

/* Check the request and copy it, all but its sources: request.sources is NULL until one of the two functions below.
 * `arch` is used where public_request->arch is NULL; `extras` may be NULL. The public request and the extras must live
 * until the sources are there.
 * KJIT_ERR_INVALID_ARG (which field, and the rule), KJIT_ERR_UNSUPPORTED (a request from a newer header, or flags that
 * this library does not know), KJIT_ERR_NO_MEMORY. After a failure nothing is left to finish. */
kjit_status custom_request_begin(struct custom_request *custom, const struct mem *mem,
                                 const kjit_build_request *public_request, const char *arch,
                                 const struct custom_extras *extras, kjit_error *error);

/* False: the request has parts alone, and its sources are an empty set that is collected without reading a file. */
bool custom_request_has_source(const struct custom_request *custom);

/* Collect the sources; `everything` as in struct include_terms. Errors as include_closure_collect(). */
kjit_status custom_request_collect(struct custom_request *custom, bool everything, kjit_error *error);

/* Take a set that is known already; it must outlive the request. */
void custom_request_use(struct custom_request *custom, const struct source_set *set);

/* The source as the caller gave it. For a request that has one, as are the two functions below. */
const kjit_source *custom_request_source(const struct custom_request *custom);

/* Equal for two requests exactly when, with the same files on disk, they have the same sources. */
void custom_request_fingerprint(const struct custom_request *custom, struct digest *fingerprint);

/* What the collected sources were made of: see include_closure_watches(). False when out of memory. */
bool custom_request_watches(const struct custom_request *custom, const struct include_watch **watches, size_t *count);

/* Begin and collect in one, with nothing added. After a failure nothing is left to finish. */
kjit_status custom_request_init(struct custom_request *custom, const struct mem *mem,
                                const kjit_build_request *public_request, const char *arch, kjit_error *error);
void custom_request_finish(struct custom_request *custom);

#endif
