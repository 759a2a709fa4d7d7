/**
 * @file
 * Tuned tables: what was measured fastest on a card, which kjit_attention_forward() asks before its rules.
 *
 * A table has a row for each class of problems that was measured: the config that was fastest, or that the rules'
 * choice stays. `kjit tune` makes them with the calls below; docs/tune.md has the classes, the file format and how it
 * measures. A runtime looks for a card's table in its cache folder, then in the site folder, then among those that the
 * library ships; it reads each once. KJIT_RUNTIME_IGNORE_TUNED or KJIT_TUNED=off switches them off.
 */
#ifndef KJIT_TUNE_H
#define KJIT_TUNE_H

#include <kjit/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The table that a device's choices look at. Only ever grows at the end. */
typedef struct kjit_tune_info {
  size_t struct_size;
  uint32_t enabled;      /**< 0: tables are switched off                                                  */
  uint32_t user_rows;    /**< rows in use that come from the user's cache folder                          */
  uint32_t site_rows;    /**< from the site folder                                                        */
  uint32_t shipped_rows; /**< from the library                                                            */
  uint32_t ignored_rows; /**< measured on other kernels than this library's, or not fit for its rules     */
  uint32_t reserved;     /**< zero                                                                        */
  uint64_t misfits;      /**< look-ups whose row did not fit the problem, so that the rules decided       */
  char date[16];         /**< when the table was last measured, "2026-11-21"; of the first one in the order above */
  char path[512];        /**< the user's file, whether it is there or not; "" without a cache folder      */
} kjit_tune_info;

/**
 * Describe the table of a device, reading it if that has not been done yet.
 * @param      runtime  the runtime
 * @param      device   as kjit_device_get_info() fills it
 * @param[out] info     `info->struct_size` must be set
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_get_info(kjit_runtime *runtime, const kjit_device_info *device,
                                                       kjit_tune_info *info, kjit_error *error);

/* ---- Making a table ---- */

/** Enough for every class as text, with the NUL. */
#define KJIT_TUNE_CLASS_TEXT_MAX 192

/**
 * The class that a problem belongs to, as a table names it: `dtype=bf16,causal=0,head_dim=128,…`.
 * @param      problem   the problem
 * @param[out] text      the class
 * @param      capacity  room in text, at least KJIT_TUNE_CLASS_TEXT_MAX
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  names the member of the problem, or capacity is below KJIT_TUNE_CLASS_TEXT_MAX
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_class(const kjit_attention_problem *problem, char *text, size_t capacity,
                                                    kjit_error *error);

/** A config around the rules' choice. `refused` is borrowed from the list. */
typedef struct kjit_tune_candidate {
  kjit_config config;  /**< canonical, if it is legal                                           */
  const char *refused; /**< why it is not worth compiling, a rule with its numbers; "" if it is */
  uint32_t changes;    /**< fields in which it differs from the rules' choice; 0: it is that    */
} kjit_tune_candidate;

typedef struct kjit_tune_candidates kjit_tune_candidates;

/**
 * List what is worth measuring for a problem, and what is not: the rules' choice first, then configs that differ in one
 * or two fields, the nearest first. No two that are worth compiling are the same kernel. Needs no GPU.
 * @param[out] out      ended with kjit_tune_candidates_destroy(), before the runtime
 * @param      runtime  the runtime
 * @param      problem  the problem
 * @param      device   the card, as kjit_device_get_info() fills it; NULL for the usual card of `arch`
 * @param      arch     used when device is NULL
 * @retval those of kjit_attention_choose()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_candidates_create(kjit_tune_candidates **out, kjit_runtime *runtime,
                                                                const kjit_attention_problem *problem,
                                                                const kjit_device_info *device, const char *arch,
                                                                kjit_error *error);

/**
 * One candidate of a list.
 * @param list   the list
 * @param index  from 0
 * @return borrowed from the list; NULL past the end
 * @par Thread safety  Thread-safe.
 */
KJIT_API const kjit_tune_candidate *kjit_tune_candidates_get(const kjit_tune_candidates *list, size_t index);

/**
 * End a list.
 * @param list  may be NULL
 * @par Thread safety  Not thread-safe.
 */
KJIT_API void kjit_tune_candidates_destroy(kjit_tune_candidates *list);

/** What was measured for one problem. */
typedef struct kjit_tune_result {
  size_t struct_size;
  kjit_attention_problem problem;
  const kjit_config *config; /**< what was fastest; NULL: the rules' choice stays          */
  double microseconds;       /**< median, above 0 and at most one day                      */
  double rules_microseconds; /**< of the rules' choice, likewise                           */
} kjit_tune_result;

static inline kjit_tune_result kjit_tune_result_default(void) {
  kjit_tune_result result = KJIT_ZERO;
  result.struct_size = sizeof result;
  return result;
}

/**
 * Put a result into the device's table in the user's cache folder, in place of what the table has for its class.
 * Other processes may write at the same time without losing rows; readers see the old table or the new one. Rows of
 * other kernels are dropped, and a damaged file is begun anew. Runtimes that have read the table do not read it again.
 * @param runtime  the runtime whose cache folder is used
 * @param device   the card that was measured
 * @param result   what was measured
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG     names the member of the result
 * @retval KJIT_ERR_INVALID_CONFIG  the config breaks a rule or is not one for this problem
 * @retval KJIT_ERR_UNSUPPORTED     the config cannot run there, or the table is full
 * @retval KJIT_ERR_IO, KJIT_ERR_TIMEOUT, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_publish(kjit_runtime *runtime, const kjit_device_info *device,
                                                      const kjit_tune_result *result, kjit_error *error);

/**
 * Put a result into a table that the caller keeps, as text.
 * @param      runtime  the runtime
 * @param      device   the card that was measured
 * @param      result   what was measured
 * @param      before   the table's text so far, or NULL; the table of another card, driver or library is dropped
 * @param[out] text     the new table, NUL-terminated; freed with kjit_text_free()
 * @retval those of kjit_tune_publish(); KJIT_ERR_PARSE for `before`, with line and column
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_print(kjit_runtime *runtime, const kjit_device_info *device,
                                                    const kjit_tune_result *result, const char *before, char **text,
                                                    kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
