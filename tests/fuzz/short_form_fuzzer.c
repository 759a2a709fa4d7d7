/* Any text as a kernel's name: it is refused with a column, or it prints and is read back as the same; and whatever it
 * says, no rule, canonical form or number may misbehave. */
#include <stdint.h>
#include <string.h>

#include "fuzz/require.h"
#include "support/configs.h"
#include "support/flash_variants.h"

/* Longer than any name in any spelling, several times over. */
#define TEXT_MAX 4096

static void check_refusal(const kjit_error *error) {
  require(error->status == KJIT_ERR_PARSE);
  require(strncmp(error->message, "column ", strlen("column ")) == 0);
  require(!strchr(error->message, '\n'));
}

static void check_text(const struct flash_variant *variant) {
  char text[KJIT_CONFIG_TEXT_MAX];
  struct flash_variant again;
  require(variant_print(variant, KJIT_PRINT_JSON, text, sizeof text, NULL) == KJIT_OK);
  require(variant_print(variant, 0, text, sizeof text, NULL) == KJIT_OK);
  /* The demangled spelling may hold a negative count, which the short form has no way to say. */
  const kjit_flash_config *config = &variant->config;
  if (config->Q_mma_load_K_tiles < 0 || config->K_mma_load_K_tiles < 0 || config->V_mma_load_K_tiles < 0) return;
  require(variant_parse(text, &again, NULL) == KJIT_OK);
  require(variant_compare(variant, &again) == 0);
}

static void check_rules(const struct flash_variant *variant) {
  (void)variant_geometry(variant);
  (void)plain_blocks_per_sm(&variant->config, 128, "sm_90");
  if (variant_check(variant, NULL, NULL) != KJIT_OK) return;
  input_is_taken();
  const struct flash_variant once = variant_canonical(variant), twice = variant_canonical(&once);
  require(variant_check(&once, NULL, NULL) == KJIT_OK);
  require(variant_compare(&once, &twice) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char text[TEXT_MAX + 1];
  struct flash_variant variant;
  kjit_error error;
  const size_t length = size < TEXT_MAX ? size : TEXT_MAX;
  memcpy(text, data, length);
  text[length] = '\0';
  if (variant_parse(text, &variant, &error) != KJIT_OK) {
    check_refusal(&error);
    return 0;
  }
  check_text(&variant);
  check_rules(&variant);
  return 0;
}
