/* One config for each machine code. */
#include "attention/flash/flash_traits.h"

/* 8-wide fragments of an axis, which is what a load count counts. */
static int32_t fragments(int32_t length) {
  return length / 8;
}

/* Does an operand pass through registers in two or more slices? */
static _Bool is_sliced(int32_t load_count, int32_t axis_length) {
  return load_count != 0 && fragments(axis_length) / load_count >= 2;
}

/* The rules, each with why the code is the same. Each sets a field to its plain value, 0. */
static void apply_rules(kjit_flash_config *config, int32_t head_columns) {
  /* One slice that is the whole of K is what 0 means. Q follows K (Q is 0 or equal to it), so only where Q is 0. */
  if (config->K_mma_load_K_tiles == fragments(head_columns) && config->Q_mma_load_K_tiles == 0)
    config->K_mma_load_K_tiles = 0;

  /* One slice that is the whole of V is what 0 means. */
  if (config->V_mma_load_K_tiles == fragments(config->B_c)) config->V_mma_load_K_tiles = 0;

  /* Where nothing has a next slice, there is none to load early. */
  if (!is_sliced(config->Q_mma_load_K_tiles, head_columns) && !is_sliced(config->K_mma_load_K_tiles, head_columns) &&
      !is_sliced(config->V_mma_load_K_tiles, config->B_c))
    config->mma_double_buffer_loads = 0;
}

kjit_flash_variant kjit_flash_variant_canonical(const kjit_flash_variant *variant) {
  kjit_flash_variant canonical = *variant;
  kjit_flash_config before;
  /* One rule may open the way for another; each application zeroes a field or is the last. */
  do {
    before = canonical.config;
    apply_rules(&canonical.config, flash_traits_columns(variant->traits.head_dim));
  } while (kjit_flash_config_compare(&before, &canonical.config) != 0);
  return canonical;
}

kjit_flash_config kjit_flash_config_canonical(const kjit_flash_config *config) {
  const kjit_flash_variant plain = kjit_flash_variant_plain(config);
  return kjit_flash_variant_canonical(&plain).config;
}
