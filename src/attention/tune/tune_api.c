/* The public functions of include/kjit/tune.h, which take a problem of attention or of a user's family. Each checks and
 * copies its arguments and hands them to the mechanism in family/tune. Any thread: everything belongs to the call,
 * except the runtime's tables, which tune_store.h guards. */
#include <kjit/tune.h>

#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/tune/tune_attention.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/definition/family_problem.h"
#include "family/pair_form.h"
#include "family/tune/family_tune.h"
#include "family/tune/tune_device.h"
#include "family/tune/tune_list.h"
#include "family/tune/tune_run.h"
#include "family/tune/tune_store.h"
#include "family/tune/tune_text.h"
#include "family/tune/tune_update.h"
#include "runtime/runtime_internal.h"

_Static_assert(KJIT_TUNE_CLASS_TEXT_MAX == TUNE_CLASS_TEXT_MAX, "every class as text fits");

/* The device as this library knows it: its struct may be of an older or newer header. */
static kjit_status take_device(const kjit_runtime *runtime, const kjit_device_info *given, kjit_device_info *out,
                               kjit_error *error) {
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!given) return error_invalid(error, "device", "must not be NULL");
  return tune_device_take(given, NULL, out, error);
}

kjit_status kjit_tune_get_info(kjit_runtime *runtime, const kjit_family *family, const kjit_device_info *device,
                               const char *arch, kjit_tune_info *info, kjit_error *error) {
  kjit_device_info known;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (family && !family->definition)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "family: %s is kjit's own; NULL tells of its table",
                     family->table.family);
  const struct tune_subject *const subject = family ? family->definition->subject : &tune_attention;
  const kjit_status status = tune_device_take(device, arch, &known, error);
  return status == KJIT_OK ? tune_device_info(runtime, subject, &known, info, error) : status;
}

static kjit_status class_of_attention(const kjit_attention_problem *problem, char *text, size_t capacity,
                                      kjit_error *error) {
  kjit_attention_problem taken;
  struct tune_class class;
  struct text out;
  if (!text || capacity < KJIT_TUNE_CLASS_TEXT_MAX)
    return error_invalid(error, "text", "must have room for KJIT_TUNE_CLASS_TEXT_MAX bytes");
  *text = '\0';
  const kjit_status status = attention_problem_take(&taken, problem, error);
  if (status != KJIT_OK) return status;
  tune_class_of(&taken, &class);
  text_init_fixed(&out, text, capacity);
  pair_form_print(&tune_class_fields, &class, &out);
  return KJIT_OK;
}

/* The class as a row of a tuned table names it, so that a person can find the row. */
kjit_status kjit_tune_class(const kjit_tune_problem *problem, char *text, size_t capacity, kjit_error *error) {
  error_clear(error);
  if (!problem) return error_invalid(error, "problem", "must not be NULL");
  return problem->family ? family_problem_class(problem->family, text, capacity, error)
                         : class_of_attention(&problem->attention, text, capacity, error);
}

/* ---- Where tuning starts ---- */

/* A checked problem of either kind on its card, and the rules' choice for it. `start` points into the rest. */
struct beginning {
  struct tune_start start;
  kjit_device_info device;
  struct family_place place;
  kjit_attention_problem problem;
  struct tune_attention_start attention;
  struct family_asked family;
};

/* The limits of the place come from the card where one is given, and otherwise from what its architecture
 * guarantees. */
static kjit_status find_place(struct beginning *beginning, kjit_runtime *runtime, const kjit_device_info *device,
                              const char *arch, kjit_error *error) {
  if (!device && !arch) return error_invalid(error, "arch", "must not be NULL where device is");
  if (!device) return family_place_of_arch(arch, &beginning->place, error);
  const kjit_status status = take_device(runtime, device, &beginning->device, error);
  beginning->place = family_place_of_device(&beginning->device);
  return status;
}

static kjit_status begin_attention(struct beginning *beginning, kjit_runtime *runtime,
                                   const kjit_attention_problem *problem, const kjit_device_info *device,
                                   const char *arch, kjit_error *error) {
  kjit_status status = find_place(beginning, runtime, device, arch, error);
  if (status == KJIT_OK) status = attention_problem_take(&beginning->problem, problem, error);
  if (status == KJIT_OK)
    status = tune_attention_start_init(&beginning->attention, &beginning->problem, &beginning->place, error);
  beginning->start = beginning->attention.start;
  return status;
}

static kjit_status begin(struct beginning *beginning, kjit_runtime *runtime, const kjit_tune_problem *problem,
                         const kjit_device_info *device, const char *arch, kjit_error *error) {
  memset(beginning, 0, sizeof *beginning);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!problem) return error_invalid(error, "problem", "must not be NULL");
  if (!problem->family) return begin_attention(beginning, runtime, &problem->attention, device, arch, error);
  const kjit_status status = family_asked_init(&beginning->family, problem->family, device, arch, error);
  if (status != KJIT_OK) return status;
  beginning->start = family_asked_start(&beginning->family);
  beginning->device = beginning->family.device;
  return KJIT_OK;
}

/* `unread` takes the errors of a caller that wants none, because the steps below read them. */
kjit_status kjit_tune_candidates_create(kjit_tune_candidates **out, kjit_runtime *runtime,
                                        const kjit_tune_problem *problem, const char *set,
                                        const kjit_device_info *device, const char *arch, kjit_error *error) {
  struct beginning beginning;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  const kjit_status status = begin(&beginning, runtime, problem, device, arch, error);
  if (status != KJIT_OK) return status;
  if (set && !problem->family) return error_invalid(error, "set", "must be NULL for attention");
  return tune_list_create(out, runtime_mem(runtime), &beginning.start, set, error);
}

