/* A kernel as something to compile: prologue, label, sources. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_REQUEST_H
#define KJIT_ATTENTION_FLASH_FLASH_REQUEST_H

#include <kjit/flash_forward.h>

#include "base/text.h"
#include "jit/request/request.h"

/* 17 lines of at most 64 bytes, and the #line. */
#define FLASH_PROLOGUE_MAX 1280

struct flash_request {
  struct jit_request request; /* points into the rest and at static storage */
  char prologue[FLASH_PROLOGUE_MAX];
  char label[KJIT_FLASH_VARIANT_TEXT_MAX];
};

/* The kernel's sources, from the shelf. */
kjit_status flash_request_sources(struct source_shelf *shelf, const struct source_set **out, kjit_error *error);

/* The defines of a canonical kernel, then a #line that names the kernel's file. */
void flash_request_prologue(const kjit_flash_variant *canonical, struct text *out);

/* The request for a checked kernel's canonical form. `flags` are KJIT_BUILD_*. KJIT_ERR_INVALID_ARG for an arch that is
 * none, KJIT_ERR_UNSUPPORTED without sources. It lives no longer than the shelf. */
kjit_status flash_request_init(struct flash_request *request, struct source_shelf *shelf,
                               const kjit_flash_variant *variant, const char *arch, uint32_t flags, kjit_error *error);

#endif
