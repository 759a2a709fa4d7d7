/* Reads an attention problem from text such as "dtype=bf16,head_dim=128,seq_q=4096". A table has a row for each key:
 * its kind, bounds and member. Each "key=value" is looked up, checked and stored; then the defaults of keys that were
 * not given are filled in. The first fault ends the reading, with its column. One thread. */
#include "attention_text.h"

#include "command.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Bounds of a shape: kernels count in 32 bits. */
#define MOST_COUNT INT32_MAX
#define MOST_SEQ   INT32_MAX
/* Longest value of a key, with its NUL: a float written in full. */
#define VALUE_BYTES 64
/* Longest name of a key and what stands in front of it in a list. */
#define NAME_BYTES 16

enum key_kind {
  KEY_NUMBER, /* an int64_t                              */
  KEY_WORD,   /* an int32_t, or an enum of the same size */
  KEY_FLAG,   /* one bit of a uint32_t                   */
  KEY_BOOL,
  KEY_SCALE, /* a double */
};

struct word {
  const char *text;
  int32_t value;
};

static const struct word dtype_words[] = {{"fp16", KJIT_FP16}, {"bf16", KJIT_BF16}, {NULL, 0}};
_Static_assert(sizeof(enum problem_layout) == sizeof(int32_t), "a KEY_WORD is stored as an int32_t");
_Static_assert(sizeof(enum problem_pass) == sizeof(int32_t), "and so is this one");
static const struct word pass_words[] = {{"forward", PASS_FORWARD}, {"backward", PASS_BACKWARD}, {NULL, 0}};
static const struct word layout_words[] = {{"bshd", LAYOUT_BSHD}, {"bhsd", LAYOUT_BHSD}, {NULL, 0}};

struct key {
  const char *name;
  enum key_kind kind;
  uint32_t flag;            /* KEY_FLAG   */
  size_t offset;            /* of the member */
  uint64_t least, most;     /* KEY_NUMBER, and 0 and 1 of KEY_FLAG and KEY_BOOL */
  const struct word *words; /* KEY_WORD */
  const char *expected;     /* KEY_WORD: for the message */
};

#define NUMBER(member, least, most)                                                                                    \
  { #member, KEY_NUMBER, 0, offsetof(struct trial_problem, asked.member), least, most, NULL, NULL }
#define FLAG(name, flag)                                                                                               \
  { name, KEY_FLAG, flag, offsetof(struct trial_problem, asked.flags), 0, 1, NULL, NULL }

static const struct key keys[] = {
    {"dtype", KEY_WORD, 0, offsetof(struct trial_problem, asked.dtype), 0, 0, dtype_words, "fp16 or bf16"},
    NUMBER(head_dim, 1, 1024),
    NUMBER(head_dim_v, 1, 1024),
    NUMBER(batch, 1, MOST_COUNT),
    NUMBER(heads_q, 1, MOST_COUNT),
    NUMBER(heads_kv, 1, MOST_COUNT),
    NUMBER(seq_q, 1, MOST_SEQ),
    NUMBER(seq_kv, 1, MOST_SEQ),
    FLAG("causal", KJIT_ATTENTION_CAUSAL),
    {"scale", KEY_SCALE, 0, offsetof(struct trial_problem, scale), 0, 0, NULL, NULL},
    {"layout", KEY_WORD, 0, offsetof(struct trial_problem, layout), 0, 0, layout_words, "bshd or bhsd"},
    {"pass", KEY_WORD, 0, offsetof(struct trial_problem, pass), 0, 0, pass_words, "forward or backward"},
    {"lse", KEY_BOOL, 0, offsetof(struct trial_problem, lse), 0, 1, NULL, NULL},
};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

/* One "key=value" of the text. */
struct item {
  const char *key;
  size_t key_bytes;
  const char *value;
  size_t value_bytes;
  size_t column; /* of the key, from 1 */
};

static bool item_split(const char *text, const char *at, struct item *item) {
  const size_t bytes = strcspn(at, ",");
  const char *equals = memchr(at, '=', bytes);
  if (equals == NULL) return false;
  const size_t key_bytes = (size_t)(equals - at);
  *item = (struct item){at, key_bytes, equals + 1, bytes - key_bytes - 1, (size_t)(at - text) + 1};
  return true;
}

static const struct key *key_find(const struct item *item) {
  for (size_t i = 0; i < KEY_COUNT; i++)
    if (strlen(keys[i].name) == item->key_bytes && memcmp(keys[i].name, item->key, item->key_bytes) == 0)
      return &keys[i];
  return NULL;
}

static kjit_status value_unexpected(const struct item *item, const struct key *key, const char *expected,
                                    kjit_error *error) {
  return error_say(error, KJIT_ERR_PARSE, "column %zu: %s=%.*s: %s is expected", item->column + item->key_bytes + 1,
                   key->name, (int)item->value_bytes, item->value, expected);
}

static void number_keep(const struct key *key, uint64_t number, void *member) {
  if (key->kind == KEY_NUMBER)
    *(int64_t *)member = (int64_t)number;
  else if (key->kind == KEY_BOOL)
    *(bool *)member = number != 0;
  else if (number != 0)
    *(uint32_t *)member |= key->flag;
}

static kjit_status number_store(const struct item *item, const struct key *key, const char *value, void *member,
                                kjit_error *error) {
  uint64_t number;
  if (number_read(value, key->least, key->most, &number)) {
    number_keep(key, number, member);
    return KJIT_OK;
  }
  char expected[VALUE_BYTES];
  snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)key->least,
           (unsigned long long)key->most);
  return value_unexpected(item, key, expected, error);
}

