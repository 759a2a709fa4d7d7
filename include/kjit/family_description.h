/**
 * @file
 * A user's own kernel family: a file or a struct that describes a kernel's constants, and what such a family says of
 * the kernel's parameters and grid. Everything of kjit/family.h takes it as it takes kjit's own families.
 * docs/families.md is the manual.
 *
 *     kjit_family *family;
 *     kjit_family_open(&family, "softmax.yaml", &error);
 *     kjit_config_parse(family, "threads=256", &config, &error);
 */
#ifndef KJIT_FAMILY_DESCRIPTION_H
#define KJIT_FAMILY_DESCRIPTION_H

#include <kjit/build.h>
#include <kjit/family.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A piece of a family's description, and where it stands in the family file, for messages. In C: `{"BM % 16 == 0"}`.
 */
typedef struct kjit_family_text {
  const char *text; /**< NULL: not given                                    */
  uint32_t line;    /**< in the family file, from 1; 0: it is from no file  */
  uint32_t column;  /**< in bytes, from 1                                   */
} kjit_family_text;

/** A field of the config. The kernel sees it as `#define KJIT_<name> <number>`. */
typedef struct kjit_family_field_row {
  kjit_family_text name; /**< a C identifier of at most 48 bytes                                                      */
  const char *kind;      /**< "int", "bool", "dtype" or "enum"                                                        */
  const kjit_family_text *values; /**< the legal ones: numbers, dtypes, or the names of an enum, which are 0, 1, 2, … */
  size_t value_count;             /**< at most 256. 0: an int has the range below, a dtype may be any                 */
  int64_t least, most, step; /**< of an int without values: least, least + step, … up to most. `step` 0 means 1       */
  kjit_family_text default_value; /**< used where a config's text leaves the field out; NULL: it must be given        */
  const char *text;               /**< one line of documentation, or NULL                                             */
  uint32_t given;                 /**< 1: the caller decides it for each problem, and tuning leaves it as it is       */
} kjit_family_field_row;

/** A derived constant: `#define KJIT_<name> <number>` behind the fields. It may use fields and those before it. */
typedef struct kjit_family_derived_row {
  kjit_family_text name;
  kjit_family_text value; /**< an expression */
} kjit_family_derived_row;

/** A rule that a legal config keeps. */
typedef struct kjit_family_rule_row {
  kjit_family_text condition; /**< an expression, true when it is not 0. May name the card's sm, arch_specific, sm_count
                                 and shared_per_block, and then holds for configs on that card alone */
  const char *sentence;       /**< why: what the error says behind the values of the fields                           */
} kjit_family_rule_row;

/** Where a field means nothing: equal code is to have one key. */
typedef struct kjit_family_canonical_row {
  kjit_family_text field;
  kjit_family_text when;  /**< an expression over the config                                             */
  kjit_family_text value; /**< what the field becomes then; NULL: its default, else its first legal value */
} kjit_family_canonical_row;

/**
 * A parameter of the kernel, in order. Types: a number type ("int32", "float", "uint64", …); an array of them on the
 * device ("fp16*", "const dtype*" where dtype is a dtype field, "void*"); "tensor_map"; "struct(24)", 24 bytes by
 * value.
 */
typedef struct kjit_family_parameter_row {
  kjit_family_text name;
  kjit_family_text type;
} kjit_family_parameter_row;

/** A field and the values that a cross product takes. */
typedef struct kjit_family_axis {
  kjit_family_text field;
  const kjit_family_text *values; /**< as in a config's text           */
  size_t value_count;             /**< 0: every legal value of the field */
} kjit_family_axis;

/** A set of configs: a list, or the legal ones of a cross product. Fields that are not named have their default. */
typedef struct kjit_family_set_row {
  kjit_family_text name;
  const kjit_family_text *configs; /**< as kjit_config_parse() reads them; each must be legal */
  size_t config_count;
  const kjit_family_axis *axes; /**< the cross product, the last axis fastest */
  size_t axis_count;
  kjit_family_text where; /**< an expression over the config; NULL: all legal ones */
} kjit_family_set_row;

