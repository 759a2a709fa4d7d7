/* A user's family: what its description says, checked, with expressions parsed. definition_create() makes it from the
 * public struct; the functions behind struct kjit_family read it.
 *
 * Threads: it does not change after it was made, but for its reference count. */
#ifndef KJIT_FAMILY_DEFINITION_H
#define KJIT_FAMILY_DEFINITION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/digest.h"
#include "family/expression/expression.h"
#include "family/family.h"

/* Bounds of a description. A table of more rows is made by a program and not by a person, and would make opening a
 * family, printing a config and the kernel's prologue unboundedly long. */
#define DEFINITION_NAME_MAX       48 /* bytes; 64 fields of such names fit KJIT_CONFIG_TEXT_MAX or are refused */
#define DEFINITION_VALUES_MAX     256
#define DEFINITION_DERIVED_MAX    64 /* a bit for each in an expression's masks */
#define DEFINITION_PARAMETERS_MAX 64
#define DEFINITION_RULES_MAX      256
#define DEFINITION_SETS_MAX       64
#define DEFINITION_CLASSES_MAX    16
#define DEFINITION_BUCKETS_MAX    64
#define DEFINITION_GIVEN_MAX      16 /* with the classes, TUNE_CLASS_MAX */
#define DEFINITION_CHOOSE_MAX     64
#define DEFINITION_SENTENCE_MAX   300 /* bytes: with the values in front of it, it fits a kjit_error */

/* Configs that a family's sets go through in all, legal or not: more kernels than anybody compiles, in 0.1 s. */
#define DEFINITION_CANDIDATES_MAX 65536

/* Bytes of a config's text: what a kjit_error, a manifest line and a label have room for. */
#define DEFINITION_TEXT_MAX 4096

enum value_kind { VALUE_INT, VALUE_BOOL, VALUE_DTYPE, VALUE_ENUM };

struct definition_field {
  const char *name;
  enum value_kind kind;
  const int32_t *values;     /* the legal ones, in the order given; NULL: the range */
  const char *const *labels; /* of an enum: the name of value i */
  size_t value_count;
  int64_t least, most, step;
  int32_t default_value; /* the first legal one where none is given */
  bool has_default;
};

struct definition_rule {
  struct expression condition;
  const char *sentence;
};

struct definition_canonical {
  uint32_t field;
  int32_t value;
  struct expression when;
};

/* A row of the rules by which a config is chosen. */
struct definition_choose {
  struct expression when;   /* no steps: always */
  struct expression *value; /* of each field that it sets */
  uint32_t *field;
  size_t count;
};

struct definition_class {
  const char *name;
  struct expression value;
  const int64_t *buckets;
  size_t bucket_count;
};

struct definition_set {
  const char *name;
  const int32_t *values; /* `count` configs of as many numbers as there are fields */
  size_t count;
};

/* A piece of a name expression: text, then a number or type; the last has text alone. */
struct definition_piece {
  const char *text;
  int32_t field;   /* -1: none */
  int32_t derived; /* -1: none */
};

enum { GEOMETRY_BLOCK = 0, GEOMETRY_CLUSTER = 3, GEOMETRY_SHARED = 6, GEOMETRY_COUNT = 7 };

struct family_definition {
  struct kjit_family family; /* what the mechanism sees; family.definition is this */
  struct mem mem;
  struct arena arena; /* everything below is in it */
  atomic_size_t references;

  struct definition_field *fields;
  const char **field_names, **derived_names, **parameter_names; /* for expressions */
  const char **integer_parameters;                              /* NULL in place of one that is no integer */
  size_t field_count, derived_count, parameter_count;
  struct expression_label *labels;
  size_t label_count;
  uint64_t dtype_fields;

  struct expression *derived;
  uint64_t *derived_fields; /* which fields each depends on, through others too */
  struct definition_rule *rules;
  size_t rule_count;
  struct definition_canonical *canonical;
  size_t canonical_count;
  struct expression geometry[GEOMETRY_COUNT]; /* no steps: not given */
  struct expression grid[3];
  kjit_parameter_info *parameters;
  struct definition_set *sets;
  size_t set_count, candidate_count;
  struct definition_class *classes;
  size_t class_count;
  struct definition_choose *choose;
  size_t choose_count;
  uint64_t given;                  /* a bit for each field that the caller decides */
  uint64_t problem_parameters;     /* a bit for each parameter that classes and choose follow from */
  struct tune_subject *subject;    /* of its tuned tables (definition_tune.c) */
  struct definition_piece *pieces; /* NULL: there is no name expression */
  size_t piece_count;

  /* The source, as kjit_build() would take it. */
  kjit_build_request request;
  const char **warnings;
  size_t warning_count;
};

/* What definition_create() and its parts work on. */
struct definition_maker {
  struct family_definition *definition;
  const kjit_family_description *description;
  kjit_error *error;
};

/* KJIT_ERR_PARSE: "<file>:<line>:<column>: …", or "<family>: …" where there is no file. */
kjit_status definition_refuse(const struct definition_maker *maker, const kjit_family_text *at, const char *format, ...)
    KJIT_PRINTF(3, 4);

