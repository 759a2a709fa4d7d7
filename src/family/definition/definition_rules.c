/* What a user's family says of a config: is it legal, what is its canonical form, which numbers follow from it. These
 * are the functions that struct kjit_family points to.
 *
 * The canonical form is taken row by row, again and again until nothing changes: a field that got its plain value keeps
 * it, so that this ends after as many rounds as there are rows, and doing it twice is doing it once. A config is legal
 * only if its canonical form is, because that is what is compiled; block, shared memory, cluster and grid follow from
 * the canonical form too, because the kernel sees its constants.
 *
 * Threads: everything is read only; what is computed is on the stack. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/target.h"
#include "family/definition/definition.h"
#include "family/element.h"

/* CUDA's limits of a launch. */
enum { THREADS_MAX = 1024, THREADS_Z_MAX = 64, CLUSTER_MAX = 16, GRID_YZ_MAX = 65535 };

/* What a message has room for, in front of the rule's sentence. */
#define VALUES_SHOWN 160

/* The numbers that a config's expressions may name. */
struct numbers {
  int64_t derived[DEFINITION_DERIVED_MAX];
  int64_t limits[LIMIT_COUNT];
  struct expression_values values;
};

kjit_status definition_evaluate_derived(const struct family_definition *definition, const int32_t *values,
                                        int64_t *derived, kjit_error *error) {
  const struct expression_values known = {.fields = values, .derived = derived};
  for (size_t i = 0; i < definition->derived_count; i++) {
    const kjit_status status = expression_evaluate(&definition->derived[i], &known, &derived[i], error);
    if (status != KJIT_OK) return status;
  }
  return KJIT_OK;
}

static kjit_status get_numbers(const struct family_definition *definition, const int32_t *values,
                               struct numbers *numbers, kjit_error *error) {
  numbers->values = (struct expression_values){.fields = values, .derived = numbers->derived};
  return definition_evaluate_derived(definition, values, numbers->derived, error);
}

static kjit_status check_values(const struct family_definition *definition, const int32_t *values, kjit_error *error) {
  for (size_t i = 0; i < definition->field_count; i++) {
    const struct definition_field *const field = &definition->fields[i];
    char value[64], domain[256];
    struct text out;
    if (definition_is_legal(field, values[i])) continue;
    text_init_fixed(&out, value, sizeof value);
    definition_print_value(field, values[i], &out);
    text_init_fixed(&out, domain, sizeof domain);
    definition_print_domain(field, &out);
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %s: must be %s", field->name, value, domain);
  }
  return KJIT_OK;
}

/* "BM is 96, warps is 5, threads is 160": the fields that the expression follows from, the derived constants and limits
 * that it names, and their values. */
static void print_used(const struct family_definition *definition, const struct expression *expression,
                       const struct numbers *numbers, struct text *out) {
  const char *comma = "";
  uint64_t fields = expression->fields;
  for (size_t i = 0; i < definition->derived_count; i++)
    if (expression->derived >> i & 1) fields |= definition->derived_fields[i];
  for (size_t i = 0; i < definition->field_count; i++) {
    if (!(fields >> i & 1)) continue;
    text_appendf(out, "%s%s is ", comma, definition->fields[i].name);
    definition_print_value(&definition->fields[i], numbers->values.fields[i], out);
    comma = ", ";
  }
  for (size_t i = 0; i < definition->derived_count; i++) {
    if (!(expression->derived >> i & 1)) continue;
    text_appendf(out, "%s%s is %" PRId64, comma, definition->derived_names[i], numbers->derived[i]);
    comma = ", ";
  }
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    if (!(expression->limits >> i & 1)) continue;
    text_appendf(out, "%s%s is %" PRId64, comma, expression_limit_names[i], numbers->limits[i]);
    comma = ", ";
  }
}

/* Rules that need the card, or those that do not. */
static kjit_status check_rules(const struct family_definition *definition, const struct numbers *numbers, bool place,
                               kjit_error *error) {
  for (size_t i = 0; i < definition->rule_count; i++) {
    const struct definition_rule *const rule = &definition->rules[i];
    char used[VALUES_SHOWN];
    struct text out;
    int64_t truth;
    if (!rule->condition.limits == place) continue;
    const kjit_status status = expression_evaluate(&rule->condition, &numbers->values, &truth, error);
    if (status != KJIT_OK) return status;
    if (truth) continue;
    text_init_fixed(&out, used, sizeof used);
    print_used(definition, &rule->condition, numbers, &out);
    return error_set(error, place ? KJIT_ERR_UNSUPPORTED : KJIT_ERR_INVALID_CONFIG, "%s%s%s: %s", used,
                     out.failed ? ", ..." : "", *used ? "" : "rule", rule->sentence);
  }
  return KJIT_OK;
}

