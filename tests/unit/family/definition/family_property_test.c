/* What holds for every family, over some thousand random ones: text there and back, one key for equal code, different
 * keys for different constants, sets that hold exactly the legal configs of their product. */
#include "unit/family/family_fixture.h"

#include "random_family.h"
#include <stdbool.h>

#include "jit/key/key.h"
#include "jit/request/custom_request.h"

#define FAMILIES 3000
#define CONFIGS  24

struct sample {
  int32_t values[KJIT_FIELD_COUNT_MAX];
  bool legal;
  char key[8192]; /* of a legal one: the text that its key is the digest of */
};

/* A value of the field, or now and then any number. */
static int32_t random_value(struct random_family *r, const struct definition_field *field) {
  if (random_family_below(r, 16) == 0) return (int32_t)(random_family_below(r, UINT32_MAX) - (UINT32_MAX >> 1));
  return definition_value_at(field, random_family_below(r, (uint32_t)definition_value_count(field)));
}

static void check_text(const struct family_fixture *f, const int32_t *values) {
  char buffer[DEFINITION_TEXT_MAX];
  int32_t again[KJIT_FIELD_COUNT_MAX];
  struct text out;
  text_init_fixed(&out, buffer, sizeof buffer);
  f->family->print(f->family, values, &out);
  assert_false(out.failed);
  assert_int_equal(f->family->parse(f->family, buffer, again, NULL), KJIT_OK);
  assert_memory_equal(again, values, f->family->table.config_bytes);
}

/* The key of a config's canonical form, made as for every family. */
static void make_key(const struct family_fixture *f, const int32_t *canonical, char out[8192]) {
  char prologue[6144];
  struct text text;
  struct key key;
  struct jit_request request = {.family = "random", .label = "", .entry = "k", .target = {"sm_80", 80, 0}};
  struct custom_request custom;
  assert_int_equal(custom_request_init(&custom, &f->mem, f->family->own_source, "sm_80", NULL), KJIT_OK);
  request.sources = custom.request.sources;
  text_init_fixed(&text, prologue, sizeof prologue);
  field_table_defines(&f->family->table, canonical, &text);
  f->family->derive(f->family, canonical, &text);
  assert_false(text.failed);
  request.prologue = prologue;
  assert_int_equal(key_make(&key, &f->mem, &request, NULL, NULL), KJIT_OK);
  assert_true(key.text.bytes < 8192);
  memcpy(out, key.text.data, key.text.bytes + 1);
  key_finish(&key);
  custom_request_finish(&custom);
}

static void make_sample(const struct family_fixture *f, struct random_family *r, struct sample *sample) {
  int32_t again[KJIT_FIELD_COUNT_MAX];
  kjit_geometry geometry;
  for (size_t i = 0; i < f->definition->field_count; i++)
    sample->values[i] = random_value(r, &f->definition->fields[i]);
  check_text(f, sample->values);
  sample->legal = f->family->check(f->family, sample->values, NULL) == KJIT_OK;
  f->family->geometry(f->family, sample->values, &geometry);
  if (!sample->legal) return;
  f->family->canonicalize(f->family, sample->values);
  assert_int_equal(f->family->check(f->family, sample->values, NULL), KJIT_OK);
  memcpy(again, sample->values, sizeof again);
  f->family->canonicalize(f->family, again);
  assert_memory_equal(again, sample->values, f->family->table.config_bytes);
  make_key(f, sample->values, sample->key);
}

static bool is_equal(const struct family_fixture *f, const struct sample *a, const struct sample *b) {
  return !memcmp(a->values, b->values, f->family->table.config_bytes);
}

static void test_family__equal_canonical_forms_have_one_key_and_others_have_others(void **state) {
  struct family_fixture *f = *state;
  static struct sample samples[CONFIGS];
  size_t made = 0, legal = 0, equal = 0;
  for (uint64_t seed = 0; seed < FAMILIES; seed++) {
    char buffer[8192];
    struct random_family r;
    struct text text;
    text_init_fixed(&text, buffer, sizeof buffer);
    random_family_write(&r, seed, &text);
    assert_false(text.failed);
    const kjit_status status = family_fixture_make(f, buffer, "// no constants\n");
    if (status != KJIT_OK) assert_contains(f->error.message, "no config of the set product is legal");
    if (status != KJIT_OK) continue;
    made++;
    for (size_t i = 0; i < CONFIGS; i++) {
      make_sample(f, &r, &samples[i]);
      legal += samples[i].legal;
      for (size_t other = 0; other < i; other++) {
        if (!samples[i].legal || !samples[other].legal) continue;
        assert_int_equal(is_equal(f, &samples[i], &samples[other]), !strcmp(samples[i].key, samples[other].key));
        equal += is_equal(f, &samples[i], &samples[other]);
      }
    }
    family_fixture_finish(f);
  }
  assert_true(made > FAMILIES / 2); /* the generator makes families, legal configs and pairs that are equal */
  assert_true(legal > made * 4);
  assert_true(equal > FAMILIES);
}

/* Every config of the product by hand, through the public functions of the family. */
static void check_set(const struct family_fixture *f) {
  const struct family_definition *const definition = f->definition;
  int32_t values[KJIT_FIELD_COUNT_MAX], member[KJIT_FIELD_COUNT_MAX];
  size_t axes = definition->field_count < 3 ? definition->field_count : 3, candidates = 1, legal = 0;
  for (size_t i = 0; i < definition->field_count; i++)
    values[i] = definition->fields[i].default_value;
  for (size_t i = 0; i < axes; i++)
    candidates *= definition_value_count(&definition->fields[i]);
  for (size_t number = 0; number < candidates; number++) {
    size_t rest = number;
    for (size_t i = axes; i-- > 0;) {
      const size_t count = definition_value_count(&definition->fields[i]);
      values[i] = definition_value_at(&definition->fields[i], rest % count);
      rest /= count;
    }
    if (f->family->check(f->family, values, NULL) != KJIT_OK) continue;
    legal++;
  }
  const size_t count = f->family->set_count(f->family, "product");
  assert_true(count >= 1 && count <= legal);
  for (size_t i = 0; i < count; i++) {
    f->family->set_get(f->family, "product", i, member);
    assert_int_equal(f->family->check(f->family, member, NULL), KJIT_OK);
    for (size_t other = 0; other < i; other++) {
      f->family->set_get(f->family, "product", other, values);
      assert_memory_not_equal(member, values, f->family->table.config_bytes);
    }
  }
}

static void test_family__sets_hold_legal_configs_once(void **state) {
  struct family_fixture *f = *state;
  size_t checked = 0;
  for (uint64_t seed = 0; seed < FAMILIES / 3; seed++) {
    char buffer[8192];
    struct random_family r;
    struct text text;
    text_init_fixed(&text, buffer, sizeof buffer);
    random_family_write(&r, seed, &text);
    if (!strstr(buffer, "sets:")) continue;
    if (family_fixture_make(f, buffer, "// no constants\n") != KJIT_OK) continue;
    check_set(f);
    checked++;
    family_fixture_finish(f);
  }
  assert_true(checked > FAMILIES / 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      family_unit_test(test_family__equal_canonical_forms_have_one_key_and_others_have_others),
      family_unit_test(test_family__sets_hold_legal_configs_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