/** A field of the config that a choice sets. */
typedef struct kjit_family_assignment {
  kjit_family_text field;
  kjit_family_text value; /**< an expression as that of kjit_family_choose_row.when */
} kjit_family_assignment;

/**
 * What is chosen for a problem without a tuned table: of the first row whose condition holds. Fields that it does not
 * name, and are not given, have their default.
 */
typedef struct kjit_family_choose_row {
  kjit_family_text when; /**< an expression over given fields, integer parameters of the call, and the card's sm,
                            arch_specific, sm_count and shared_per_block; NULL: always */
  const kjit_family_assignment *assignments;
  size_t assignment_count;
} kjit_family_choose_row;

/** What problems are told apart by when configs are tuned; given fields are told apart too, without a row. */
typedef struct kjit_family_class_row {
  kjit_family_text name;
  kjit_family_text value; /**< an expression over the call's integer parameters and given fields                 */
  const int64_t *buckets; /**< rising: a value belongs to the last one that is not above it, or to the first     */
  size_t bucket_count;    /**< at most 64, each of 32 bits; 0: every value is a class of its own                 */
} kjit_family_class_row;

/** A family in C. What a family file says, docs/families.md explains. Everything is copied. */
typedef struct kjit_family_description {
  size_t struct_size;
  const char *name;           /**< a C identifier of at most 48 bytes: its name in keys, manifests and bundles   */
  const char *text;           /**< one line of documentation, or NULL                                            */
  const char *file;           /**< the family file's name, for messages; NULL: there is none                     */
  const char *folder;         /**< what relative paths are relative to; NULL: the working folder                 */
  kjit_source source;         /**< the kernel's .cu file, by its path; its text too where it is in memory        */
  const kjit_source *headers; /**< headers held in memory, by their name as written in #include         */
  size_t header_count;
  const char *const *include_dirs; /**< folders of headers, behind the source's own, in order              */
  size_t include_dir_count;
  const char *entry;              /**< the `extern "C" __global__` function                                         */
  kjit_family_text template_name; /**< instead: a name expression, "softmax<{dtype}, {BM}>", with fields in braces  */
  const char *const *options;     /**< as kjit_build_request.options                                                */
  size_t option_count;
  const kjit_family_field_row *fields;
  size_t field_count; /**< 1 to KJIT_FIELD_COUNT_MAX */
  const kjit_family_derived_row *derived;
  size_t derived_count; /**< at most 64 */
  const kjit_family_rule_row *rules;
  size_t rule_count; /**< at most 256 */
  const kjit_family_canonical_row *canonical;
  size_t canonical_count;        /**< at most one for each field                                      */
  kjit_family_text block[3];     /**< threads of a block: expressions; NULL means 1                   */
  kjit_family_text shared_bytes; /**< dynamic shared memory of a block; NULL means 0                  */
  kjit_family_text cluster[3];   /**< blocks of a cluster; all NULL: no cluster                       */
  kjit_family_text grid[3];      /**< blocks: may use integer parameters and sm_count; NULL means 1   */
  const kjit_family_parameter_row *parameters;
  size_t parameter_count; /**< at most 64 */
  const kjit_family_set_row *sets;
  size_t set_count; /**< at most 64 */
  const kjit_family_class_row *classes;
  size_t class_count; /**< at most 16 */
  const kjit_family_choose_row *choose;
  size_t choose_count; /**< at most 64 */
} kjit_family_description;

static inline kjit_family_description kjit_family_description_default(void) {
  kjit_family_description description = KJIT_ZERO;
  description.struct_size = sizeof description;
  return description;
}

