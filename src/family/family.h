/* A kernel family as data: what the mechanism (parse, print, check, build, load, plan, record, tune) needs to know of a
 * kernel to carry it. kjit's own, such as attention_sm90, are constant instances; a user's family file becomes one
 * at run time. Where a table cannot say something, the family has a function; every function gets the family itself, so
 * that one function serves all families that are described by expressions.
 *
 * Threads: a family never changes after it was made. */
#ifndef KJIT_FAMILY_FAMILY_H
#define KJIT_FAMILY_FAMILY_H

#include <stdbool.h>

#include <kjit/family_description.h>

#include "base/text.h"
#include "family/field_table.h"
#include "jit/source/source_set.h"

/* The card, or the architecture, that a config is to run on. */
struct family_place {
  const char *arch;          /* with its own features where it has any: "sm_90a" */
  uint32_t sm_count;         /* SMs; an H200's where only the architecture is known */
  uint32_t shared_per_block; /* bytes of dynamic shared memory after opting in; 0: this version does not know them */
  struct family_figures {
    uint32_t l2_bytes;     /* of L2 */
    uint32_t memory_gb_s;  /* bytes that memory gives in a nanosecond */
    uint32_t load_mhz;     /* SM clock under load */
    uint32_t tensor_flops; /* dense 16-bit operations of an SM in a clock */
  } figures;               /* 0 in any of them: an H200's */
};

/* Values of a field that are worth trying, where not all of them are. */
struct field_hint {
  const char *field;
  int32_t values[4];
  size_t count; /* 0: leave the field as it is */
};

struct kjit_family {
  struct field_table table;       /* the fields, their names and kinds; table.family is the family's name */
  const char *entry;              /* the extern "C" __global__ function; a template's name expression as written */
  const char *main_file;          /* the kernel's file, as its #line and its messages name it */
  bool is_exact;                  /* its results are compared, not rounded: it is compiled without --use_fast_math */
  const struct field_hint *hints; /* values that `tune` tries, ended by a row without name; NULL: none */

  /* The text form. NULL: pairs "name=value,...", which family/pair_form.h reads and writes. */
  kjit_status (*parse)(const kjit_family *family, const char *text, int32_t *values, kjit_error *error);
  void (*print)(const kjit_family *family, const int32_t *values, struct text *out);

  /* Every rule that needs no card. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: <rule>". */
  kjit_status (*check)(const kjit_family *family, const int32_t *values, kjit_error *error);

  /* Can a legal config run there? KJIT_ERR_UNSUPPORTED otherwise. NULL: where it compiles, it runs. */
  kjit_status (*check_place)(const kjit_family *family, const int32_t *values, const struct family_place *place,
                             kjit_error *error);

  /* Does a legal config's code need the features of one architecture, so that a device is compiled for as "sm_90a" and
   * not as "sm_90"? NULL: never. */
  bool (*is_arch_specific)(const kjit_family *family, const int32_t *values);

  /* Fields that cannot change the machine code of a legal config get their plain value. Idempotent. NULL: there are
   * none. */
  void (*canonicalize)(const kjit_family *family, int32_t *values);

  /* Threads and shared memory of a legal config's launch. */
  void (*geometry)(const kjit_family *family, const int32_t *values, kjit_geometry *out);

  /* `#define` lines of what is derived from a canonical config, behind those of its fields. NULL: nothing is. */
  void (*derive)(const kjit_family *family, const int32_t *values, struct text *out);

  /* A user's source with its folders and options, as kjit_build() takes it; its entry and defines are not looked at.
   * NULL: the source is the embedded closure of main_file. */
  const kjit_build_request *own_source;

  /* The family file, as an absolute path, by which a recorded request names the family. NULL: it is from no file. */
  const char *file;

  /* The kernel's name expression for a canonical config. NULL: the kernel is `entry`. */
  void (*print_entry)(const kjit_family *family, const int32_t *values, struct text *out);

  /* Configs with a name together, for warming: the names, ended by NULL; the count of one, and one of them. NULL: the
   * family has no sets. */
  const char *const *sets;
  size_t (*set_count)(const kjit_family *family, const char *set);
  void (*set_get)(const kjit_family *family, const char *set, size_t index, int32_t *values);

  /* Tells families apart of which one has the address of another that was released. 0 for kjit's own. */
  uint64_t serial;

  struct family_definition *definition; /* of a user's family: its expressions and memory; NULL for kjit's own */
};

#endif
