/* Reading a key text: fields of the form "tag length:value", one after another.
 *
 * The text may come from a damaged file or from a user, so nothing is believed: a tag has letters and a bounded
 * length, a length has no leading zeros and never exceeds the bytes that remain, and a value ends in a line break.
 * key_is_sound() also requires the fields in the grammar's order. Fields are slices of the text; nothing is
 * allocated. Any thread may call. */
#include "jit/key/key_reader.h"

#include <string.h>

#define TAG_MAX_BYTES 16 /* longer than the longest tag */

void key_reader_init(struct key_reader *reader, const char *text, size_t bytes) {
  const size_t head = sizeof KEY_HEAD - 1;
  *reader = (struct key_reader){text, bytes, head, 0};
  reader->sound = bytes >= head && !memcmp(text, KEY_HEAD, head);
}

/* Read a tag: lower-case letters and "-", ended by a space. */
static bool read_tag(struct key_reader *reader, struct key_field *field) {
  const size_t start = reader->at;
  while (reader->at < reader->bytes && reader->text[reader->at] != ' ') {
    const char c = reader->text[reader->at++];
    if ((c < 'a' || c > 'z') && c != '-') return false;
    if (reader->at - start > TAG_MAX_BYTES) return false;
  }
  field->tag = reader->text + start;
  field->tag_bytes = reader->at - start;
  return field->tag_bytes && reader->at++ < reader->bytes;
}

/* Read a length: decimal without leading zeros, ended by a colon. It is compared with the size of the text at each
 * digit, so it cannot overflow. */
static bool read_length(struct key_reader *reader, size_t *length) {
  const size_t start = reader->at;
  *length = 0;
  while (reader->at < reader->bytes && reader->text[reader->at] != ':') {
    const char c = reader->text[reader->at++];
    if (c < '0' || c > '9' || (*length == 0 && reader->at - start > 1)) return false;
    *length = *length * 10 + (size_t)(c - '0');
    if (*length > reader->bytes) return false;
  }
  return reader->at > start && reader->at++ < reader->bytes;
}

static bool read_value(struct key_reader *reader, struct key_field *field) {
  size_t length;
  if (!read_length(reader, &length) || length >= reader->bytes - reader->at) return false;
  field->value = reader->text + reader->at;
  field->value_bytes = length;
  reader->at += length;
  return reader->text[reader->at++] == '\n';
}

bool key_reader_next(struct key_reader *reader, struct key_field *field) {
  if (!reader->sound || reader->at == reader->bytes) return false;
  field->offset = reader->at;
  reader->sound = read_tag(reader, field) && read_value(reader, field);
  return reader->sound;
}

bool key_field_is(const struct key_field *field, const char *tag) {
  return strlen(tag) == field->tag_bytes && !memcmp(tag, field->tag, field->tag_bytes);
}

bool key_find(const char *text, size_t bytes, const char *tag, struct key_field *field) {
  struct key_reader reader;
  key_reader_init(&reader, text, bytes);
  while (key_reader_next(&reader, field))
    if (key_field_is(field, tag)) return true;
  return false;
}

/* Does `field`, the field read last, have this tag? If so, read the next one into `field`. */
static bool take(struct key_reader *reader, struct key_field *field, const char *tag) {
  if (!key_field_is(field, tag)) return false;
  if (!key_reader_next(reader, field)) *field = (struct key_field){"", "", 0, 0, reader->bytes};
  return reader->sound;
}

bool key_is_sound(const char *text, size_t bytes) {
  struct key_reader reader;
  struct key_field field;
  key_reader_init(&reader, text, bytes);
  if (!key_reader_next(&reader, &field)) return false;
  if (!take(&reader, &field, KEY_TAG_FORMAT) || !take(&reader, &field, KEY_TAG_TARGET)) return false;
  if (!take(&reader, &field, KEY_TAG_ENTRY)) return false;
  while (take(&reader, &field, KEY_TAG_NAME))
    ;
  while (take(&reader, &field, KEY_TAG_OPTION))
    ;
  if (!take(&reader, &field, KEY_TAG_PROLOGUE)) return false;
  while (take(&reader, &field, KEY_TAG_SOURCE))
    if (!take(&reader, &field, KEY_TAG_DIGEST)) return false;
  while (take(&reader, &field, KEY_TAG_PART))
    if (!take(&reader, &field, KEY_TAG_DIGEST)) return false;
  (void)take(&reader, &field, KEY_TAG_OUTPUT);
  return take(&reader, &field, KEY_TAG_COMPILER) && !field.tag_bytes;
}

size_t key_request_part(const char *text, size_t bytes) {
  struct key_field field;
  return key_find(text, bytes, KEY_TAG_COMPILER, &field) ? field.offset : bytes;
}
