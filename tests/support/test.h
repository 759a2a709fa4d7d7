/* The header that every test includes: cmocka, behind the headers that it needs, and the helpers of this folder. */
#ifndef KJIT_TESTS_SUPPORT_TEST_H
#define KJIT_TESTS_SUPPORT_TEST_H

/* cmocka.h uses these and includes none of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <kjit/common.h>

#include "support/failing_allocator.h"
#include "support/temp_folder.h"

/* Require a status. `error` may be NULL; a difference prints both statuses and the error's message. */
#define assert_status(expected, actual, error) test_assert_status((expected), (actual), (error), __FILE__, __LINE__)

/* Require that `part` occurs in `text`, or that it does not; a failure prints both. */
#define assert_contains(text, part) test_assert_contains((text), (part), 1, __FILE__, __LINE__)
#define assert_lacks(text, part)    test_assert_contains((text), (part), 0, __FILE__, __LINE__)

static inline void test_assert_status(kjit_status expected, kjit_status actual, const kjit_error *error,
                                      const char *file, int line) {
  if (expected == actual) return;
  print_error("%s:%d: expected %s, got %s%s%s\n", file, line, kjit_status_name(expected), kjit_status_name(actual),
              error ? ": " : "", error ? error->message : "");
  _fail(file, line);
}

static inline void test_assert_contains(const char *text, const char *part, int wanted, const char *file, int line) {
  if (text && !strstr(text, part) == !wanted) return;
  print_error("%s:%d: \"%s\" should %scontain \"%s\"\n", file, line, text ? text : "(null)", wanted ? "" : "not ",
              part);
  _fail(file, line);
}

#endif
