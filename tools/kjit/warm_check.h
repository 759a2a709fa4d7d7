/* `kjit warm --check`: what of a list a remote store lacks. */
#ifndef KJIT_TOOLS_WARM_CHECK_H
#define KJIT_TOOLS_WARM_CHECK_H

#include "command.h"
#include "request_list.h"

/* Ask the stores of `remote` for every request, and print a summary. `keys` are public keys or their files; with any,
 * only what one of them signed counts. Returns the exit code: EXIT_FAILED when something is missing. */
int warm_check(const struct request_list *list, const char *remote, const struct option_list *keys, bool json);

#endif