static kjit_status refuse_number(const struct expression *expression, int64_t value, const char *rule,
                                 kjit_error *error) {
  return expression_refuse(&expression->source, 0, KJIT_ERR_INVALID_CONFIG, error, "is %" PRId64 ": must be %s", value,
                           rule);
}

/* Three factors, each at least 1 and their product at most `most`; 1 where there is no expression. */
static kjit_status get_extents(const struct expression expressions[3], const struct expression_values *values,
                               int64_t most, const char *rule, uint32_t out[3], kjit_error *error) {
  int64_t product = 1;
  for (size_t i = 0; i < 3; i++) {
    int64_t extent = 1;
    out[i] = 1;
    if (!expressions[i].step_count) continue;
    const kjit_status status = expression_evaluate(&expressions[i], values, &extent, error);
    if (status != KJIT_OK) return status;
    if (extent < 1 || extent > most || product * extent > most)
      return refuse_number(&expressions[i], extent, rule, error);
    product *= extent;
    out[i] = (uint32_t)extent;
  }
  return KJIT_OK;
}

static bool has_cluster(const struct family_definition *definition) {
  const struct expression *const cluster = &definition->geometry[GEOMETRY_CLUSTER];
  return cluster[0].step_count || cluster[1].step_count || cluster[2].step_count;
}

/* Limits that every card has are checked here, without a card: 1024 threads, 64 in z, 16 blocks of a cluster. A
 * config that breaks them is never legal, so no compile is begun for it. */
static kjit_status get_geometry(const struct family_definition *definition, const struct numbers *numbers,
                                kjit_geometry *out, kjit_error *error) {
  const struct expression *const shared = &definition->geometry[GEOMETRY_SHARED];
  int64_t bytes = 0;
  *out = (kjit_geometry){0};
  kjit_status status = get_extents(&definition->geometry[GEOMETRY_BLOCK], &numbers->values, THREADS_MAX,
                                   "at least 1, and at most 1024 threads in all", out->threads, error);
  if (status == KJIT_OK && out->threads[2] > THREADS_Z_MAX)
    status = refuse_number(&definition->geometry[GEOMETRY_BLOCK + 2], out->threads[2], "at most 64", error);
  if (status == KJIT_OK && has_cluster(definition))
    status = get_extents(&definition->geometry[GEOMETRY_CLUSTER], &numbers->values, CLUSTER_MAX,
                         "at least 1, and at most 16 blocks in all", out->cluster, error);
  if (status == KJIT_OK && shared->step_count) status = expression_evaluate(shared, &numbers->values, &bytes, error);
  if (status == KJIT_OK && (bytes < 0 || bytes > INT32_MAX))
    status = refuse_number(shared, bytes, "from 0 to 2147483647 bytes", error);
  out->shared_bytes = (uint32_t)bytes;
  return status;
}

/* Rows are applied until none changes a value, because one field's plain value can make another row's condition
 * true. It ends: a row that has set its field is skipped from then on, so there are at most as many rounds as rows. */
kjit_status definition_make_canonical(const struct family_definition *definition, int32_t *values, kjit_error *error) {
  struct numbers numbers;
  kjit_status status = get_numbers(definition, values, &numbers, error);
  for (bool changed = definition->canonical_count > 0; changed && status == KJIT_OK;) {
    changed = 0;
    for (size_t i = 0; i < definition->canonical_count && status == KJIT_OK; i++) {
      const struct definition_canonical *const row = &definition->canonical[i];
      int64_t truth;
      if (values[row->field] == row->value) continue;
      status = expression_evaluate(&row->when, &numbers.values, &truth, error);
      if (status != KJIT_OK || !truth) continue;
      values[row->field] = row->value;
      changed = 1;
      status = get_numbers(definition, values, &numbers, error);
    }
  }
  return status;
}

static kjit_status check_one(const struct family_definition *definition, const int32_t *values, kjit_error *error) {
  struct numbers numbers;
  kjit_geometry geometry;
  kjit_status status = check_values(definition, values, error);
  if (status == KJIT_OK) status = get_numbers(definition, values, &numbers, error);
  if (status == KJIT_OK) status = check_rules(definition, &numbers, 0, error);
  return status == KJIT_OK ? get_geometry(definition, &numbers, &geometry, error) : status;
}

/* The canonical form is what is compiled, so it has to be legal too. If it is not, the family contradicts itself,
 * and the message blames the family and not the config. */
