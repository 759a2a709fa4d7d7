/* A config as a request to compile: its #define lines, its label, its sources. */
#ifndef KJIT_FAMILY_CONFIG_BUILD_H
#define KJIT_FAMILY_CONFIG_BUILD_H

#include "family/family.h"
#include "jit/request/request.h"

/* A request and the texts that it points to. */
struct config_request {
  struct jit_request request; /* points into the rest, at the family and at the shelf's sources */
  struct text prologue, label;
};

/* Append the `#define` lines of a canonical config, then a #line that names the kernel's file. */
void config_prologue(const kjit_family *family, const int32_t *values, struct text *out);

/* Make the request for a checked config's canonical form. `flags` are KJIT_BUILD_*. KJIT_ERR_INVALID_ARG for an unknown
 * architecture, KJIT_ERR_UNSUPPORTED without sources, KJIT_ERR_NO_MEMORY. The shelf must outlive it; finish it in every
 * case. */
kjit_status config_request_init(struct config_request *request, const struct mem *mem, struct source_shelf *shelf,
                                const kjit_family *family, const int32_t *values, const char *arch, uint32_t flags,
                                kjit_error *error);
void config_request_finish(struct config_request *request);

/* Find the family's sources on the shelf. */
kjit_status config_sources(const kjit_family *family, struct source_shelf *shelf, const struct source_set **out,
                           kjit_error *error);

#endif
