/* flash_forward's kernels as a struct of 13 fields and four traits, through the public functions over kjit_config. */
#ifndef KJIT_TESTS_SUPPORT_FLASH_VARIANTS_H
#define KJIT_TESTS_SUPPORT_FLASH_VARIANTS_H

#include <string.h>

#include <kjit/kjit.h>

/* A test that sees the library's own has these two from there. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CONFIG_H
struct flash_traits {
  int32_t causal, grouped, head_dim, head_dim_v;
};

struct flash_variant {
  kjit_flash_config config;
  struct flash_traits traits;
};

static inline struct flash_variant flash_variant_plain(const kjit_flash_config *config) {
  return (struct flash_variant){*config, {0, 0, config->d_head, config->d_head}};
}
#endif

#define VARIANT_TEXT_MAX 640

static inline kjit_config variant_config(const struct flash_variant *variant) {
  kjit_config config = {.family = kjit_family_find("flash_forward")};
  memcpy(config.values, variant, sizeof *variant);
  return config;
}

static inline struct flash_variant variant_from(const kjit_config *config) {
  struct flash_variant variant;
  memcpy(&variant, config->values, sizeof variant);
  return variant;
}

static inline kjit_status variant_parse(const char *text, struct flash_variant *out, kjit_error *error) {
  kjit_config config;
  const kjit_status status = kjit_config_parse(kjit_family_find("flash_forward"), text, &config, error);
  *out = variant_from(&config);
  return status;
}

static inline kjit_status variant_print(const struct flash_variant *variant, uint32_t flags, char *text,
                                        size_t capacity, kjit_error *error) {
  const kjit_config config = variant_config(variant);
  return kjit_config_print(&config, flags, text, capacity, error);
}

static inline kjit_status variant_check(const struct flash_variant *variant, const char *arch, kjit_error *error) {
  const kjit_config config = variant_config(variant);
  return kjit_config_check(&config, arch, error);
}

static inline struct flash_variant variant_canonical(const struct flash_variant *variant) {
  const kjit_config config = variant_config(variant), canonical = kjit_config_canonical(&config);
  return variant_from(&canonical);
}

static inline kjit_geometry variant_geometry(const struct flash_variant *variant) {
  const kjit_config config = variant_config(variant);
  return kjit_config_geometry(&config);
}

static inline int variant_compare(const struct flash_variant *a, const struct flash_variant *b) {
  const kjit_config left = variant_config(a), right = variant_config(b);
  return kjit_config_compare(&left, &right);
}

static inline kjit_status variant_of(const kjit_flash_config *config, const kjit_attention_problem *problem,
                                     struct flash_variant *out, kjit_error *error) {
  kjit_config made;
  const kjit_status status = kjit_config_of_flash(config, problem, &made, error);
  *out = variant_from(&made);
  return status;
}

/* flash_forward's choice by its rules: `arch` is none that another family computes on. */
static inline kjit_status variant_choose(const kjit_attention_problem *problem, const char *arch,
                                         struct flash_variant *out, kjit_error *error) {
  kjit_config config;
  const kjit_status status = kjit_attention_choose(NULL, problem, arch, &config, NULL, error);
  *out = variant_from(&config);
  return status;
}

static inline kjit_status variant_build(kjit_runtime *runtime, const struct flash_variant *variant, const char *arch,
                                        uint32_t flags, kjit_artifact **out, kjit_error *error) {
  const kjit_config config = variant_config(variant);
  return kjit_config_build(runtime, &config, arch, flags, out, error);
}

static inline kjit_status variant_source(kjit_runtime *runtime, const struct flash_variant *variant, char **text,
                                         kjit_error *error) {
  const kjit_config config = variant_config(variant);
  return kjit_config_source(runtime, &config, text, error);
}

#endif
