/* Filling a caller's kjit_error. First error wins: a record that already holds one is left as it is. */
#ifndef KJIT_BASE_ERROR_H
#define KJIT_BASE_ERROR_H

#include <kjit/common.h>

/* Reset; each public function calls it first. Accepts NULL. */
void error_clear(kjit_error *error);

/* Record and return `status`. Accepts a NULL error. */
kjit_status error_set(kjit_error *error, kjit_status status, const char *format, ...) KJIT_PRINTF(3, 4);

/* As error_set(), with the number that a lower layer gave: an errno, a CUresult, an nvrtcResult. */
kjit_status error_set_cause(kjit_error *error, kjit_status status, kjit_cause_domain domain, int64_t cause,
                            const char *format, ...) KJIT_PRINTF(5, 6);

/* KJIT_ERR_NO_MEMORY with its standing message. */
kjit_status error_no_memory(kjit_error *error);

/* KJIT_ERR_INVALID_ARG: "<name>: <rule>". */
kjit_status error_invalid(kjit_error *error, const char *name, const char *rule);

#endif
