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
#include <kjit/contest.h>
#include <kjit/family_tune.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is tuned: a problem of attention, or of a user's family. A plain value. */
typedef struct kjit_tune_problem {
  kjit_attention_problem attention;
  const kjit_family_problem *family; /**< NULL: `attention` is it; else that is not read */
} kjit_tune_problem;

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
 * @param      family   a user's family; NULL: attention, for which all of kjit's own families have one table
 * @param      device   as kjit_device_get_info() fills it; NULL: the table of the device "any" of `arch`
 * @param      arch     used when device is NULL
 * @param[out] info     `info->struct_size` must be set
 * @retval KJIT_OK
 * @retval KJIT_ERR_UNSUPPORTED  the family is kjit's own
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_get_info(kjit_runtime *runtime, const kjit_family *family,
                                                       const kjit_device_info *device, const char *arch,
                                                       kjit_tune_info *info, kjit_error *error);

/* ---- Making a table ---- */

/** Enough for every class of attention as text, with the NUL; for a family's, KJIT_FAMILY_PROBLEM_TEXT_MAX. */
#define KJIT_TUNE_CLASS_TEXT_MAX 192

/**
 * The class that a problem belongs to, as a table names it: `dtype=bf16,causal=0,head_dim=128,…` of attention, given
 * fields and buckets of a family.
 * @param      problem   the problem
 * @param[out] text      the class
 * @param      capacity  room in text, at least KJIT_TUNE_CLASS_TEXT_MAX or KJIT_FAMILY_PROBLEM_TEXT_MAX
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG     names the member of the problem, or there is too little room
 * @retval KJIT_ERR_INVALID_CONFIG  a given value is not legal, or an expression cannot be computed: with its numbers
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_class(const kjit_tune_problem *problem, char *text, size_t capacity,
                                                    kjit_error *error);

/** A config to be measured. `refused` is borrowed from the list. */
typedef struct kjit_tune_candidate {
  kjit_config config;     /**< canonical, if it is legal                                                   */
  const char *refused;    /**< why it is not worth measuring, a rule with its numbers; "" if it is         */
  uint32_t changes;       /**< fields in which it differs from the rules' choice; of the first one 0       */
  uint32_t registers;     /**< of a thread, after kjit_tune_candidates_judge()                             */
  uint32_t spill_bytes;   /**< of a thread, likewise                                                       */
  uint32_t blocks_per_sm; /**< that an SM holds at once, likewise; 0 where the architecture is not known   */
} kjit_tune_candidate;

typedef struct kjit_tune_candidates kjit_tune_candidates;

