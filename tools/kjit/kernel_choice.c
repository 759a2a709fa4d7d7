#include "kernel_choice.h"

#include <stdlib.h>
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

static kjit_runtime *planner;

static void planner_close(void) {
  kjit_runtime_destroy(planner);
}

/* A runtime that touches no file and no driver: it knows the tables that the library ships, by which a card's programs
 * will choose too. */
static kjit_status planner_open(kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  if (planner != NULL) return KJIT_OK;
  options.cache_mode = KJIT_CACHE_OFF;
  const kjit_status status = kjit_runtime_create(&planner, &options, error);
  if (status == KJIT_OK) (void)atexit(planner_close);
  return status;
}

kjit_status kernel_choice_of_problem(const struct attention_spec *spec, const char *arch, struct kernel_choice *out,
                                     kjit_error *error) {
  const kjit_attention_problem problem = attention_spec_problem(spec);
  char text[KJIT_ATTENTION_TEXT_MAX];
  kjit_attention_sm90_config sm90;
  kjit_flash_variant flash;
  kjit_status status = planner_open(error);
  if (status == KJIT_OK) status = kjit_attention_describe(planner, &problem, arch, text, sizeof text, error);
  if (status != KJIT_OK) return status;
  const char *config = text + strcspn(text, " ") + 1;
  if (strncmp(text, "attention_sm90 ", (size_t)(config - text)) == 0) {
    status = kjit_attention_sm90_config_parse(config, &sm90, error);
    return status == KJIT_OK ? kernel_choice_of_sm90(&sm90, arch, out, error) : status;
  }
  status = kjit_flash_variant_parse(config, &flash, error);
  return status == KJIT_OK ? kernel_choice_of_flash(&flash, arch, out, error) : status;
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
