/* What the parts of the family file's reader share. */
#ifndef KJIT_FAMILY_FILE_READER_H
#define KJIT_FAMILY_FILE_READER_H

#include <kjit/family_description.h>

#include "family/file/yaml_tree.h"

struct file_reader {
  struct arena *arena;
  const char *name; /* of the file, for messages */
  kjit_family_description *description;
  kjit_error *error;
};

/* A key of a mapping, and what reads its value into `target`. */
struct file_key {
  const char *name;
  kjit_status (*read)(const struct file_reader *reader, const struct yaml_node *node, void *target);
};

/* KJIT_ERR_PARSE at a node, or at its key. */
kjit_status file_refuse(const struct file_reader *reader, const struct yaml_node *node, const char *format, ...)
    KJIT_PRINTF(3, 4);
kjit_status file_refuse_key(const struct file_reader *reader, const struct yaml_node *node, const char *format, ...)
    KJIT_PRINTF(3, 4);

/* Every key of a mapping by its row; an unknown one is an error that suggests the nearest. */
kjit_status file_read_mapping(const struct file_reader *reader, const struct yaml_node *node,
                              const struct file_key *keys, size_t count, void *target);

/* Is the node a mapping, a sequence? KJIT_ERR_PARSE otherwise: "<its key>: expected …". */
kjit_status file_expect(const struct file_reader *reader, const struct yaml_node *node, enum yaml_kind kind);

kjit_status file_read_text(const struct file_reader *reader, const struct yaml_node *node, kjit_family_text *out);
kjit_status file_read_string(const struct file_reader *reader, const struct yaml_node *node, const char **out);
kjit_status file_read_integer(const struct file_reader *reader, const struct yaml_node *node, int64_t *out);

/* A sequence of scalars, or one scalar. */
kjit_status file_read_texts(const struct file_reader *reader, const struct yaml_node *node,
                            const kjit_family_text **out, size_t *count);
kjit_status file_read_strings(const struct file_reader *reader, const struct yaml_node *node, const char *const **out,
                              size_t *count);

kjit_family_text file_key_text(const struct yaml_node *node);

/* Sections with a part of their own: the target is the description. */
kjit_status file_read_fields(const struct file_reader *reader, const struct yaml_node *node, void *target);
kjit_status file_read_sets(const struct file_reader *reader, const struct yaml_node *node, void *target);
kjit_status file_read_choose(const struct file_reader *reader, const struct yaml_node *node, void *target);
kjit_status file_read_classes(const struct file_reader *reader, const struct yaml_node *node, void *target);

#endif
