/* Problems of a user's family, for callers inside the library. Pure. */
#ifndef KJIT_FAMILY_FAMILY_PROBLEM_H
#define KJIT_FAMILY_FAMILY_PROBLEM_H

#include <kjit/family_tune.h>

#include "family/definition/definition.h"

/* Check that neither the problem nor its family is NULL, and that the family is a user's. */
kjit_status family_problem_take(const kjit_family_problem *problem, kjit_error *error);

/* The class of a problem, as many int32 as the subject's table says. */
kjit_status family_problem_classify(const kjit_family_problem *problem, int32_t *class, kjit_error *error);

/* As kjit_tune_class(), for a problem that is not checked yet. */
kjit_status family_problem_class(const kjit_family_problem *problem, char *text, size_t capacity, kjit_error *error);

#endif
