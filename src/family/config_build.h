/* A config as a request to compile: its #define lines, its label, its sources. */
#ifndef KJIT_FAMILY_CONFIG_BUILD_H
#define KJIT_FAMILY_CONFIG_BUILD_H

#include "family/family.h"
#include "jit/request/request.h"

/* What a kernel is made of beside a config of a family whose source is embedded: one more header, which is generated
 * for the request, and the defines by which the sources include it. */
struct config_extra {
  const char *name; /* of the header, as in #include */
  const char *text; /* NUL-terminated */
  size_t bytes;
  const char *defines;      /* "#define ...\n" lines */
  struct digest digest;     /* tells kernels of one config apart: other texts or defines, another digest */
  const char *closure_main; /* an embedded source whose includes the header may include; NULL: none */
};

/* A request and the texts that it points to. */
struct config_request {
  struct jit_request request; /* points into the rest, at the family and at the shelf's sources */
  struct text prologue, label;
  const struct mem *mem;
  struct source_set joined;  /* the sources with a generated header among them */
  struct source_file *files; /* of `joined`; NULL where the sources are the family's */
};

/* What is done with a config's request. */
struct config_act {
  kjit_status (*run)(void *user, const struct jit_request *request, kjit_error *error); /* as builder_custom_act */
  void *user;
  const char *arch;
  uint32_t flags;                   /* KJIT_BUILD_* */
  const struct config_extra *extra; /* NULL: the config says all. Not for a family with a source of its own. */
};

/* Append the `#define` lines of a canonical config, then a #line that names the kernel's file. */
void config_prologue(const kjit_family *family, const int32_t *values, struct text *out);

/* Make the request for a checked config's canonical form, of a family whose source is embedded. `act` says for which
 * architecture, with which flags, and what is generated beside it; its function is not called. KJIT_ERR_INVALID_ARG for
 * an unknown architecture, KJIT_ERR_UNSUPPORTED without sources, KJIT_ERR_NO_MEMORY. The shelf must outlive it; finish
 * it in every case. */
kjit_status config_request_init(struct config_request *request, const struct mem *mem, struct source_shelf *shelf,
                                const kjit_family *family, const int32_t *values, const struct config_act *act,
                                kjit_error *error);
void config_request_finish(struct config_request *request);

/* Do it with the request for a checked config's canonical form, whether the family's source is embedded or a user's.
 * Errors as config_request_init(), kjit_build() and those of the act. Thread-safe. */
kjit_status config_request_run(kjit_runtime *runtime, const kjit_family *family, const int32_t *values,
                               const struct config_act *act, kjit_error *error);

/* The sources of a family whose source is embedded. */
kjit_status config_sources(const kjit_family *family, struct source_shelf *shelf, const struct source_set **out,
                           kjit_error *error);

#endif