/* The outcome is filled in even where tuning failed, so that the caller learns how far it came and what failed
 * first. */
kjit_status kjit_tune_run(kjit_runtime *runtime, const kjit_tune_problem *problem, const kjit_device_info *device,
                          const char *arch, const kjit_tune_options *options, kjit_tune_outcome *outcome,
                          kjit_error *error) {
  kjit_tune_outcome all = {.struct_size = sizeof all};
  kjit_tune_options taken;
  struct beginning beginning;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!outcome) return error_invalid(error, "outcome", "must not be NULL");
  if (problem && !problem->family && !device) return error_invalid(error, "device", "must not be NULL for attention");
  kjit_status status = tune_options_take(&taken, options, error);
  if (status == KJIT_OK && taken.set && problem && !problem->family)
    return error_invalid(error, "options.set", "must be NULL for attention");
  if (status == KJIT_OK) status = begin(&beginning, runtime, problem, device, arch, error);
  if (status != KJIT_OK) return status;
  const struct tune_places places = tune_store_places(runtime, beginning.start.subject);
  const struct tune_job job = {runtime, &places, &beginning.start, &beginning.device};
  status = tune_run(&job, &taken, &all, error);
  const kjit_status filled = struct_fill(outcome, &all, sizeof all, "outcome", status == KJIT_OK ? error : NULL);
  return status == KJIT_OK ? filled : status;
}

/* ---- Results ---- */

/* A result that was checked, and what it points to. */
struct taken_result {
  kjit_tune_result result;
  const struct tune_subject *subject;
  int32_t class[TUNE_CLASS_MAX];
  int32_t values[KJIT_FIELD_COUNT_MAX];
};

/* A family's problem knows its class by the family's own expressions. */
static kjit_status take_of_family(struct taken_result *taken, kjit_error *error) {
  const kjit_family_problem *const problem = taken->result.problem.family;
  const kjit_config *const config = taken->result.config;
  kjit_status status = family_problem_take(problem, error);
  if (status == KJIT_OK) status = family_problem_classify(problem, taken->class, error);
  if (status != KJIT_OK) return status;
  taken->subject = problem->given.family->definition->subject;
  if (!config) return KJIT_OK;
  if (config->family != problem->given.family)
    return error_invalid(error, "result.config", "must be of the problem's family");
  memcpy(taken->values, config->values, sizeof taken->values);
  return KJIT_OK;
}

/* The config is fitted to the problem, so that the row has in its given fields what every problem of the class has. */
static kjit_status take_of_attention(struct taken_result *taken, kjit_error *error) {
  const kjit_config *const config = taken->result.config;
  kjit_attention_problem problem;
  struct tune_class class;
  const kjit_status status = attention_problem_take(&problem, &taken->result.problem.attention, error);
  if (status != KJIT_OK) return status;
  taken->subject = &tune_attention;
  tune_class_of(&problem, &class);
  memcpy(taken->class, &class, sizeof class);
  if (!config) return KJIT_OK;
  const struct attention_family *const family = attention_family_of(config->family);
  if (!family) return error_invalid(error, "result.config", "must be of a family that computes attention");
  memcpy(taken->values, config->values, sizeof taken->values);
  return family->fit(&problem, taken->values, error);
}

/* Check a caller's result, and what of it becomes a row of which table. */
static kjit_status take_result(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *given,
                               struct tune_places *places, struct tune_update *update, kjit_error *error) {
  struct taken_result taken = {.subject = NULL};
  kjit_status status = struct_intake(&taken.result, sizeof taken.result, given, sizeof taken.result, "result", error);
  if (status == KJIT_OK && !taken.result.problem.family) status = take_of_attention(&taken, error);
  if (status == KJIT_OK && taken.result.problem.family) status = take_of_family(&taken, error);
  if (status != KJIT_OK) return status;
  *places = tune_store_places(runtime, taken.subject);
  const struct tune_measured measured = {.class = taken.class,
                                         .family = taken.result.config ? taken.result.config->family : NULL,
                                         .values = taken.values,
                                         .microseconds = taken.result.microseconds,
                                         .rules_microseconds = taken.result.rules_microseconds};
  return tune_update_init(update, places, device, &measured, error);
}

/* The row is merged into the user's table of this card under a lock of its file; rows that others have published
 * meanwhile stay. */
kjit_status kjit_tune_publish(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                              kjit_error *error) {
  kjit_device_info known;
  struct tune_places places;
  struct tune_update update;
  error_clear(error);
  kjit_status status = take_device(runtime, device, &known, error);
  if (status == KJIT_OK) status = take_result(runtime, &known, result, &places, &update, error);
  return status == KJIT_OK ? tune_update_publish(&update, &places, &known, error) : status;
}

/* The same as text, with the rows of `before` around it, for those who keep the table somewhere else than in the
 * cache. */
kjit_status kjit_tune_print(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                            const char *before, char **text, kjit_error *error) {
  kjit_device_info known;
  struct tune_places places;
  struct tune_update update;
  struct text out;
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  kjit_status status = take_device(runtime, device, &known, error);
  if (status == KJIT_OK) status = take_result(runtime, &known, result, &places, &update, error);
  if (status != KJIT_OK) return status;
  text_init(&out, places.mem, TUNE_TEXT_MAX);
  status = tune_update_print(&update, &places, before, before ? strlen(before) : 0, &out, error);
  if (status == KJIT_OK) *text = text_take(&out);
  text_finish(&out);
  return status;
}
