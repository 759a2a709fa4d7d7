/* The kernels that find an attention variant's key blocks, as families without fields: so they are built, kept and
 * looked up as every other kernel is. Constant data. */
#include "attention/attention_variant_kernels.h"

#include "attention_variant/list_params.h"

#include "base/error.h"
#include "family/config.h"

static kjit_status check(const kjit_family *family, const int32_t *values, kjit_error *error) {
  (void)family, (void)values, (void)error;
  return KJIT_OK;
}

static void geometry_of_list(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  (void)family, (void)values;
  *out = (kjit_geometry){.threads = {LIST_THREADS, 1, 1}, .shared_bytes = LIST_SHARED};
}

static void geometry_of_map(const kjit_family *family, const int32_t *values, kjit_geometry *out) {
  (void)family, (void)values;
  *out = (kjit_geometry){.threads = {MAP_THREADS, 1, 1}};
}

/* There is one config, which has no values to print. */
static void print(const kjit_family *family, const int32_t *values, struct text *out) {
  (void)values;
  text_append(out, family->entry);
}

const int32_t attention_no_fields[1] = {0};

const kjit_family attention_block_list_family = {.table = {.family = "attention_block_list"},
                                                 .entry = "attention_block_list",
                                                 .main_file = "attention_variant/block_list.cu",
                                                 .is_exact = true,
                                                 .print = print,
                                                 .check = check,
                                                 .geometry = geometry_of_list};

const kjit_family attention_block_map_family = {.table = {.family = "attention_block_map"},
                                                .entry = "attention_block_map",
                                                .main_file = "attention_variant/block_map.cu",
                                                .is_exact = true,
                                                .print = print,
                                                .check = check,
                                                .geometry = geometry_of_map};
