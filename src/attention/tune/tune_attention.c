/* Attention as a subject of tuned tables: its classes are those of tune_class.h, its rows name configs of both
 * families, and a row serves a problem that its config can be fitted to. Pure, but for the table's count of misfits. */
#include "attention/tune/tune_attention.h"

#include <string.h>

#include "attention/decode/decode_config.h"
#include "attention/flash/flash_family.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/short/short_config.h"
#include "attention/sm90/sm90_config.h"
#include "family/config_build.h"

/* A class in a row is the int32 members of struct tune_class, in order. */
static const struct tune_class *view(const int32_t *class) {
  return (const void *)class;
}

static kjit_status check(const struct tune_subject *subject, const int32_t *class, kjit_error *error) {
  (void)subject;
  return tune_class_check(view(class), error);
}

static bool gives(const struct tune_subject *subject, const int32_t *class, const kjit_field_info *field,
                  int32_t *value) {
  (void)subject;
  return tune_class_gives(view(class), field, value);
}

static kjit_status digest(const struct tune_subject *subject, size_t index, struct builder *builder, struct digest *out,
                          kjit_error *error) {
  const struct source_set *sources = NULL;
  const kjit_status status = config_sources(subject->families[index], builder_sources(builder), &sources, error);
  if (status == KJIT_OK) *out = sources->digest;
  return status;
}

_Static_assert(ATTENTION_FAMILY_COUNT <= TUNE_FAMILIES_MAX, "a table's header has a digest for each family");
_Static_assert(sizeof(struct tune_class) <= TUNE_CLASS_MAX * sizeof(int32_t), "a row has room for a class");

static const kjit_family *const families[ATTENTION_FAMILY_COUNT] = {&sm90_family, &flash_forward_family, &decode_family,
                                                                    &short_family, &serving_sm90_family};

const struct tune_subject tune_attention = {.class = &tune_class_fields,
                                            .families = families,
                                            .family_count = ATTENTION_FAMILY_COUNT,
                                            .prefix = "",
                                            .check = check,
                                            .gives = gives,
                                            .digest = digest};

/* A row serves a whole class, so its config is fitted to this problem and checked; if it does not fit, that is counted
 * and the rules decide. */
bool tune_attention_choose(struct tune_table *table, const kjit_attention_problem *problem,
                           struct attention_choice *out) {
  union {
    struct tune_class members;
    int32_t numbers[TUNE_CLASS_MAX];
  } class;
  if (!table->count) return false;
  tune_class_of(problem, &class.members);
  const struct tune_row *row = tune_table_find(table, class.numbers);
  if (!row || row->rules) return false;
  out->family = attention_family_of(row->family);
  out->decided_by = KJIT_DECIDED_BY_TABLE;
  memcpy(out->values, row->values, sizeof out->values);
  if (out->family->fit(problem, out->values, NULL) == KJIT_OK &&
      row->family->check(row->family, out->values, NULL) == KJIT_OK)
    return true;
  memset(out, 0, sizeof *out);
  tune_table_count_misfit(table);
  return false;
}

static bool find_choice(void *table, const kjit_attention_problem *problem, struct attention_choice *out) {
  return tune_attention_choose(table, problem, out);
}

struct attention_measured tune_attention_measured(struct tune_table *table) {
  return (struct attention_measured){table ? find_choice : NULL, table};
}

static kjit_status fit(const void *user, int32_t *values, kjit_error *error) {
  const struct tune_attention_start *const start = user;
  return start->choice.family->fit(start->problem, values, error);
}

kjit_status tune_attention_start_init(struct tune_attention_start *start, const kjit_attention_problem *problem,
                                      const struct family_place *place, kjit_error *error) {
  static const struct attention_measured nothing;
  *start = (struct tune_attention_start){.problem = problem};
  const kjit_status status = attention_choose(problem, place, &nothing, false, &start->choice, error);
  if (status != KJIT_OK) return status;
  tune_class_of(problem, &start->class);
  start->start = (struct tune_start){.subject = &tune_attention,
                                     .family = start->choice.family->family,
                                     .values = start->choice.values,
                                     .class = (const int32_t *)&start->class,
                                     .place = place,
                                     .fit = fit,
                                     .problem = start};
  return KJIT_OK;
}
