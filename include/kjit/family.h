/**
 * @file
 * Kernel families: a kernel with the constants that decide its machine code, described as data.
 *
 * A family says which fields a configuration has, which values are legal, what follows from them (derived constants,
 * threads, shared memory, grid), which source is compiled and which parameters the kernel takes. kjit's own families
 * (attention_sm90.h, flash_forward.h) and a user's (a file, or the struct below) are the same kind of object, and every
 * function of this header takes either.
 *
 * A configuration is a kjit_config: the family, and one int32 for each field in the family's order. The kernel sees the
 * values as `#define KJIT_<field> <value>` lines in front of its source.
 *
 *     const kjit_family *family = kjit_family_find("attention_sm90");
 *     kjit_config config;
 *     kjit_config_parse(family, "dtype=bf16,head_dim=128,...", &config, &error);
 *     kjit_config_build(runtime, &config, "sm_90a", 0, &artifact, &error);
 */
#ifndef KJIT_FAMILY_H
#define KJIT_FAMILY_H

#include <kjit/kernel.h>
#include <kjit/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A family. Immutable, thread-safe. kjit's own live as long as the library; a user's is reference-counted. */
typedef struct kjit_family kjit_family;

/** The most fields that a family has. */
#define KJIT_FIELD_COUNT_MAX 64

/**
 * One configuration of a family. The values of fields that the family does not have are 0. A plain value: copy it,
 * compare it with kjit_config_compare(). The family must outlive it.
 */
typedef struct kjit_config {
  const kjit_family *family;
  int32_t values[KJIT_FIELD_COUNT_MAX];
} kjit_config;

/** What decided which kernel a problem gets. */
typedef enum kjit_decided_by {
  KJIT_DECIDED_BY_NONE = 0,
  KJIT_DECIDED_BY_RULES = 1, /**< the family's rules, or its defaults    */
  KJIT_DECIDED_BY_TABLE = 2  /**< a row of a tuned table: kjit/tune.h    */
} kjit_decided_by;

/** How a field's value is written. */
typedef enum kjit_field_kind {
  KJIT_FIELD_DTYPE = 0, /**< a ::kjit_dtype: by name in any case, or by number                    */
  KJIT_FIELD_INT = 1,   /**< a number                                                            */
  KJIT_FIELD_BOOL = 2,  /**< 0 or 1                                                              */
  KJIT_FIELD_LOAD = 3,  /**< a number; flash_forward's short form prints three as load_Q_K_V_tiles */
  KJIT_FIELD_ENUM = 4   /**< by name; a user's families have such fields                         */
} kjit_field_kind;

/** One field of a family. Strings are borrowed from the family. */
typedef struct kjit_field_info {
  const char *name;               /**< the kernel sees it as KJIT_<name>             */
  const char *token;              /**< flash_forward's feature name; "" if it has none */
  const char *text;               /**< one line of documentation                     */
  kjit_field_kind kind;           /**< how its value is written                      */
  uint32_t offset;                /**< of the int32 in kjit_config.values, in bytes  */
  const char *const *value_names; /**< of an enum: value i is called value_names[i]; NULL for other kinds */
  size_t value_count;             /**< of value_names                                                     */
  const char *legal;              /**< the legal values in words, "one of 64, 96, 128"; NULL for kjit's own families,
                                       whose fields say it in `text`                                      */
} kjit_field_info;

/**
 * One of kjit's own families by its name.
 * @param name  the family's name, such as "attention_sm90" or "flash_forward"
 * @return the family, which lives as long as the library; NULL when there is none of this name
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_family *kjit_family_find(const char *name);

/**
 * A family's name.
 * @param family  may be NULL
 * @return borrowed from the family; NULL for a NULL family
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_family_name(const kjit_family *family);

/**
 * The family's fields in order; field `index` is kjit_config.values[index].
 * @param family  may be NULL
 * @param index   from 0
 * @return borrowed from the family; NULL past the end, or for a NULL family
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_field_info *kjit_family_field(const kjit_family *family, size_t index);

/**
 * A config of one of the family's named sets, which are for warming caches and for tuning.
 * @param      family  the family
 * @param      set     the set's name
 * @param      index   from 0
 * @param[out] config  may be NULL, to ask for the count alone
 * @param[out] count   how many configs the set has; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no set of that name, the message lists them; or no config of that index in it
 * @retval KJIT_ERR_INVALID_ARG  family or set is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_set(const kjit_family *family, const char *set, size_t index,
                                                    kjit_config *config, size_t *count, kjit_error *error);

/**
 * The name of a family's set, in order.
 * @param family  the family
 * @param index   from 0
 * @return borrowed from the family; NULL past the last and for a NULL family
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_family_set_name(const kjit_family *family, size_t index);

/**
 * The value of a field by its name.
 * @param      config  a config
 * @param      field   the field's name
 * @param[out] value   the value; 0 on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    the family has no such field
 * @retval KJIT_ERR_INVALID_ARG  an argument or config->family is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_get(const kjit_config *config, const char *field, int32_t *value,
                                                    kjit_error *error);

/**
 * Set a field by its name. The value is not checked; kjit_config_check() does that.
 * @param config  the config that is changed
 * @param field   the field's name
 * @param value   its new value
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    the family has no such field
 * @retval KJIT_ERR_INVALID_ARG  an argument or config->family is NULL
 * @par Thread safety  Not thread-safe for the config.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_set(kjit_config *config, const char *field, int32_t value,
                                                    kjit_error *error);

/**
 * Read a config: `name=value,name=value,...` on one line, every field once, in any order; blanks may stand around each
 * word; a dtype is a name in any case or a number. flash_forward has its short form instead (flash_forward.h). Anything
 * unknown, repeated, missing or trailing is an error that says where. Values are read; rules are not checked.
 * @param      family  the family
 * @param      text    one line, NUL-terminated
 * @param[out] out     on failure its values are all 0
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        the message has the column (in bytes, from 1) and the offending word
 * @retval KJIT_ERR_INVALID_ARG  family, text or out is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_parse(const kjit_family *family, const char *text, kjit_config *out,
                                                      kjit_error *error);

/** kjit_config_print(): one JSON object, fields in order. */
#define KJIT_PRINT_JSON 0x4u

