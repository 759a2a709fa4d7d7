/* A list of candidates as the public API shows it, and what the compiler's report says of them. */
#ifndef KJIT_FAMILY_TUNE_TUNE_LIST_H
#define KJIT_FAMILY_TUNE_TUNE_LIST_H

#include <kjit/tune.h>

#include "family/tune/tune_candidates.h"

/* Make the list that kjit_tune_candidates_get() reads: of a set, or around the rules' choice where `set` is NULL. The
 * place's architecture is copied. */
kjit_status tune_list_create(kjit_tune_candidates **out, const struct mem *mem, const struct tune_start *start,
                             const char *set, kjit_error *error);

#endif
