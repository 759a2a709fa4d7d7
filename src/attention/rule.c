/* Rules of fields that several families have, and the one wording of what breaks them. Pure functions; any thread. */
#include "attention/rule.h"

#include <string.h>

#include "base/error.h"
#include "base/target.h"

kjit_status rule_broken(kjit_error *error, const char *field, int32_t value, const char *rule) {
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be %s", field, (int)value, rule);
}

kjit_status rule_check_head(const char *field, int32_t columns, kjit_error *error) {
  if (rule_is_head(columns)) return KJIT_OK;
  return rule_broken(error, field, columns, "a multiple of 8 from 8 to 256");
}

kjit_status rule_check_heads(const kjit_attention_problem *problem, const char *who, kjit_error *error) {
  const bool is_first = !rule_is_head(problem->head_dim);
  if (!is_first && rule_is_head(problem->head_dim_v)) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "%s is %lld: %s takes multiples of 8 up to 256",
                   is_first ? "head_dim" : "head_dim_v",
                   (long long)(is_first ? problem->head_dim : problem->head_dim_v), who);
}

kjit_status rule_check_grid(int64_t batch, int64_t heads, const char *who, kjit_error *error) {
  if (batch <= RULE_GRID_YZ_MAX && heads <= RULE_GRID_YZ_MAX) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "batch is %lld and heads %lld: %s takes at most %d of each",
                   (long long)batch, (long long)heads, who, RULE_GRID_YZ_MAX);
}

kjit_status rule_unequal(const char *field, int32_t value, int64_t wanted, const char *what, kjit_error *error) {
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be the %s, %lld", field, (int)value, what,
                   (long long)wanted);
}

kjit_status rule_check_hopper(const kjit_family *family, const int32_t *values, const struct family_place *place,
                              kjit_error *error) {
  struct target target;
  const kjit_status status = target_parse(&target, place->arch, error);
  (void)values;
  if (status != KJIT_OK || !strcmp(target.name, HOPPER_ARCH)) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: %s requires " HOPPER_ARCH " (current: %s)", family->table.family,
                   target.name);
}

bool rule_is_arch_specific(const kjit_family *family, const int32_t *values) {
  (void)family, (void)values;
  return true;
}

int64_t rule_line_bytes(int64_t columns) {
  enum { ELEMENT_BYTES = 2, LINE_BYTES = 128 };
  const int64_t bytes = columns * ELEMENT_BYTES, step = bytes & -bytes;
  return step >= LINE_BYTES ? bytes : bytes + LINE_BYTES - step;
}
