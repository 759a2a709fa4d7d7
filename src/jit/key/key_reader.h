/* Reading a key text back, field by field. Takes any bytes: nothing is believed before it is checked. */
#ifndef KJIT_JIT_KEY_KEY_READER_H
#define KJIT_JIT_KEY_KEY_READER_H

#include <stdbool.h>

#include <kjit/common.h>

/* The version of the key's grammar and of the entry's layout, which change together. It is part of every key. */
#define KEY_FORMAT_VERSION 2

/* A prologue of ten thousand lines and a closure of a thousand headers fit. */
#define KEY_MAX_BYTES ((size_t)1 << 20)

#define KEY_HEAD "kjit-key 1\n"

/* Tags, in the order in which they stand. */
#define KEY_TAG_FORMAT   "entry-format"
#define KEY_TAG_TARGET   "target"
#define KEY_TAG_ENTRY    "entry"
#define KEY_TAG_NAME     "name"   /* repeated: name expressions */
#define KEY_TAG_OPTION   "option" /* repeated */
#define KEY_TAG_PROLOGUE "prologue"
#define KEY_TAG_SOURCE   "source" /* repeated, each followed by its digest */
#define KEY_TAG_DIGEST   "digest"
#define KEY_TAG_PART     "part"   /* repeated, each followed by its digest */
#define KEY_TAG_OUTPUT   "output" /* where it is not the finished cubin without unused variables */
#define KEY_TAG_COMPILER "compiler"

/* Values of the output. */
#define KEY_OUTPUT_OBJECT "object"
#define KEY_OUTPUT_WHOLE  "whole" /* with KJIT_BUILD_KEEP_UNUSED */

/* Slices of the key text, not NUL-terminated. */
struct key_field {
  const char *tag, *value;
  size_t tag_bytes, value_bytes;
  size_t offset; /* of the field in the key text */
};

struct key_reader {
  const char *text;
  size_t bytes, at;
  bool sound; /* false once something was malformed */
};

void key_reader_init(struct key_reader *reader, const char *text, size_t bytes);

/* False at the end, and when what follows is no field (then `sound` is false too). */
bool key_reader_next(struct key_reader *reader, struct key_field *field);

bool key_field_is(const struct key_field *field, const char *tag);

/* The first field with this tag; false when the text is malformed before it or has none. */
bool key_find(const char *text, size_t bytes, const char *tag, struct key_field *field);

/* Is this a whole key: the fields of the grammar, in their order, and nothing else? */
bool key_is_sound(const char *text, size_t bytes);

/* How many of a sound key's bytes are the request's part: all but the compiler. */
size_t key_request_part(const char *text, size_t bytes);

#endif