/**
 * Read a family file, and the kernel's source that it names. docs/families.md is its manual. Expressions are parsed,
 * sets are made and the constants of the source are looked up here, so that a family that opens can be used.
 * @param[out] out   released with kjit_family_release()
 * @param      path  of the family file
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        the file breaks a rule of the format: "<file>:<line>:<column>: …"
 * @retval KJIT_ERR_NOT_FOUND    the file or its source is not there, or an #include of it
 * @retval KJIT_ERR_INVALID_ARG  an argument is NULL; an option or a path that kjit_build() would refuse
 * @retval KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_open(kjit_family **out, const char *path, kjit_error *error);

/**
 * The same from memory.
 * @param[out] out     released with kjit_family_release()
 * @param      text    the family file's text, UTF-8; need not end in NUL
 * @param      bytes   of the text
 * @param      name    what messages call the file
 * @param      folder  what paths in it are relative to; NULL: the working folder
 * @retval as kjit_family_open()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_parse(kjit_family **out, const char *text, size_t bytes,
                                                      const char *name, const char *folder, kjit_error *error);

/**
 * The same from a struct. Family files go through here too.
 * @param[out] out          released with kjit_family_release()
 * @param      description  copied
 * @retval as kjit_family_open(); KJIT_ERR_UNSUPPORTED for a struct from a newer header with members that are set
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_create(kjit_family **out, const kjit_family_description *description,
                                                       kjit_error *error);

/**
 * Take another reference. kjit's own families have no count.
 * @param family  may be NULL
 * @return `family`
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_family *kjit_family_retain(const kjit_family *family);

/**
 * Give a reference back; the last one frees, and configs of the family must not be used any more.
 * @param family  may be NULL, or one of kjit's own
 * @par Thread safety  Thread-safe.
 */
KJIT_API void kjit_family_release(const kjit_family *family);

/** What a parameter of a kernel is. */
typedef enum kjit_parameter_kind {
  KJIT_PARAMETER_INTEGER = 0,    /**< a whole number or bool, by value      */
  KJIT_PARAMETER_FLOAT = 1,      /**< a floating-point number, by value     */
  KJIT_PARAMETER_POINTER = 2,    /**< an array on the device                */
  KJIT_PARAMETER_TENSOR_MAP = 3, /**< a CUtensorMap, 128 bytes by value     */
  KJIT_PARAMETER_STRUCT = 4      /**< bytes by value                        */
} kjit_parameter_kind;

/** One parameter. Strings are borrowed from the family. */
typedef struct kjit_parameter_info {
  const char *name;
  const char *type; /**< as written, "const dtype*"                                                    */
  kjit_parameter_kind kind;
  uint32_t bytes;      /**< of the argument itself: 8 for a pointer                                        */
  uint32_t alignment;  /**< of the argument in bytes; of a struct its size's largest power of two up to 16 */
  int32_t dtype;       /**< of a number, or of an array's elements: PyTorch's ScalarType; -1: void, or no number */
  int32_t dtype_field; /**< index of the dtype field that says so instead; -1: none                        */
  uint8_t is_const;    /**< an array that the kernel does not write                                        */
  uint8_t is_signed;   /**< of an integer                                                                  */
} kjit_parameter_info;

/**
 * The parameters of a user's family in order.
 * @param family  the family
 * @param index   from 0
 * @return borrowed from the family; NULL past the end, for a NULL family and for kjit's own
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_parameter_info *kjit_family_parameter(const kjit_family *family, size_t index);

/**
 * The grid of a call, by the family's expressions over the config's canonical form.
 * @param      config      of a user's family
 * @param      parameters  a number for each parameter of the family, in order; those that are no integers are not read
 * @param      sm_count    SMs of the device; 0: not known, which is an error where the grid depends on it
 * @param[out] grid        blocks in x, y, z; all 0 after a failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  the grid cannot be computed, or is beyond CUDA's limits or below 1: with the numbers
 * @retval KJIT_ERR_UNSUPPORTED     the family says nothing of its grid: kjit's own
 * @retval KJIT_ERR_INVALID_ARG     an argument is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_grid(const kjit_config *config, const int64_t *parameters,
                                                     uint32_t sm_count, uint32_t grid[3], kjit_error *error);

/**
 * What looks like a mistake in a user's family and is none for sure: a field that the source never uses.
 * @param family  the family
 * @param index   from 0
 * @return a sentence, borrowed from the family; NULL past the last, for a NULL family and for kjit's own
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_family_warning(const kjit_family *family, size_t index);

#ifdef __cplusplus
}
#endif
#endif
