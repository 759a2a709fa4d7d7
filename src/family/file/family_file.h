/* A family file: YAML, whose manual is docs/families.md. It becomes a kjit_family_description, and that the family. */
#ifndef KJIT_FAMILY_FAMILY_FILE_H
#define KJIT_FAMILY_FAMILY_FILE_H

#include "family/definition/definition.h"
#include "family/file/yaml_tree.h"

/* What a file says, in the arena and in `text`, `name` and `folder`. KJIT_ERR_PARSE, KJIT_ERR_NO_MEMORY. */
kjit_status family_file_read(kjit_family_description *out, struct arena *arena, const char *text, size_t bytes,
                             const char *name, const char *folder, kjit_error *error);

/* As kjit_family_parse() and kjit_family_open(), with the memory to use. */
kjit_status family_file_parse(struct family_definition **out, const struct mem *mem, const char *text, size_t bytes,
                              const char *name, const char *folder, kjit_error *error);
kjit_status family_file_open(struct family_definition **out, const struct mem *mem, const char *path,
                             kjit_error *error);

#endif