/**
 * List what is worth measuring for a problem, and what is not: what is chosen without a table first, then configs that
 * differ in one or two fields, the nearest first; or, with a set, the set's configs in its order, with the problem's
 * given fields. No two that are worth compiling are the same kernel. Needs no GPU.
 * @param[out] out      ended with kjit_tune_candidates_destroy(), before the runtime and the family
 * @param      runtime  the runtime
 * @param      problem  the problem
 * @param      set      NULL for the neighbours; of attention it must be NULL
 * @param      device   the card, as kjit_device_get_info() fills it; NULL for the usual card of `arch`
 * @param      arch     used when device is NULL
 * @retval KJIT_ERR_NOT_FOUND  the family has no such set
 * @retval those of kjit_attention_choose() or kjit_family_choose()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_candidates_create(kjit_tune_candidates **out, kjit_runtime *runtime,
                                                                const kjit_tune_problem *problem, const char *set,
                                                                const kjit_device_info *device, const char *arch,
                                                                kjit_error *error);

/**
 * Build a candidate, or find it in the cache, and read the compiler's report. It is refused if it does not compile,
 * spills more than the first of the list, has blocks that no SM can hold, or leaves an SM with fewer warps than
 * schedulers. The first must have been judged before the others. One that is refused already is left alone.
 * @param list     the list
 * @param runtime  the runtime
 * @param index    of the candidate
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @retval those of kjit_config_build() for the first, without which nothing can be compared
 * @par Thread safety  Not thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_candidates_judge(kjit_tune_candidates *list, kjit_runtime *runtime,
                                                               size_t index, kjit_error *error);

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

/**
 * What stands for a card where an architecture alone is known: a device called "any", with the limits of the usual
 * card of the architecture.
 * @param      arch    "sm_90a", "sm_80", ...
 * @param[out] device  `struct_size` must be set
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  arch is none
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_device_any(const char *arch, kjit_device_info *device, kjit_error *error);

/** What was measured for one problem. */
typedef struct kjit_tune_result {
  size_t struct_size;
  kjit_tune_problem problem;
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
 * @param device   the card that was measured; kjit_tune_device_any() for an architecture without one, of users'
 *                 families alone
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

/* ---- All of it at once ---- */

/** What is timed: a config whose cubin is built. Everything is borrowed for the call. */
typedef struct kjit_tune_trial {
  size_t index; /**< of the candidate in its list */
  const kjit_config *config;
  const kjit_artifact *artifact;
} kjit_tune_trial;

/** How kjit_tune_run() measures. */
typedef struct kjit_tune_options {
  size_t struct_size;
  const char
      *set; /**< candidates: the configs of this set; NULL: those around what `choose` says, by one or two fields */
  uint32_t most;  /**< candidates, the nearest first; 0: all                                                     */
  uint32_t flags; /**< KJIT_TUNE_*                                                                               */
  kjit_contest_settings contest;
  void *user; /**< of the functions, which are called on the caller's thread */
  /** Time one run, in microseconds. A failure drops the candidate. */
  kjit_status (*time)(void *user, const kjit_tune_trial *trial, double *microseconds, kjit_error *error);
  /** Is the result right? NULL: it is. */
  kjit_status (*check)(void *user, const kjit_tune_trial *trial, int *right, kjit_error *error);
  /** Not 0: stop. NULL: never. */
  int (*over)(void *user);
} kjit_tune_options;

/** Leave the card's table as it is: the outcome is told, and kept nowhere. */
#define KJIT_TUNE_NO_PUBLISH 1u

static inline kjit_tune_options kjit_tune_options_default(void) {
  kjit_tune_options options = KJIT_ZERO;
  options.struct_size = sizeof options;
  options.contest = kjit_contest_settings_default();
  return options;
}

/** What tuning found for a problem. Only ever grows at the end. */
typedef struct kjit_tune_outcome {
  size_t struct_size;
  kjit_config config;        /**< the fastest, canonical                                          */
  uint32_t decided_by;       /**< KJIT_DECIDED_BY_RULES: the rules' choice was not beaten         */
  uint32_t candidates;       /**< that were worth timing, the rules' choice included              */
  uint32_t refused;          /**< by rules, as repetitions, by the compiler's report              */
  uint32_t failed;           /**< that were dropped because a run failed or was wrong             */
  double microseconds;       /**< median of `config`                                              */
  double rules_microseconds; /**< median of the rules' choice in the same measurement             */
  char first_failure[256];   /**< why the first of the failed was dropped, its config in front; "" */
} kjit_tune_outcome;

/**
 * Tune a problem: list candidates, build those that the rules do not refuse, drop those that the compiler's report
 * speaks against, time the others against one another (kjit_contest_run()), and put the outcome into the card's table
 * in the user's cache folder, from which later runtimes answer for the whole class.
 * Kernels are compiled one after the other; `kjit warm` or `kjit tune` compiles them in parallel before.
 * @param      runtime  the runtime
 * @param      problem  the problem
 * @param      device   the card, as kjit_device_get_info() fills it; NULL: the device "any" of `arch`, which attention
 *                      has not
 * @param      arch     used when device is NULL
 * @param      options  `time` must be set; of attention `set` must be NULL
 * @param[out] outcome  `outcome->struct_size` must be set
 * @retval KJIT_OK
 * @retval KJIT_ERR_CANCELLED    over() said so; nothing was kept
 * @retval KJIT_ERR_NOT_FOUND    the family has no such set
 * @retval those of kjit_tune_candidates_create(), kjit_config_build() and time() for what the rules choose, and those
 * of kjit_tune_publish()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tune_run(kjit_runtime *runtime, const kjit_tune_problem *problem,
                                                  const kjit_device_info *device, const char *arch,
                                                  const kjit_tune_options *options, kjit_tune_outcome *outcome,
                                                  kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
