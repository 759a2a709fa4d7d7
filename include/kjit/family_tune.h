/**
 * @file
 * Choosing configs of a user's family (kjit/family_description.h): a problem, and the config for it. kjit/tune.h tunes
 * them; docs/families.md has a chapter on both.
 *
 *     kjit_family_problem problem;
 *     kjit_family_problem_parse(family, "dtype=bf16,m=4096,n=4096,k=4096", &problem, &error);
 *     kjit_family_choose(runtime, &problem, NULL, "sm_90a", &config, &decided_by, &error);
 */
#ifndef KJIT_FAMILY_TUNE_H
#define KJIT_FAMILY_TUNE_H

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
 * @param      family   a user's family
 * @param      text     the problem's text
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
 * @param      problem   the problem
 * @param[out] text      NUL-terminated
 * @param      capacity  of text, at least KJIT_FAMILY_PROBLEM_TEXT_MAX
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_family_problem_print(const kjit_family_problem *problem, char *text,
                                                              size_t capacity, kjit_error *error);

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

#ifdef __cplusplus
}
#endif
#endif