kjit_status definition_check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  const struct family_definition *const definition = family->definition;
  int32_t canonical[KJIT_FIELD_COUNT_MAX];
  kjit_error inner = {0};
  memcpy(canonical, values, family->table.config_bytes);
  kjit_status status = check_one(definition, values, error);
  if (status == KJIT_OK) status = definition_make_canonical(definition, canonical, error);
  if (status != KJIT_OK || !memcmp(canonical, values, family->table.config_bytes)) return status;
  status = check_one(definition, canonical, &inner);
  if (status == KJIT_OK) return status;
  return error_set(error, status,
                   "the config is legal and its canonical form is not, which is a fault of the family: %s",
                   inner.message);
}

kjit_status definition_limits(const struct family_place *place, int64_t *limits, kjit_error *error) {
  struct target target;
  const kjit_status status = target_parse(&target, place->arch, error);
  if (status != KJIT_OK) return status;
  limits[LIMIT_SM] = target.capability;
  limits[LIMIT_ARCH_SPECIFIC] = target.suffix == 'a';
  limits[LIMIT_SM_COUNT] = place->sm_count ? (int64_t)place->sm_count : -1;
  limits[LIMIT_SHARED_PER_BLOCK] = place->shared_per_block ? (int64_t)place->shared_per_block : -1;
  return KJIT_OK;
}

/* What the card does not tell is -1, and a rule that asks for it is an error rather than a guess. The checks of
 * shared memory and clusters stand here as well, so that a family without a rule for them still gets a sentence
 * before a failed launch. */
kjit_status definition_check_place(const kjit_family *family, const int32_t *values, const struct family_place *place,
                                   kjit_error *error) {
  const struct family_definition *const definition = family->definition;
  kjit_geometry geometry;
  struct numbers numbers;
  kjit_status status = definition_limits(place, numbers.limits, error);
  if (status == KJIT_OK) status = get_numbers(definition, values, &numbers, error);
  if (status != KJIT_OK) return status;
  numbers.values.limits = numbers.limits;
  status = check_rules(definition, &numbers, 1, error);
  if (status != KJIT_OK) return status;
  definition_geometry(family, values, &geometry);
  if (place->shared_per_block && geometry.shared_bytes > place->shared_per_block)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "shared is %u bytes: a block of %s has at most %u",
                     geometry.shared_bytes, place->arch, place->shared_per_block);
  const uint32_t blocks = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2];
  if (blocks > 1 && numbers.limits[LIMIT_SM] < 90)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "cluster is %u blocks: %s has none, they begin with sm_90", blocks,
                     place->arch);
  return KJIT_OK;
}

void definition_canonicalize(const kjit_family *family, int32_t *values) {
  (void)definition_make_canonical(family->definition, values, NULL);
}

void definition_geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  int32_t canonical[KJIT_FIELD_COUNT_MAX];
  struct numbers numbers;
  memcpy(canonical, values, family->table.config_bytes);
  definition_canonicalize(family, canonical);
  *out = (kjit_geometry){0};
  if (get_numbers(family->definition, canonical, &numbers, NULL) != KJIT_OK ||
      get_geometry(family->definition, &numbers, out, NULL) != KJIT_OK)
    *out = (kjit_geometry){0};
}

/* The launch's limits: 2^31 - 1 blocks in x, 65535 in y and z. An empty grid is refused, for the driver would too. */
static kjit_status get_grid(const struct family_definition *definition, const struct numbers *numbers, uint32_t grid[3],
                            kjit_error *error) {
  for (size_t i = 0; i < 3; i++) {
    const struct expression *const expression = &definition->grid[i];
    const int64_t most = i ? GRID_YZ_MAX : INT32_MAX;
    int64_t blocks = 1;
    if (expression->step_count) {
      const kjit_status status = expression_evaluate(expression, &numbers->values, &blocks, error);
      if (status != KJIT_OK) return status;
    }
    if (blocks < 1 || blocks > most)
      return refuse_number(expression, blocks, i ? "from 1 to 65535" : "from 1 to 2147483647", error);
    grid[i] = (uint32_t)blocks;
  }
  return KJIT_OK;
}

kjit_status definition_grid(const struct family_definition *definition, const int32_t *values,
                            const int64_t *parameters, uint32_t sm_count, uint32_t grid[3], kjit_error *error) {
  int32_t canonical[KJIT_FIELD_COUNT_MAX];
  struct numbers numbers = {.limits = {-1, -1, sm_count ? (int64_t)sm_count : -1, -1}};
  memcpy(canonical, values, definition->family.table.config_bytes);
  kjit_status status = definition_make_canonical(definition, canonical, error);
  if (status == KJIT_OK) status = get_numbers(definition, canonical, &numbers, error);
  numbers.values.parameters = parameters;
  numbers.values.limits = numbers.limits;
  if (status == KJIT_OK) status = get_grid(definition, &numbers, grid, error);
  if (status != KJIT_OK) memset(grid, 0, 3 * sizeof *grid);
  return status;
}
