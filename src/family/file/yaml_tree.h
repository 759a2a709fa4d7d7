/* A YAML document as a tree of texts. Scalars are what was written: no word becomes a boolean or a number here, so that
 * "no", "on" and "1_0" mean what they look like. What makes YAML hard to read is refused: anchors, aliases, tags,
 * directives, several documents, keys that are no scalars, a key twice. */
#ifndef KJIT_FAMILY_YAML_TREE_H
#define KJIT_FAMILY_YAML_TREE_H

#include "base/arena.h"

/* The most fields, rules and sets that a family may have, with long sentences, are a quarter of this. */
#define YAML_BYTES_MAX ((size_t)1 << 20)
#define YAML_NODES_MAX 65536
/* A family file is five levels deep. */
#define YAML_DEPTH_MAX 8

enum yaml_kind { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
  enum yaml_kind kind;
  uint32_t line, column; /* where its text begins, from 1; columns count characters */
  const char *text;      /* of a scalar */
  const char *key;       /* in a mapping; NULL elsewhere */
  uint32_t key_line, key_column;
  const struct yaml_node *first; /* children in the order of the file */
  const struct yaml_node *next;  /* of the same parent */
  size_t count;                  /* of children */
};

/* KJIT_ERR_PARSE: "<name>:<line>:<column>: …". KJIT_ERR_NO_MEMORY. The tree lives in the arena. */
kjit_status yaml_tree_read(const struct yaml_node **out, struct arena *arena, const char *text, size_t bytes,
                           const char *name, kjit_error *error);

#endif
