/* A config as something to compile: prologue, label, sources. */
#ifndef KJIT_ATTENTION_SM90_SM90_REQUEST_H
#define KJIT_ATTENTION_SM90_SM90_REQUEST_H

#include <kjit/attention_sm90.h>

#include "base/text.h"
#include "jit/request/request.h"

/* 12 lines of at most 48 bytes, and the #line. */
#define SM90_PROLOGUE_MAX 736

struct sm90_request {
  struct jit_request request; /* points into the rest and at static storage */
  char prologue[SM90_PROLOGUE_MAX];
  char label[KJIT_ATTENTION_SM90_TEXT_MAX];
};

/* The kernel's sources, from the shelf. */
kjit_status sm90_request_sources(struct source_shelf *shelf, const struct source_set **out, kjit_error *error);

/* The defines of a canonical config, then a #line that names the kernel's file. */
void sm90_request_prologue(const kjit_attention_sm90_config *canonical, struct text *out);

/* The request for a checked config's canonical form. `flags` are KJIT_BUILD_*. KJIT_ERR_UNSUPPORTED without sources.
 * It lives no longer than the shelf. */
kjit_status sm90_request_init(struct sm90_request *request, struct source_shelf *shelf,
                              const kjit_attention_sm90_config *config, uint32_t flags, kjit_error *error);

#endif
