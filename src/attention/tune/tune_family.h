/* What tuning needs of each family, by the family's own table and rules: nothing here knows a field by its meaning but
 * the hints on which values are worth trying. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_FAMILY_H
#define KJIT_ATTENTION_TUNE_TUNE_FAMILY_H

#include "attention/attention_choose.h"
#include "attention/tune/tune_class.h"
#include "family/field_table.h"
#include "jit/request/source_set.h"

enum { TUNE_FAMILY_COUNT = 2 };

/* The largest config of any family. */
union tune_config {
  kjit_attention_sm90_config sm90;
  kjit_flash_config flash;
};

/* Values of a field that are worth trying, where not all of them are. */
struct tune_hint {
  const char *field;
  int32_t values[4];
  size_t count; /* 0: leave the field as it is */
};

struct tune_family {
  enum attention_family id;
  const struct field_table *fields;
  const struct tune_hint *hints; /* ended by a row without a name */
  kjit_status (*parse)(const char *text, union tune_config *config, kjit_error *error);
  void (*print)(const union tune_config *config, struct text *out);
  kjit_status (*check)(const union tune_config *config, kjit_error *error); /* every rule that needs no card */
  kjit_status (*check_place)(const union tune_config *config, const struct attention_place *place, kjit_error *error);
  void (*canonicalize)(union tune_config *config); /* a checked one */
  /* Does a checked config of the problem's class compute exactly this problem? KJIT_ERR_INVALID_CONFIG or
   * KJIT_ERR_UNSUPPORTED. On every launch's way. */
  kjit_status (*match)(const kjit_attention_problem *problem, const union tune_config *config, kjit_error *error);
  kjit_status (*sources)(struct source_shelf *shelf, const struct source_set **out, kjit_error *error);
};

/* By enum attention_family. */
extern const struct tune_family *const tune_families[TUNE_FAMILY_COUNT];

/* The family of this name, or NULL. */
const struct tune_family *tune_family_find(const char *name, size_t bytes);

/* Is this a field that the problem decides, and how? The others are the planner's. */
_Bool tune_family_given(const struct field *field, const struct tune_class *class, int32_t *value);

/* A choice's config, and a choice with another one. */
void tune_family_get(const struct attention_choice *choice, union tune_config *config);
void tune_family_put(const struct tune_family *family, const union tune_config *config,
                     struct attention_choice *choice);

#endif
