/* The configs that flash_sweep measures: named one by one, read from a file, taken from a set, or generated from block
 * shapes and flags. Each is checked and made canonical, so that the same machine code is measured once. One thread. */
#include "config_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/card.h"

#define MOST_CONFIGS 4096 /* more than a lent GPU has time for */
#define MOST_SET     256

kjit_status config_list_add(struct config_list *list, const kjit_flash_config *config, kjit_error *error) {
  const kjit_config plain = kjit_flash_config_plain(config);
  if (kjit_config_check(&plain, list->arch, NULL) != KJIT_OK) {
    list->refused++;
    return KJIT_OK;
  }
  const kjit_config canonical = kjit_config_canonical(&plain);
  for (size_t i = 0; i < list->count; i++)
    if (memcmp(canonical.values, &list->items[i], sizeof list->items[i]) == 0) return KJIT_OK;
  if (!list->items) list->items = calloc(MOST_CONFIGS, sizeof *list->items);
  if (!list->items) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %d configs", MOST_CONFIGS);
  if (list->count == MOST_CONFIGS) return card_fail(error, KJIT_ERR_INVALID_ARG, "more than %d configs", MOST_CONFIGS);
  memcpy(&list->items[list->count++], canonical.values, sizeof *list->items);
  return KJIT_OK;
}

kjit_status config_list_add_text(struct config_list *list, const char *short_form, kjit_error *error) {
  kjit_flash_config config;
  kjit_status status = kjit_flash_config_parse(short_form, &config, error);
  const kjit_config plain = kjit_flash_config_plain(&config);
  if (status == KJIT_OK) status = kjit_config_check(&plain, list->arch, error); /* named: said, not counted */
  return status == KJIT_OK ? config_list_add(list, &config, error) : status;
}

kjit_status config_list_add_file(struct config_list *list, const char *path, kjit_error *error) {
  char line[KJIT_FLASH_CONFIG_TEXT_MAX];
  FILE *file = fopen(path, "r");
  if (!file) return card_fail(error, KJIT_ERR_IO, "%s cannot be read", path);
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] && line[0] != '#') status = config_list_add_text(list, line, error);
  }
  fclose(file);
  return status;
}

kjit_status config_list_add_set(struct config_list *list, const char *name, int32_t dtype, int64_t head_dim,
                                kjit_error *error) {
  kjit_flash_config set[MOST_SET];
  size_t count = 0;
  kjit_status status = kjit_flash_config_set(name, set, MOST_SET, &count, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    if (set[i].dtype == dtype && set[i].d_head == head_dim) status = config_list_add(list, &set[i], error);
  return status;
}

static unsigned take_digit(unsigned *index, unsigned base) {
  const unsigned digit = *index % base;
  *index /= base;
  return digit;
}

/* The combination `index` of flags; false when there is none. */
static bool choose_flags(kjit_flash_config *config, unsigned index, unsigned what) {
  static const int32_t counts[] = {0, 2, 4, 8};
  const unsigned loads = what & CONFIG_LIST_ALL_LOADS ? 4 : 2;
  config->Q_mma_load_K_tiles = counts[take_digit(&index, loads)];
  config->K_mma_load_K_tiles = counts[take_digit(&index, loads)];
  config->V_mma_load_K_tiles = counts[take_digit(&index, loads)];
  config->mma_double_buffer_loads = (int32_t)take_digit(&index, 2);
  config->optimized_softmax = (int32_t)take_digit(&index, 2);
  const unsigned switches = what & CONFIG_LIST_ALL_FLAGS ? take_digit(&index, 8) : 0;
  config->async_copy = !(switches & 1);
  config->eager_load_blocks = !(switches & 2);
  config->swizzled = !(switches & 4);
  return index == 0;
}

static kjit_status add_block(struct config_list *list, kjit_flash_config config, unsigned what, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (unsigned index = 0; status == KJIT_OK && choose_flags(&config, index, what); index++)
    status = config_list_add(list, &config, error);
  return status;
}

/* "64x64x4" and the comma or the end behind it; moves *text there. */
static bool read_block(const char **text, kjit_flash_config *config) {
  int32_t *const members[] = {&config->B_r, &config->B_c, &config->n_warps};
  for (size_t i = 0; i < 3; i++) {
    char *end;
    const long value = strtol(*text, &end, 10);
    const char behind = i < 2 ? 'x' : ',';
    if (end == *text || value < 1 || value > 1024 || (*end != behind && (i < 2 || *end))) return false;
    *members[i] = (int32_t)value;
    *text = *end ? end + 1 : end;
  }
  return true;
}

kjit_status config_list_add_blocks(struct config_list *list, const char *blocks, unsigned what, int32_t dtype,
                                   int64_t head_dim, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (const char *at = blocks; *at && status == KJIT_OK;) {
    kjit_flash_config config = {.dtype = dtype, .d_head = (int32_t)head_dim};
    if (!read_block(&at, &config))
      return card_fail(error, KJIT_ERR_PARSE, "blocks '%s': as in 64x64x4,128x32x4", blocks);
    status = add_block(list, config, what, error);
  }
  return status;
}

void config_list_free(struct config_list *list) {
  free(list->items);
  list->items = NULL;
  list->count = 0;
}
