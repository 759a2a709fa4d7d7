/* Reads the model of a "serving" line of a manifest: one word after the other is looked up by its key, its value is
 * read and stored. The first fault ends the reading, with its column. One thread. */
#include "serving_spec.h"

#include "command.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SEPARATORS  " \t,"
#define VALUE_BYTES 32
/* Longest key and what stands in front of it in a list. */
#define NAME_BYTES 16
#define MOST_HEADS 65535
#define MOST_PAGE  (1 << 30)

static bool read_number(const char *value, uint64_t least, uint64_t most, int64_t *out) {
  uint64_t number;
  if (!number_read(value, least, most, &number)) return false;
  *out = (int64_t)number;
  return true;
}

/* "32/8": query heads, and key heads; "32": as many of both. */
static bool read_heads(const char *value, kjit_serving_model *out) {
  char first[VALUE_BYTES];
  const size_t bytes = strcspn(value, "/");
  memcpy(first, value, bytes);
  first[bytes] = '\0';
  if (!read_number(first, 1, MOST_HEADS, &out->heads_q)) return false;
  out->heads_kv = out->heads_q;
  return value[bytes] == '\0' ||
         (read_number(value + bytes + 1, 1, MOST_HEADS, &out->heads_kv) && out->heads_q % out->heads_kv == 0);
}

static bool read_dtype(const char *value, kjit_serving_model *out) {
  out->dtype = strcasecmp(value, "fp16") == 0 ? KJIT_FP16 : strcasecmp(value, "bf16") == 0 ? KJIT_BF16 : 0;
  return out->dtype != 0;
}

static bool read_cache(const char *value, kjit_serving_model *out) {
  if (strcasecmp(value, "e4m3") == 0 || strcasecmp(value, "fp8_e4m3") == 0)
    out->cache = KJIT_FP8_E4M3;
  else
    out->cache = strcasecmp(value, "fp16") == 0 ? KJIT_FP16 : strcasecmp(value, "bf16") == 0 ? KJIT_BF16 : 0;
  return out->cache != 0;
}

static bool read_softcap(const char *value, kjit_serving_model *out) {
  out->softcap = value[0] == '1';
  return (value[0] == '0' || value[0] == '1') && value[1] == '\0';
}

static bool read_head_dim(const char *value, kjit_serving_model *out) {
  return read_number(value, 1, 1024, &out->head_dim);
}
static bool read_head_dim_v(const char *value, kjit_serving_model *out) {
  return read_number(value, 1, 1024, &out->head_dim_v);
}
static bool read_page(const char *value, kjit_serving_model *out) {
  return read_number(value, 0, MOST_PAGE, &out->page_size);
}

static const struct {
  const char *key;
  bool (*read)(const char *value, kjit_serving_model *out);
  const char *expected;
} keys[] = {{"heads", read_heads, "query heads/key heads, which divide them, such as 32/8,"},
            {"head_dim", read_head_dim, "a number from 1 to 1024"},
            {"head_dim_v", read_head_dim_v, "a number from 1 to 1024"},
            {"page", read_page, "the positions of a page, or 0,"},
            {"dtype", read_dtype, "fp16 or bf16"},
            {"cache", read_cache, "fp16, bf16 or e4m3, the type of keys and values,"},
            {"softcap", read_softcap, "0 or 1"}};
enum { KEY_COUNT = sizeof keys / sizeof *keys };

static kjit_status key_unknown(size_t column, const char *key, size_t bytes, kjit_error *error) {
  char known[KEY_COUNT * NAME_BYTES] = "";
  size_t written = 0;
  for (size_t i = 0; i < KEY_COUNT; i++)
    written += (size_t)snprintf(known + written, sizeof known - written, "%s%s", i > 0 ? ", " : "", keys[i].key);
  return error_say(error, KJIT_ERR_PARSE, "column %zu: unknown key '%.*s'; known are %s", column, (int)bytes, key,
                   known);
}

static kjit_status read_word(const char *text, const char *at, size_t bytes, bool seen[KEY_COUNT],
                             kjit_serving_model *out, kjit_error *error) {
  const size_t column = (size_t)(at - text) + 1;
  const char *equals = memchr(at, '=', bytes);
  char value[VALUE_BYTES];
  if (equals == NULL)
    return error_say(error, KJIT_ERR_PARSE, "column %zu: '%.*s': key=value is expected", column, (int)bytes, at);
  const size_t key_bytes = (size_t)(equals - at), value_bytes = bytes - key_bytes - 1;
  for (size_t i = 0; i < KEY_COUNT; i++) {
    if (strlen(keys[i].key) != key_bytes || memcmp(keys[i].key, at, key_bytes) != 0) continue;
    if (seen[i]) return error_say(error, KJIT_ERR_PARSE, "column %zu: '%s' stands here twice", column, keys[i].key);
    seen[i] = true;
    snprintf(value, sizeof value, "%.*s", (int)value_bytes, equals + 1);
    if (value_bytes < sizeof value && keys[i].read(value, out)) return KJIT_OK;
    return error_say(error, KJIT_ERR_PARSE, "column %zu: '%.*s': %s is expected", column, (int)bytes, at,
                     keys[i].expected);
  }
  return key_unknown(column, at, key_bytes, error);
}

kjit_status serving_spec_parse(const char *text, kjit_serving_model *out, kjit_error *error) {
  bool seen[KEY_COUNT] = {false};
  *out = kjit_serving_model_default();
  out->heads_q = 1;
  for (const char *at = text + strspn(text, SEPARATORS); *at != '\0'; at += strspn(at, SEPARATORS)) {
    const size_t bytes = strcspn(at, SEPARATORS);
    const kjit_status status = read_word(text, at, bytes, seen, out, error);
    if (status != KJIT_OK) return status;
    at += bytes;
  }
  if (out->dtype == 0) return error_say(error, KJIT_ERR_PARSE, "dtype is missing: dtype=fp16 or dtype=bf16");
  if (out->head_dim == 0) return error_say(error, KJIT_ERR_PARSE, "head_dim is missing");
  return KJIT_OK;
}
