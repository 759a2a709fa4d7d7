/* kjit_flash_config and kjit_attention_sm90_config where a test wants a kjit_config: of flash_forward the plain kernel.
 * Each function is the public one of nearly its name. */
#ifndef KJIT_TESTS_SUPPORT_CONFIGS_H
#define KJIT_TESTS_SUPPORT_CONFIGS_H

#include <string.h>

#include <kjit/kjit.h>

/* The values of a config as the struct that they are. */
static inline kjit_flash_config flash_of(const kjit_config *config) {
  kjit_flash_config flash;
  memcpy(&flash, config->values, sizeof flash);
  return flash;
}

static inline kjit_attention_sm90_config sm90_of(const kjit_config *config) {
  kjit_attention_sm90_config sm90;
  memcpy(&sm90, config->values, sizeof sm90);
  return sm90;
}

static inline kjit_config sm90_config(const kjit_attention_sm90_config *sm90) {
  kjit_config config = {.family = kjit_family_find("attention_sm90")};
  memcpy(config.values, sm90, sizeof *sm90);
  return config;
}

static inline kjit_status plain_check(const kjit_flash_config *flash, const char *arch, kjit_error *error) {
  if (!flash) return kjit_config_check(NULL, arch, error);
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_config_check(&config, arch, error);
}

static inline kjit_flash_config plain_canonical(const kjit_flash_config *flash) {
  const kjit_config config = kjit_flash_config_plain(flash), canonical = kjit_config_canonical(&config);
  return flash_of(&canonical);
}

static inline kjit_geometry plain_geometry(const kjit_flash_config *flash) {
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_config_geometry(&config);
}

static inline uint32_t plain_blocks_per_sm(const kjit_flash_config *flash, uint32_t registers, const char *arch) {
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_config_blocks_per_sm(&config, registers, arch);
}

static inline int plain_compare(const kjit_flash_config *a, const kjit_flash_config *b) {
  const kjit_config left = kjit_flash_config_plain(a), right = kjit_flash_config_plain(b);
  return kjit_config_compare(&left, &right);
}

static inline kjit_status plain_build(kjit_runtime *runtime, const kjit_flash_config *flash, const char *arch,
                                      uint32_t flags, kjit_artifact **out, kjit_error *error) {
  if (!flash) return kjit_config_build(runtime, NULL, arch, flags, out, error);
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_config_build(runtime, &config, arch, flags, out, error);
}

static inline kjit_status plain_source(kjit_runtime *runtime, const kjit_flash_config *flash, char **text,
                                       kjit_error *error) {
  if (!flash) return kjit_config_source(runtime, NULL, text, error);
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_config_source(runtime, &config, text, error);
}

/* With the arguments' traits, as kjit_attention_forward() takes any config of flash_forward. NULL: chosen. */
static inline kjit_status plain_forward(kjit_runtime *runtime, const kjit_flash_config *flash,
                                        const kjit_attention_args *args, CUstream stream, kjit_error *error) {
  if (!flash) return kjit_attention_forward(runtime, NULL, args, stream, error);
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_attention_forward(runtime, &config, args, stream, error);
}

static inline kjit_status plain_plan_create(kjit_attention_plan **out, kjit_runtime *runtime,
                                            const kjit_flash_config *flash, const kjit_attention_args *args,
                                            kjit_error *error) {
  if (!flash) return kjit_attention_plan_create(out, runtime, NULL, args, error);
  const kjit_config config = kjit_flash_config_plain(flash);
  return kjit_attention_plan_create(out, runtime, &config, args, error);
}

static inline kjit_status sm90_forward(kjit_runtime *runtime, const kjit_attention_sm90_config *sm90,
                                       const kjit_attention_args *args, CUstream stream, kjit_error *error) {
  const kjit_config config = sm90_config(sm90);
  return kjit_attention_forward(runtime, &config, args, stream, error);
}

static inline kjit_status sm90_plan_create(kjit_attention_plan **out, kjit_runtime *runtime,
                                           const kjit_attention_sm90_config *sm90, const kjit_attention_args *args,
                                           kjit_error *error) {
  const kjit_config config = sm90_config(sm90);
  return kjit_attention_plan_create(out, runtime, &config, args, error);
}

#endif
