/* A problem of a user's family on a card, and where tuning starts for it. */
#ifndef KJIT_FAMILY_TUNE_FAMILY_TUNE_H
#define KJIT_FAMILY_TUNE_FAMILY_TUNE_H

#include <kjit/tune.h>

#include "family/definition/definition.h"
#include "family/tune/tune_list.h"
#include "family/tune_subject.h"

/* A problem, and the card or architecture that it is on. */
struct family_asked {
  const kjit_family_problem *problem;
  const struct family_definition *definition;
  kjit_device_info device; /* "any" where an architecture alone is known */
  struct family_place place;
  int32_t class[TUNE_CLASS_MAX];
  int32_t values[KJIT_FIELD_COUNT_MAX]; /* what the family's own rules choose */
};

/* Check the problem and its place, and choose by the family's own rules: legal there, and canonical. `problem` must
 * outlive it. The statuses are those of kjit_family_choose(). */
kjit_status family_asked_init(struct family_asked *asked, const kjit_family_problem *problem,
                              const kjit_device_info *device, const char *arch, kjit_error *error);

/* The rules' choice, around which candidates are listed and against which they are timed. `asked` must outlive it. */
struct tune_start family_asked_start(const struct family_asked *asked);

#endif
