#include "kernel_choice.h"

#include <string.h>

_Static_assert(KJIT_ATTENTION_SM90_TEXT_MAX <= KERNEL_CHOICE_TEXT_MAX, "either family's text fits");

kjit_status kernel_choice_of_flash(const kjit_flash_variant *variant, const char *arch, struct kernel_choice *out,
                                   kjit_error *error) {
  *out = (struct kernel_choice){0};
  const kjit_status status = kjit_flash_variant_check(variant, arch, error);
  if (status == KJIT_OK) out->flash = kjit_flash_variant_canonical(variant);
  return status;
}

kjit_status kernel_choice_of_sm90(const kjit_attention_sm90_config *config, const char *arch, struct kernel_choice *out,
                                  kjit_error *error) {
  *out = (struct kernel_choice){.is_sm90 = true};
  const kjit_status status = kjit_attention_sm90_config_check(config, arch, error);
  if (status == KJIT_OK) out->sm90 = kjit_attention_sm90_config_canonical(config);
  return status;
}

kjit_status kernel_choice_of_problem(const struct attention_spec *spec, const char *arch, struct kernel_choice *out,
                                     kjit_error *error) {
  const kjit_attention_problem problem = attention_spec_problem(spec);
  kjit_attention_sm90_config sm90;
  kjit_flash_variant flash;
  kjit_error why_not = {0};
  if (strcmp(arch, "sm_90a") == 0 && kjit_attention_sm90_choose(&problem, 0, &sm90, &why_not) == KJIT_OK)
    return kernel_choice_of_sm90(&sm90, arch, out, error);
  if (kjit_flash_variant_choose(&problem, arch, &flash, error) == KJIT_OK)
    return kernel_choice_of_flash(&flash, arch, out, error);
  if (why_not.status != KJIT_OK) *error = why_not; /* of the card's own family */
  return (kjit_status)error->status;
}

int kernel_choice_compare(const struct kernel_choice *a, const struct kernel_choice *b) {
  if (a->is_sm90 != b->is_sm90) return a->is_sm90 ? 1 : -1;
  return a->is_sm90 ? kjit_attention_sm90_config_compare(&a->sm90, &b->sm90)
                    : kjit_flash_variant_compare(&a->flash, &b->flash);
}

const char *kernel_choice_family(const struct kernel_choice *choice) {
  return choice->is_sm90 ? "attention_sm90" : "flash_forward";
}

void kernel_choice_print(const struct kernel_choice *choice, char text[KERNEL_CHOICE_TEXT_MAX]) {
  const kjit_status status =
      choice->is_sm90 ? kjit_attention_sm90_config_print(&choice->sm90, 0, text, KERNEL_CHOICE_TEXT_MAX, NULL)
                      : kjit_flash_variant_print(&choice->flash, 0, text, KERNEL_CHOICE_TEXT_MAX, NULL);
  if (status != KJIT_OK) text[0] = '\0';
}

uint32_t kernel_choice_threads(const struct kernel_choice *choice) {
  return choice->is_sm90 ? kjit_attention_sm90_config_geometry(&choice->sm90).threads
                         : kjit_flash_variant_geometry(&choice->flash).threads;
}

uint32_t kernel_choice_shared_bytes(const struct kernel_choice *choice) {
  return choice->is_sm90 ? kjit_attention_sm90_config_geometry(&choice->sm90).shared_bytes
                         : kjit_flash_variant_geometry(&choice->flash).shared_bytes;
}

static kjit_status build(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch, uint32_t flags,
                         kjit_artifact **artifact, kjit_error *error) {
  if (choice->is_sm90) return kjit_attention_sm90_build(runtime, &choice->sm90, flags, artifact, error);
  return kjit_flash_variant_build(runtime, &choice->flash, arch, flags, artifact, error);
}

kjit_status kernel_choice_build(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                                kjit_artifact **artifact, kjit_error *error) {
  return build(runtime, choice, arch, 0, artifact, error);
}

kjit_status kernel_choice_key(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                              kjit_key *key, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_status status = build(runtime, choice, arch, KJIT_BUILD_KEY_ONLY, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_key(artifact, key, error);
  kjit_artifact_release(artifact);
  return status;
}

kjit_status kernel_choice_source(kjit_runtime *runtime, const struct kernel_choice *choice, const char *arch,
                                 char **text, kjit_error *error) {
  if (choice->is_sm90) return kjit_attention_sm90_source(runtime, &choice->sm90, text, error);
  return kjit_flash_variant_source(runtime, &choice->flash, arch, text, error);
}
