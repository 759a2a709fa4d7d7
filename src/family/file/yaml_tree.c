/* Reads a YAML document with libyaml's events and keeps it as a tree.
 *
 * libyaml allocates by malloc, whatever allocator the caller has; nothing of that outlives the call.
 *
 * Threads: nothing is shared. */
#include "family/file/yaml_tree.h"

#include <string.h>

#include <yaml.h>

#include "base/error.h"

struct reader {
  yaml_parser_t parser;
  yaml_event_t event; /* the current one; all zero: none */
  struct arena *arena;
  const char *name;
  size_t nodes;
  kjit_error *error;
};

static kjit_status refuse(const struct reader *reader, const yaml_mark_t *mark, const char *why) {
  return error_set(reader->error, KJIT_ERR_PARSE, "%s:%zu:%zu: %s", reader->name, mark->line + 1, mark->column + 1,
                   why);
}

static kjit_status advance(struct reader *reader) {
  yaml_event_delete(&reader->event);
  if (yaml_parser_parse(&reader->parser, &reader->event)) return KJIT_OK;
  const yaml_parser_t *const parser = &reader->parser;
  memset(&reader->event, 0, sizeof reader->event);
  if (parser->error == YAML_MEMORY_ERROR) return error_no_memory(reader->error);
  if (parser->error == YAML_READER_ERROR)
    return error_set(reader->error, KJIT_ERR_PARSE, "%s: byte %zu: %s", reader->name, parser->problem_offset,
                     parser->problem ? parser->problem : "the text is not UTF-8");
  return error_set(reader->error, KJIT_ERR_PARSE, "%s:%zu:%zu: %s%s%s", reader->name, parser->problem_mark.line + 1,
                   parser->problem_mark.column + 1, parser->context ? parser->context : "", parser->context ? ": " : "",
                   parser->problem ? parser->problem : "the text is not YAML");
}

/* Anchors and tags of the current event. */
static kjit_status check_plain(const struct reader *reader) {
  const yaml_event_t *const event = &reader->event;
  const yaml_char_t *anchor = NULL, *tag = NULL;
  if (event->type == YAML_SCALAR_EVENT) {
    anchor = event->data.scalar.anchor;
    tag = event->data.scalar.tag;
  } else if (event->type == YAML_SEQUENCE_START_EVENT) {
    anchor = event->data.sequence_start.anchor;
    tag = event->data.sequence_start.tag;
  } else if (event->type == YAML_MAPPING_START_EVENT) {
    anchor = event->data.mapping_start.anchor;
    tag = event->data.mapping_start.tag;
  }
  if (anchor) return refuse(reader, &event->start_mark, "an anchor (&): a family file says everything where it stands");
  if (tag) return refuse(reader, &event->start_mark, "a tag (!): the values of a family file have their kinds already");
  if (event->type == YAML_ALIAS_EVENT)
    return refuse(reader, &event->start_mark,
                  "an alias (*): a family file says everything where it stands; quote an "
                  "expression that begins with *");
  return KJIT_OK;
}

static kjit_status read_scalar(struct reader *reader, struct yaml_node *node) {
  const yaml_event_t *const event = &reader->event;
  const char *const text = (const char *)event->data.scalar.value;
  const size_t bytes = event->data.scalar.length;
  const yaml_scalar_style_t style = event->data.scalar.style;
  if (memchr(text, '\0', bytes)) return refuse(reader, &event->start_mark, "a NUL in a text");
  node->kind = YAML_SCALAR;
  node->text = arena_copy(reader->arena, text, bytes);
  node->column += style == YAML_SINGLE_QUOTED_SCALAR_STYLE || style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
  node->line += style == YAML_LITERAL_SCALAR_STYLE || style == YAML_FOLDED_SCALAR_STYLE;
  return node->text ? KJIT_OK : error_no_memory(reader->error);
}

static kjit_status read_node(struct reader *reader, struct yaml_node *node, size_t depth);

/* A key that stands twice is refused, although YAML's parsers often take the last: with a hundred lines between
 * them, the first is what its author looks at. */