/** Enough for every config of every family in every spelling, with the NUL. */
#define KJIT_CONFIG_TEXT_MAX 6144

/**
 * Write a config as kjit_config_parse() reads it: fields in order, without blanks, with a NUL. The family's name is not
 * part of it.
 * @param      config    the config
 * @param      flags     KJIT_PRINT_JSON or 0
 * @param[out] text      the text
 * @param      capacity  room in text, in bytes
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  an argument is NULL, or capacity is too small: KJIT_CONFIG_TEXT_MAX never is
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_print(const kjit_config *config, uint32_t flags, char *text,
                                                      size_t capacity, kjit_error *error);

/**
 * Check every rule of the family; with `arch`, also what that architecture can run.
 * @param config  the config
 * @param arch    "sm_80", "sm_90a", ...; NULL: only what holds everywhere
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  names the field, its value and the rule
 * @retval KJIT_ERR_UNSUPPORTED     the architecture cannot run it, or is unknown
 * @retval KJIT_ERR_INVALID_ARG     config or its family is NULL, or arch is not the name of an architecture
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_check(const kjit_config *config, const char *arch, kjit_error *error);

/**
 * The canonical form of a config: the machine code is the same, and fields that cannot change it have their plain
 * values. Configs of equal code have one canonical form and so one key.
 * @param config  must pass kjit_config_check()
 * @return the canonical form, which is its own canonical form
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_config kjit_config_canonical(const kjit_config *config);

/**
 * Compare two configs by their families' names, then by their values in field order.
 * @param a, b  must not be NULL
 * @return -1, 0 or 1
 * @par Thread safety  Thread-safe.
 */
KJIT_API int kjit_config_compare(const kjit_config *a, const kjit_config *b);

/** The numbers of a launch that follow from a config alone. */
typedef struct kjit_geometry {
  uint32_t threads[3];   /**< of a block, in x, y and z                            */
  uint32_t shared_bytes; /**< dynamic shared memory of a block                     */
  uint32_t cluster[3];   /**< blocks of a cluster in x, y and z; all 0: no cluster */
} kjit_geometry;

/**
 * The numbers of a launch that follow from a config.
 * @param config  the config
 * @return the numbers; all 0 for a config that kjit_config_check() refuses
 * @par Thread safety  Thread-safe.
 */
KJIT_API kjit_geometry kjit_config_geometry(const kjit_config *config);

/**
 * Blocks of a kernel that fit one SM at once: the least of what registers, dynamic shared memory, threads and the block
 * limit allow, by the allocation granularities of the CUDA C++ Programming Guide's table of compute capabilities.
 * @param config     the config
 * @param registers  registers of a thread, from kjit_artifact_info
 * @param arch       "sm_80", "sm_90a", ...
 * @return 0 if it does not fit, the config breaks a rule, or arch is unknown
 * @par Thread safety  Thread-safe.
 */
KJIT_API uint32_t kjit_config_blocks_per_sm(const kjit_config *config, uint32_t registers, const char *arch);

/**
 * Compile the kernel of a config, or find it in the cache: check, canonical form, kjit_build(). No GPU is needed.
 * @param      runtime  the runtime
 * @param      config   the config
 * @param      arch     "sm_80", "sm_90a", ...
 * @param      flags    KJIT_BUILD_*
 * @param[out] out      ended with kjit_artifact_release()
 * @retval those of kjit_config_check() and kjit_build()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_build(kjit_runtime *runtime, const kjit_config *config,
                                                      const char *arch, uint32_t flags, kjit_artifact **out,
                                                      kjit_error *error);

/**
 * The kernel of a config on the current context's device: kjit_config_build(), loaded, and allowed the dynamic shared
 * memory of kjit_config_geometry(). Launch it with that geometry and, for a user's family, kjit_family_grid(). A call
 * makes the key and looks it up, which takes some microseconds, so keep the kernel between launches.
 * @param      runtime  the runtime
 * @param      config   the config; its family may be released once the kernel is there
 * @param      arch     "sm_80", "sm_90a", ..., or NULL for the current device's with its own features ("sm_90a")
 * @param      flags    KJIT_BUILD_* but KJIT_BUILD_KEY_ONLY and KJIT_BUILD_OBJECT
 * @param[out] out      released with kjit_kernel_release(); NULL on failure
 * @retval those of kjit_config_build() and kjit_kernel_get()
 * @par Thread safety  Thread-safe. A context must be current.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_get_kernel(kjit_runtime *runtime, const kjit_config *config,
                                                           const char *arch, uint32_t flags, kjit_kernel **out,
                                                           kjit_error *error);

/**
 * The source that would be compiled for a config, its #define lines first, for people to read.
 * @param      runtime  the runtime
 * @param      config   the config
 * @param[out] text     NUL-terminated; freed with kjit_text_free()
 * @retval KJIT_OK, KJIT_ERR_INVALID_CONFIG, KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY
 * @retval KJIT_ERR_UNSUPPORTED  the library was built without its kernel sources
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_config_source(kjit_runtime *runtime, const kjit_config *config, char **text,
                                                       kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
