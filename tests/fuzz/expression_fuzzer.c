/* Any text as an expression: it is refused with file, line and column, or it has the same value, or the same error,
 * whenever it is evaluated, for small and for extreme numbers, without undefined behaviour. */
#include <stdint.h>
#include <string.h>

#include "family/expression/expression.h"
#include "fuzz/require.h"

#define TEXT_MAX 4096

static const char *const fields[] = {"a", "b", "dtype", "mode"};
static const char *const derived[] = {"twice"};
static const char *const parameters[] = {"m", NULL};
static const struct expression_label labels[] = {{"none", 3, 0}, {"bias", 3, 1}, {"none", 1, 7}};

static void check_values(const struct expression *expression) {
  static const int32_t numbers[][4] = {{12, -5, 15, 1}, {INT32_MIN, INT32_MAX, 5, 0}, {0, 0, 99, 2}};
  static const int64_t large[] = {24, INT64_MIN, INT64_MAX};
  static const int64_t limits[] = {90, 1, -1, 232448};
  for (size_t i = 0; i < 3; i++) {
    const struct expression_values values = {numbers[i], &large[i], &large[2 - i], limits};
    kjit_error error = {0};
    int64_t value, again;
    const kjit_status status = expression_evaluate(expression, &values, &value, &error);
    require(expression_evaluate(expression, &values, &again, NULL) == status && value == again);
    if (status == KJIT_OK) continue;
    require(status == KJIT_ERR_INVALID_CONFIG && value == 0);
    require(!strncmp(error.message, "fuzz.yaml:", strlen("fuzz.yaml:")));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const struct expression_scope scope = {.fields = fields,
                                         .field_count = 4,
                                         .derived = derived,
                                         .derived_count = 1,
                                         .parameters = parameters,
                                         .parameter_count = 2,
                                         .labels = labels,
                                         .label_count = 3,
                                         .dtype_fields = 1u << 2,
                                         .may = EXPRESSION_MAY_CALL | EXPRESSION_MAY_PLACE};
  char text[TEXT_MAX + 1];
  const struct expression_source source = {text, "rules[0]", "fuzz.yaml", 3, 7};
  struct expression expression;
  kjit_error error = {0};
  struct arena arena;
  struct mem mem;
  const size_t length = size < TEXT_MAX ? size : TEXT_MAX;
  memcpy(text, data, length);
  text[length] = '\0';
  (void)mem_init(&mem, NULL);
  arena_init(&arena, &mem, ARENA_UNLIMITED);
  const kjit_status status = expression_parse(&expression, &arena, &scope, &source, &error);
  if (status == KJIT_OK) {
    input_is_taken();
    check_values(&expression);
  } else {
    require(status == KJIT_ERR_PARSE && !strchr(error.message, '\n'));
    require(!strncmp(error.message, "fuzz.yaml:", strlen("fuzz.yaml:")));
  }
  arena_finish(&arena);
  return 0;
}
