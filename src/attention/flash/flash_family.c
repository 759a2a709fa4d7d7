/* flash_forward as an instance of struct kjit_family. The functions of the table are one-line adapters, from a family's
 * int32 values to struct flash_variant, and call flash_config.c, flash_text.c and flash_sets.c. At the end: how a
 * config of 13 fields becomes a kjit_config, and is fitted to a problem.
 *
 * Threads: constant data and pure functions. */
#include "attention/flash/flash_family.h"

#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/flash/flash_sets.h"
#include "attention/flash/flash_text.h"
#include "base/error.h"
#include "family/config.h"

static kjit_status parse(const kjit_family *family, const char *text, int32_t *values, kjit_error *error) {
  (void)family;
  return flash_text_parse(text, (struct flash_variant *)values, error);
}

static void print(const kjit_family *family, const int32_t *values, struct text *out) {
  (void)family;
  flash_text_print(flash_variant_view(values), out);
}

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family;
  return flash_check(flash_variant_view(values), error);
}

static kjit_status check_place(const kjit_family *family, const int32_t *values, const struct family_place *place,
                               kjit_error *error) {
  (void)family;
  return flash_check_place(flash_variant_view(values), place, error);
}

static void canonicalize(const kjit_family *family, int32_t *values) {
  (void)family;
  flash_canonicalize((struct flash_variant *)values);
}

static void geometry(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  const struct flash_variant *variant = flash_variant_view(values);
  (void)family;
  *out = (kjit_geometry){.threads = {flash_threads(variant), 1, 1}, .shared_bytes = flash_shared_bytes(variant)};
}

static size_t set_count(const kjit_family *family, const char *set) {
  (void)family;
  return flash_sets_count(set);
}

static void set_get(const kjit_family *family, const char *set, size_t index, int32_t *values) {
  const kjit_flash_config config = flash_sets_get(set, index);
  const struct flash_variant plain = flash_variant_plain(&config);
  (void)family;
  memcpy(values, &plain, sizeof plain);
}

/* Values that tuning does not try: without these two a kernel has bank conflicts and a slower softmax on every card. */
static const struct field_hint hints[] = {{"swizzled", {0}, 0}, {"optimized_softmax", {0}, 0}, {NULL, {0}, 0}};

const kjit_family flash_forward_family = {
    .table = FLASH_VARIANT_TABLE,
    .entry = "flash_forward",
    .main_file = "flash_forward/flash_forward.cu",
    .hints = hints,
    .parse = parse,
    .print = print,
    .check = check,
    .check_place = check_place,
    .canonicalize = canonicalize,
    .geometry = geometry,
    .derive = config_derive_geometry,
    .sets = flash_sets_names,
    .set_count = set_count,
    .set_get = set_get,
};

/* The traits follow from the problem. dtype and d_head are the config's own and must agree with it; the message about
 * d_head says where its value comes from. */
kjit_status flash_fit(const kjit_attention_problem *problem, struct flash_variant *variant, kjit_error *error) {
  const kjit_flash_config *config = &variant->config;
  const kjit_status status = attention_arguments_match_dtype(config->dtype, problem->dtype, error);
  if (status != KJIT_OK) return status;
  const struct flash_traits traits = flash_traits_of(problem);
  const int32_t d_head = flash_traits_d_head(&traits);
  variant->traits = traits;
  if (config->d_head == d_head) return KJIT_OK;
  if (traits.head_dim == d_head && traits.head_dim_v == d_head) {
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "d_head is %d: must be the tensors' head_dim, %d",
                     (int)config->d_head, (int)d_head);
  }
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "d_head is %d: must be %d, the larger of the tensors' head_dim (%d) and head_dim_v (%d) in whole "
                   "16s, at least 32",
                   (int)config->d_head, (int)d_head, (int)traits.head_dim, (int)traits.head_dim_v);
}

kjit_status kjit_config_of_flash(const kjit_flash_config *config, const kjit_attention_problem *problem,
                                 kjit_config *out, kjit_error *error) {
  kjit_attention_problem taken;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_config){.family = &flash_forward_family};
  if (!config) return error_invalid(error, "config", "must not be NULL");
  struct flash_variant variant = flash_variant_plain(config);
  if (problem) {
    kjit_status status = attention_problem_take(&taken, problem, error);
    if (status == KJIT_OK) status = flash_fit(&taken, &variant, error);
    if (status == KJIT_OK) status = flash_check(&variant, error);
    if (status != KJIT_OK) return status;
  }
  memcpy(out->values, &variant, sizeof variant);
  return KJIT_OK;
}