static kjit_status word_store(const struct item *item, const struct key *key, const char *value, void *member,
                              kjit_error *error) {
  for (const struct word *word = key->words; word->text != NULL; word++)
    if (strcasecmp(word->text, value) == 0) {
      memcpy(member, &word->value, sizeof word->value);
      return KJIT_OK;
    }
  return value_unexpected(item, key, key->expected, error);
}

static kjit_status scale_store(const struct item *item, const struct key *key, const char *value, void *member,
                               kjit_error *error) {
  char *end;
  const double scale = strtod(value, &end);
  if (end == value || *end != '\0' || !isfinite(scale) || scale <= 0)
    return value_unexpected(item, key, "a finite number above 0", error);
  *(double *)member = scale;
  return KJIT_OK;
}

static kjit_status value_store(const struct item *item, const struct key *key, struct trial_problem *out,
                               kjit_error *error) {
  char value[VALUE_BYTES];
  if (item->value_bytes >= sizeof value) return value_unexpected(item, key, "a shorter value", error);
  memcpy(value, item->value, item->value_bytes);
  value[item->value_bytes] = '\0';
  void *member = (char *)out + key->offset;
  switch (key->kind) {
  case KEY_WORD:
    return word_store(item, key, value, member, error);
  case KEY_SCALE:
    return scale_store(item, key, value, member, error);
  default:
    return number_store(item, key, value, member, error);
  }
}

static kjit_status key_unknown(const struct item *item, kjit_error *error) {
  char known[KEY_COUNT * NAME_BYTES] = "";
  size_t bytes = 0;
  for (size_t i = 0; i < KEY_COUNT; i++)
    bytes += (size_t)snprintf(known + bytes, sizeof known - bytes, "%s%s", i > 0 ? ", " : "", keys[i].name);
  return error_say(error, KJIT_ERR_PARSE, "column %zu: unknown key '%.*s'; known are %s", item->column,
                   (int)item->key_bytes, item->key, known);
}

static kjit_status item_read(const char *text, const char *at, bool seen[KEY_COUNT], struct trial_problem *out,
                             kjit_error *error) {
  struct item item;
  if (!item_split(text, at, &item))
    return error_say(error, KJIT_ERR_PARSE, "column %zu: '%.*s': key=value is expected", (size_t)(at - text) + 1,
                     (int)strcspn(at, ","), at);
  const struct key *key = key_find(&item);
  if (key == NULL) return key_unknown(&item, error);
  if (seen[key - keys])
    return error_say(error, KJIT_ERR_PARSE, "column %zu: '%s' stands here twice", item.column, key->name);
  seen[key - keys] = true;
  return value_store(&item, key, out, error);
}

static void fill_defaults(kjit_attention_problem *asked) {
  if (asked->head_dim_v == 0) asked->head_dim_v = asked->head_dim;
  if (asked->heads_kv == 0) asked->heads_kv = asked->heads_q;
  if (asked->seq_kv == 0) asked->seq_kv = asked->seq_q;
}

kjit_status attention_text_parse(const char *text, struct trial_problem *out, kjit_error *error) {
  bool seen[KEY_COUNT] = {false};
  *out = (struct trial_problem){.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 4096)};
  for (const char *at = text + strspn(text, " \t");; at++) {
    const kjit_status status = item_read(text, at, seen, out, error);
    if (status != KJIT_OK) return status;
    at += strcspn(at, ",");
    if (*at == '\0') break;
  }
  if (out->asked.dtype == 0) return error_say(error, KJIT_ERR_PARSE, "dtype is missing: dtype=fp16 or dtype=bf16");
  if (out->asked.head_dim == 0) return error_say(error, KJIT_ERR_PARSE, "head_dim is missing");
  fill_defaults(&out->asked);
  return KJIT_OK;
}
