#include "attention/sm90/sm90_rules.h"

#include <string.h>

#include "attention/sm90/sm90_fields.h"
#include "base/error.h"
#include "base/integer.h"
#include "jit/request/target.h"

enum {
  MAX_HEAD = 256,       /* columns: wgmma's N */
  MAX_CONSUMERS = 3,    /* with the producer 512 threads; a fourth would leave each 128 registers */
  KEY_STEP = 16,        /* wgmma's K: keys of one product with V */
  MAX_KEYS = 256,       /* wgmma's N, and rows of a tensor map's box */
  MIN_STAGES = 2,       /* a tile is loaded while another is used */
  MAX_STAGES = 4,       /* more does not fit with any tile worth having */
  CHUNK_COLUMNS = 64,   /* of 16 bits in 128-byte rows */
  MAX_SLACK = 15,       /* a sum of 2^15 has no term that fp16 cannot hold */
  MAX_PACKED = 64,      /* rows of a consumer */
  SHARED_BYTES = 232448 /* of sm_90, per block after opting in: target.c */
};

static kjit_status broken(kjit_error *error, const char *field, int32_t value, const char *rule) {
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be %s", field, (int)value, rule);
}

static _Bool is_between(int32_t value, int32_t least, int32_t most) {
  return value >= least && value <= most;
}

static kjit_status check_dtype(const kjit_attention_sm90_config *config, kjit_error *error) {
  if (config->dtype == KJIT_FP16 || config->dtype == KJIT_BF16) return KJIT_OK;
  return broken(error, "dtype", config->dtype, "FP16 (5) or BF16 (15)");
}

static kjit_status check_head(const char *field, int32_t columns, kjit_error *error) {
  if (is_between(columns, 8, MAX_HEAD) && columns % 8 == 0) return KJIT_OK;
  return broken(error, field, columns, "a multiple of 8 from 8 to 256");
}

static kjit_status check_heads(const kjit_attention_sm90_config *config, kjit_error *error) {
  const kjit_status status = check_head("head_dim", config->head_dim, error);
  return status == KJIT_OK ? check_head("head_dim_v", config->head_dim_v, error) : status;
}

static kjit_status check_booleans(const kjit_attention_sm90_config *config, kjit_error *error) {
  for (size_t i = 0; i < sm90_fields.count; i++) {
    const struct field *field = &sm90_fields.fields[i];
    const int32_t value = field_get(field, config);
    if (field->kind == FIELD_BOOL && value != 0 && value != 1) return broken(error, field->name, value, "0 or 1");
  }
  return KJIT_OK;
}

static kjit_status check_counts(const kjit_attention_sm90_config *config, kjit_error *error) {
  if (!is_between(config->consumers, 1, MAX_CONSUMERS)) return broken(error, "consumers", config->consumers, "1 to 3");
  if (!is_between(config->tile_n, KEY_STEP, MAX_KEYS) || config->tile_n % KEY_STEP != 0)
    return broken(error, "tile_n", config->tile_n, "a multiple of 16 from 16 to 256");
  if (!is_between(config->stages, MIN_STAGES, MAX_STAGES)) return broken(error, "stages", config->stages, "2 to 4");
  if (!is_between(config->q_buffers, 1, 2)) return broken(error, "q_buffers", config->q_buffers, "1 or 2");
  if (!is_between(config->o_chunks, 0, sm90_rules_chunks(config->head_dim_v)))
    return broken(error, "o_chunks", config->o_chunks, "from 0 to the 64-column chunks of head_dim_v");
  if (!is_between(config->rescale_slack, 0, MAX_SLACK))
    return broken(error, "rescale_slack", config->rescale_slack, "0 to 15");
  if (is_between(config->packed, 1, MAX_PACKED) && (config->packed & (config->packed - 1)) == 0) return KJIT_OK;
  return broken(error, "packed", config->packed, "a power of two from 1 to 64");
}

/* Of the 256, 232 and 160 that setmaxnreg gives a consumer thread, the rest is for addresses, row maxima and sums, and
 * what the compiler needs between them. Above these there is no hope; what the planner chooses is compiled by tests. */
int32_t sm90_rules_registers(int32_t consumers) {
  static const int32_t most[MAX_CONSUMERS] = {230, 216, 136};
  return most[consumers - 1];
}

int32_t sm90_rules_chunks(int32_t columns) {
  return (int32_t)integer_divide_up(columns, CHUNK_COLUMNS);
}

uint32_t sm90_rules_shared(void) {
  return SHARED_BYTES;
}

static kjit_status check_registers(const kjit_attention_sm90_config *config, kjit_error *error) {
  const int32_t needed = (int32_t)kjit_attention_sm90_config_geometry(config).registers;
  const int32_t most = sm90_rules_registers(config->consumers);
  if (needed <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "tile_n is %d: with head_dim_v %d a thread needs head_dim_v / 2 + tile_n / 2 + tile_n / 4 = %d "
                   "registers; must be at most %d with consumers %d",
                   (int)config->tile_n, (int)config->head_dim_v, (int)needed, (int)most, (int)config->consumers);
}

static kjit_status check_shared(const kjit_attention_sm90_config *config, kjit_error *error) {
  const uint32_t needed = kjit_attention_sm90_config_geometry(config).shared_bytes;
  if (needed <= SHARED_BYTES) return KJIT_OK;
  return error_set(
      error, KJIT_ERR_INVALID_CONFIG,
      "tile_n is %d: with head_dim %d, head_dim_v %d, consumers %d, stages %d, q_buffers %d and o_chunks %d "
      "a block needs %u bytes of shared memory; must be at most %d",
      (int)config->tile_n, (int)config->head_dim, (int)config->head_dim_v, (int)config->consumers, (int)config->stages,
      (int)config->q_buffers, (int)config->o_chunks, needed, SHARED_BYTES);
}

kjit_status sm90_rules_check(const kjit_attention_sm90_config *config, kjit_error *error) {
  /* Each may rely on those before it. */
  static kjit_status (*const rules[])(const kjit_attention_sm90_config *, kjit_error *) = {
      check_dtype, check_heads, check_booleans, check_counts, check_registers, check_shared};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof rules / sizeof *rules && status == KJIT_OK; i++)
    status = rules[i](config, error);
  return status;
}

kjit_status sm90_rules_check_arch(const char *arch, kjit_error *error) {
  struct target target;
  const kjit_status status = target_parse(&target, arch, error);
  if (status != KJIT_OK || !strcmp(target.name, SM90_ARCH)) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: attention_sm90 requires " SM90_ARCH " (current: %s)",
                   target.name);
}

kjit_status kjit_attention_sm90_config_check(const kjit_attention_sm90_config *config, const char *arch,
                                             kjit_error *error) {
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  const kjit_status status = sm90_rules_check(config, error);
  return status == KJIT_OK && arch ? sm90_rules_check_arch(arch, error) : status;
}