static kjit_status read_key(struct reader *reader, const struct yaml_node *mapping, struct yaml_node *node) {
  const yaml_event_t *const event = &reader->event;
  kjit_status status = check_plain(reader);
  if (status != KJIT_OK) return status;
  if (event->type != YAML_SCALAR_EVENT) return refuse(reader, &event->start_mark, "a key must be one word");
  const char *const text = (const char *)event->data.scalar.value;
  const size_t bytes = event->data.scalar.length;
  if (!bytes || memchr(text, '\0', bytes)) return refuse(reader, &event->start_mark, "a key must be one word");
  node->key_line = (uint32_t)event->start_mark.line + 1;
  node->key_column = (uint32_t)event->start_mark.column + 1;
  for (const struct yaml_node *other = mapping->first; other; other = other->next) {
    if (other->key && !strcmp(other->key, text))
      return error_set(reader->error, KJIT_ERR_PARSE, "%s:%u:%u: the key \"%.60s\" stands in line %u already",
                       reader->name, (unsigned)node->key_line, (unsigned)node->key_column, text,
                       (unsigned)other->key_line);
  }
  node->key = arena_copy(reader->arena, text, bytes);
  return node->key ? advance(reader) : error_no_memory(reader->error);
}

/* The children up to the event that ends their parent, which is then the current one. */
static kjit_status read_children(struct reader *reader, struct yaml_node *parent, yaml_event_type_t end, size_t depth) {
  const struct yaml_node **link = &parent->first;
  kjit_status status = advance(reader);
  while (status == KJIT_OK && reader->event.type != end) {
    struct yaml_node *child = arena_alloc_array(reader->arena, 1, sizeof *child);
    if (!child) return error_no_memory(reader->error);
    if (parent->kind == YAML_MAPPING) status = read_key(reader, parent, child);
    if (status == KJIT_OK) status = read_node(reader, child, depth + 1);
    *link = child;
    link = &child->next;
    parent->count++;
    if (status == KJIT_OK) status = advance(reader);
  }
  return status;
}

static kjit_status read_node(struct reader *reader, struct yaml_node *node, size_t depth) {
  const yaml_mark_t mark = reader->event.start_mark;
  const kjit_status status = check_plain(reader);
  if (status != KJIT_OK) return status;
  if (depth > YAML_DEPTH_MAX) return refuse(reader, &mark, "lists and mappings nest more than 8 deep");
  if (++reader->nodes > YAML_NODES_MAX) return refuse(reader, &mark, "more than 65536 values");
  node->line = (uint32_t)mark.line + 1;
  node->column = (uint32_t)mark.column + 1;
  switch (reader->event.type) {
  case YAML_SCALAR_EVENT:
    return read_scalar(reader, node);
  case YAML_SEQUENCE_START_EVENT:
    node->kind = YAML_SEQUENCE;
    return read_children(reader, node, YAML_SEQUENCE_END_EVENT, depth);
  case YAML_MAPPING_START_EVENT:
    node->kind = YAML_MAPPING;
    return read_children(reader, node, YAML_MAPPING_END_EVENT, depth);
  default:
    return refuse(reader, &mark, "a value is missing");
  }
}

/* Directives and further documents are refused, because a reader who does not know YAML well would not see what they
 * change. */
static kjit_status read_document(struct reader *reader, struct yaml_node *root) {
  kjit_status status = advance(reader); /* the stream begins */
  if (status == KJIT_OK) status = advance(reader);
  if (status != KJIT_OK) return status;
  if (reader->event.type != YAML_DOCUMENT_START_EVENT)
    return refuse(reader, &reader->event.start_mark, "the file is empty");
  if (reader->event.data.document_start.version_directive ||
      reader->event.data.document_start.tag_directives.start != reader->event.data.document_start.tag_directives.end)
    return refuse(reader, &reader->event.start_mark, "a directive (%): a family file has none");
  status = advance(reader);
  if (status == KJIT_OK) status = read_node(reader, root, 0);
  if (status == KJIT_OK) status = advance(reader); /* the document ends */
  if (status == KJIT_OK) status = advance(reader);
  if (status == KJIT_OK && reader->event.type != YAML_STREAM_END_EVENT)
    return refuse(reader, &reader->event.start_mark, "a second document: a file is one family");
  return status;
}

kjit_status yaml_tree_read(const struct yaml_node **out, struct arena *arena, const char *text, size_t bytes,
                           const char *name, kjit_error *error) {
  struct reader reader = {.arena = arena, .name = name, .error = error};
  *out = NULL;
  if (bytes > YAML_BYTES_MAX)
    return error_set(error, KJIT_ERR_PARSE, "%s: %zu bytes; a family file has at most %zu", name, bytes,
                     YAML_BYTES_MAX);
  struct yaml_node *root = arena_alloc_array(arena, 1, sizeof *root);
  if (!root || !yaml_parser_initialize(&reader.parser)) return error_no_memory(error);
  yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
  const kjit_status status = read_document(&reader, root);
  yaml_event_delete(&reader.event);
  yaml_parser_delete(&reader.parser);
  if (status == KJIT_OK) *out = root;
  return status;
}
