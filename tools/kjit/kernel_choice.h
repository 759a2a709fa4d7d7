/* A family's kernel on one architecture: from a config, or as the library chooses for a problem. `error` is never NULL
 * here. */
#ifndef KJIT_TOOLS_KERNEL_CHOICE_H
#define KJIT_TOOLS_KERNEL_CHOICE_H

#include <stdbool.h>

#include "attention_spec.h"

/* Canonical: equal code, equal choice. */
struct kernel_choice {
  bool is_sm90;                    /* attention_sm90, else flash_forward */
  kjit_flash_variant flash;        /* all zero where it is not           */
  kjit_attention_sm90_config sm90; /* likewise                           */
};

/* Check a kernel, or a config, for the architecture. */
kjit_status kernel_choice_of_flash(const kjit_flash_variant *variant, const char *arch, struct kernel_choice *out,
                                   kjit_error *error);
kjit_status kernel_choice_of_sm90(const kjit_attention_sm90_config *config, const char *arch, struct kernel_choice *out,
                                  kjit_error *error);

/* attention_sm90 where it computes the problem, else flash_forward. KJIT_ERR_UNSUPPORTED says why neither does. */
kjit_status kernel_choice_of_problem(const struct attention_spec *spec, const char *arch, struct kernel_choice *out,
                                     kjit_error *error);

int kernel_choice_compare(const struct kernel_choice *a, const struct kernel_choice *b);

const char *kernel_choice_family(const struct kernel_choice *choice);

/* Enough for either family's config as text, with the NUL. */
#define KERNEL_CHOICE_TEXT_MAX KJIT_FLASH_VARIANT_TEXT_MAX
void kernel_choice_print(const struct kernel_choice *choice, char text[KERNEL_CHOICE_TEXT_MAX]);

uint32_t kernel_choice_threads(const struct kernel_choice *choice);
uint32_t kernel_choice_shared_bytes(const struct kernel_choice *choice); /* dynamic */

kjit_status kernel_choice_build(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                                kjit_artifact **artifact, kjit_error *error);
/* The key without building. */
kjit_status kernel_choice_key(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                              kjit_key *key, kjit_error *error);
kjit_status kernel_choice_source(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                                 char **text, kjit_error *error);

#endif
