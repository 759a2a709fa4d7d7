/* The filter of `kjit cache export` and `kjit bundle create`: "name=value" conditions, all of which must hold.
 *
 * A comma separates two conditions only if a name and "=" follow it. So a label may contain commas, and the text
 * needs no quotes. Family, architecture and kernel name must be equal, a label must contain the value, a key must
 * begin with it. Values are slices of the caller's text; nothing is allocated. Any thread may call. */
#include "jit/admin/entry_filter.h"

#include <string.h>

#include "base/error.h"
#include "jit/key/key_reader.h"

static const char *const filter_names[FILTER_NAMES] = {"family", "arch", "entry", "label", "key"};

/* Which name begins at `text` with a "=" behind it: its index, with the length of both in *bytes, or FILTER_NAMES. */
static int name_at(const char *text, size_t *bytes) {
  for (int i = 0; i < FILTER_NAMES; i++) {
    const size_t length = strlen(filter_names[i]);
    if (strncmp(text, filter_names[i], length) || text[length] != '=') continue;
    *bytes = length + 1;
    return i;
  }
  return FILTER_NAMES;
}

/* Where the value ends: at the comma before the next condition, or at the end of the text. */
static const char *value_end(const char *value) {
  size_t ignored;
  const char *comma = value;
  while ((comma = strchr(comma, ','))) {
    if (name_at(comma + 1, &ignored) != FILTER_NAMES) return comma;
    comma++;
  }
  return value + strlen(value);
}

kjit_status entry_filter_parse(struct entry_filter *filter, const char *text, kjit_error *error) {
  *filter = (struct entry_filter){0};
  for (const char *at = text ? text : ""; *at;) {
    size_t bytes = 0;
    const int name = name_at(at, &bytes);
    if (name == FILTER_NAMES)
      return error_set(error, KJIT_ERR_INVALID_ARG,
                       "filter: \"%.40s\" does not begin with family=, arch=, entry=, label= or key=", at);
    const char *value = at + bytes, *end = value_end(value);
    if (filter->wanted[name].data)
      return error_set(error, KJIT_ERR_INVALID_ARG, "filter: %s is given twice", filter_names[name]);
    filter->wanted[name] = (struct entry_text){value, (size_t)(end - value)};
    at = *end ? end + 1 : end;
  }
  return KJIT_OK;
}

static bool equal(const struct entry_text *wanted, const char *data, size_t bytes) {
  return !wanted->data || (wanted->bytes == bytes && !memcmp(wanted->data, data, bytes));
}

/* Is this field of the entry's key equal to the wanted value, or not asked for? */
static bool field_equal(const struct entry_text *wanted, const struct entry *entry, const char *tag) {
  struct key_field field;
  if (!wanted->data) return true;
  return key_find(entry->key_text.data, entry->key_text.bytes, tag, &field) &&
         equal(wanted, field.value, field.value_bytes);
}

bool entry_filter_accepts(const struct entry_filter *filter, const struct entry_name *name, const struct entry *entry) {
  const struct entry_text *key = &filter->wanted[FILTER_KEY], *label = &filter->wanted[FILTER_LABEL];
  return equal(&filter->wanted[FILTER_FAMILY], entry->family.data, entry->family.bytes) &&
         field_equal(&filter->wanted[FILTER_ARCH], entry, KEY_TAG_TARGET) &&
         field_equal(&filter->wanted[FILTER_ENTRY], entry, KEY_TAG_ENTRY) &&
         (!label->data || memmem(entry->label.data, entry->label.bytes, label->data, label->bytes)) &&
         (!key->data || !strncmp(entry_name_key(name), key->data, key->bytes));
}
