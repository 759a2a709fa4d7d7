/**
 * @file
 * Choosing and tuning configs of a user's family (kjit/family_description.h): a problem, the class that it belongs to,
 * the config for it. docs/families.md has a chapter on it.
 *
 *     kjit_family_problem problem;
 *     kjit_family_problem_parse(family, "dtype=bf16,m=4096,n=4096,k=4096", &problem, &error);
 *     kjit_family_choose(runtime, &problem, NULL, "sm_90a", &config, &decided_by, &error);
 */
#ifndef KJIT_FAMILY_TUNE_H
#define KJIT_FAMILY_TUNE_H

#include <kjit/contest.h>
#include <kjit/family_description.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most parameters that a family has. */
#define KJIT_PARAMETER_COUNT_MAX 64

/** Enough for every problem and every class as text, with the NUL. */
#define KJIT_FAMILY_PROBLEM_TEXT_MAX 8192

/** A problem: what is known of a call before there is a config. A plain value; the family must outlive it. */
typedef struct kjit_family_problem {
  kjit_config given;                            /**< the family, and the values of fields with "given: true";
                                                     other values are not read                                 */
  int64_t parameters[KJIT_PARAMETER_COUNT_MAX]; /**< by the parameter's index; those that are no integers are 0 */
} kjit_family_problem;

/**
 * Read a problem: given fields and integer parameters by name, "dtype=bf16,m=4096,n=4096,k=4096", in any order. A
 * parameter that neither a class nor `choose` names may be left out and is 0; a given field that has a default too.
 * @param[out] problem  all zero on failure
 * @retval KJIT_OK
 * @retval KJIT_ERR_PARSE        names the column, or what is missing
 * @retval KJIT_ERR_UNSUPPORTED  the family is kjit's own
 * @retval KJIT_ERR_INVALID_ARG  an argument is NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_problem_parse(const kjit_family *family, const char *text,
                                                              kjit_family_problem *problem, kjit_error *error);

/**
 * Print a problem as kjit_family_problem_parse() reads it: given fields, then the integer parameters that are not 0 or
 * that classes and `choose` name.
 * @param[out] text      NUL-terminated
 * @param      capacity  of text, at least KJIT_FAMILY_PROBLEM_TEXT_MAX
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_problem_print(const kjit_family_problem *problem, char *text,
                                                              size_t capacity, kjit_error *error);

/**
 * The class that a problem belongs to, as a tuned table names it: given fields and buckets, "dtype=bf16,rows=1025".
 * @param[out] text      NUL-terminated
 * @param      capacity  of text, at least KJIT_FAMILY_PROBLEM_TEXT_MAX
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  a given value is not legal, or an expression cannot be computed: with its numbers
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_class(const kjit_family_problem *problem, char *text, size_t capacity,
                                                      kjit_error *error);

/**
 * The config for a problem: that of the tuned table's row for its class, if there is one and the row's config is legal
 * there; else what the family's `choose` says; else the defaults.
 * @param      runtime     whose tuned tables are asked; NULL to choose without
 * @param      problem     the problem
 * @param      device      the card, as kjit_device_get_info() fills it; NULL: `arch` alone is known, whose table is
 *                         that of the device "any"
 * @param      arch        "sm_90a", ...; used when device is NULL
 * @param[out] config      legal and canonical; all zero on failure
 * @param[out] decided_by  a ::kjit_decided_by; may be NULL
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_CONFIG  what `choose` says breaks a rule, or a given value is not legal
 * @retval KJIT_ERR_UNSUPPORTED     it cannot run there
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe. The first call for a family and a card reads its table; later ones take no lock and
 *                     open no file. A runtime keeps a reference of each family that it chose for.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_choose(kjit_runtime *runtime, const kjit_family_problem *problem,
                                                       const kjit_device_info *device, const char *arch,
                                                       kjit_config *config, uint32_t *decided_by, kjit_error *error);

/** What is timed: a config whose cubin is built. Everything is borrowed for the call. */
typedef struct kjit_tune_trial {
  size_t index; /**< of the candidate in its list */
  const kjit_config *config;
  const kjit_artifact *artifact;
} kjit_tune_trial;

/** How kjit_family_tune() and kjit_attention_tune() measure. */
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
 * in the user's cache folder, from which kjit_family_choose() of later runtimes answers for the whole class.
 * Kernels are compiled one after the other; `kjit warm` or `kjit tune` compiles them in parallel before.
 * @param      runtime  the runtime
 * @param      problem  the problem
 * @param      device   the card, as kjit_device_get_info() fills it; NULL: the device "any" of `arch`
 * @param      arch     used when device is NULL
 * @param      options  `time` must be set
 * @param[out] outcome  `outcome->struct_size` must be set
 * @retval KJIT_OK
 * @retval KJIT_ERR_CANCELLED    over() said so; nothing was kept
 * @retval KJIT_ERR_NOT_FOUND    the family has no such set
 * @retval those of kjit_family_choose(), kjit_config_build() and time() for what the rules choose, and those of
 *         kjit_tune_publish()
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_tune(kjit_runtime *runtime, const kjit_family_problem *problem,
                                                     const kjit_device_info *device, const char *arch,
                                                     const kjit_tune_options *options, kjit_tune_outcome *outcome,
                                                     kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