/* As definition_refuse(), for a name that is not known: suggests the nearest of those that were offered. */
struct nearest;
kjit_status definition_unknown(const struct definition_maker *maker, const kjit_family_text *at, const char *what,
                               const struct nearest *nearest);

/* KJIT_ERR_PARSE when the text is no name: an identifier that is not too long. */
kjit_status definition_check_name(const struct definition_maker *maker, const kjit_family_text *name, const char *what);

/* The index of a field that the description names. KJIT_ERR_PARSE suggests the nearest. */
kjit_status definition_find_field(const struct definition_maker *maker, const kjit_family_text *name, uint32_t *index);

/* Parse an expression of the description. Without text there will be no steps. */
kjit_status definition_expression(const struct definition_maker *maker, const kjit_family_text *text, unsigned may,
                                  const char *what, struct expression *out);

/* Parts of definition_create(), in this order; each may rely on those before. */
kjit_status definition_make_fields(const struct definition_maker *maker);
kjit_status definition_make_parameters(const struct definition_maker *maker);
kjit_status definition_make_expressions(const struct definition_maker *maker);
kjit_status definition_make_tuning(const struct definition_maker *maker);
kjit_status definition_make_template(const struct definition_maker *maker);
kjit_status definition_make_sets(const struct definition_maker *maker);
kjit_status definition_make_source(const struct definition_maker *maker);

/* `description` is complete: of this library's size. After a failure nothing is left. */
kjit_status definition_create(struct family_definition **out, const struct mem *mem,
                              const kjit_family_description *description, kjit_error *error);

/* Keep the path of the file that it was made of. False when out of memory. */
bool definition_set_file(struct family_definition *definition, const char *path);

void definition_retain(struct family_definition *definition);
void definition_release(struct family_definition *definition);

/* -- Values of fields (definition_value.c) -- */

bool definition_is_legal(const struct definition_field *field, int64_t value);

/* Legal values by index; how many there are. */
size_t definition_value_count(const struct definition_field *field);
int32_t definition_value_at(const struct definition_field *field, size_t index);

/* A value as a config's text has it: a number, true or false, a dtype's or an enum's name. Whether it is legal is not
 * asked. False: it is none of them. */
bool definition_read_value(const struct definition_field *field, const char *text, size_t bytes, int32_t *value);
void definition_print_value(const struct definition_field *field, int32_t value, struct text *out);

/* "one of 64, 128, 256", "from 32 to 1024 in steps of 32". */
void definition_print_domain(const struct definition_field *field, struct text *out);

/* -- Configs: what struct kjit_family points to -- */

kjit_status definition_parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error);
void definition_print(const kjit_family *family, const int32_t *values, struct text *out);
kjit_status definition_check(const kjit_family *family, const int32_t *values, kjit_error *error);
kjit_status definition_check_place(const kjit_family *family, const int32_t *values, const struct family_place *place,
                                   kjit_error *error);
void definition_canonicalize(const kjit_family *family, int32_t *values);
void definition_geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out);
void definition_derive(const kjit_family *family, const int32_t *values, struct text *out);
void definition_print_entry(const kjit_family *family, const int32_t *values, struct text *out);
size_t definition_set_count(const kjit_family *family, const char *set);
void definition_set_get(const kjit_family *family, const char *set, size_t index, int32_t *values);

/* Derived constants of a config, DEFINITION_DERIVED_MAX of them. KJIT_ERR_INVALID_CONFIG. */
kjit_status definition_evaluate_derived(const struct family_definition *definition, const int32_t *values,
                                        int64_t *derived, kjit_error *error);

/* The canonical form, or why it cannot be computed. */
kjit_status definition_make_canonical(const struct family_definition *definition, int32_t *values, kjit_error *error);

/* Numbers of a card or architecture as expressions name them: LIMIT_COUNT of them. KJIT_ERR_INVALID_ARG for an unknown
 * architecture. */
kjit_status definition_limits(const struct family_place *place, int64_t *limits, kjit_error *error);

/* As kjit_family_grid(). */
kjit_status definition_grid(const struct family_definition *definition, const int32_t *values,
                            const int64_t *parameters, uint32_t sm_count, uint32_t grid[3], kjit_error *error);

/* The bucket of a class that a call belongs to; without buckets, the value itself as far as 32 bits hold it. Of
 * `values` only given fields are read. */
kjit_status definition_classify(const struct family_definition *definition, size_t index, const int32_t *values,
                                const int64_t *parameters, int32_t *bucket, kjit_error *error);

/* What the family's own rules choose for a problem: the first row of `choose` whose condition holds, else the defaults.
 * `values` has the given fields and receives the rest. Whether the config is legal is not asked. */
kjit_status definition_choose_values(const struct family_definition *definition, const int64_t *parameters,
                                     const struct family_place *place, int32_t *values, kjit_error *error);

/* The digest of what the family's kernels are compiled from: the source and the headers that any branch includes, and
 * what the family writes in front of it. Reads files. */
kjit_status definition_digest(const struct family_definition *definition, struct digest *out, kjit_error *error);

#endif
