/* A config as data: order, hash, text, canonical form, and the numbers that follow from it. */
#include "attention/sm90/sm90_fields.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/sm90/sm90_text.h"
#include "base/error.h"

enum {
  GROUP_THREADS = 128,
  ROW_BYTES = 128,  /* of a chunk */
  ALIGNMENT = 1024, /* of the swizzle's pattern; dynamic shared memory starts anywhere */
  BARRIER_BYTES = 8,
  TILE_BYTES = 16,        /* where it is, and as much again for which part of it, if split */
  CONSUMER_WORD_BYTES = 4 /* by which a consumer's threads hear whether they are to merge */
};

int kjit_attention_sm90_config_compare(const kjit_attention_sm90_config *a, const kjit_attention_sm90_config *b) {
  return field_table_compare(&sm90_fields, a, b);
}

uint64_t kjit_attention_sm90_config_hash(const kjit_attention_sm90_config *config) {
  return field_table_hash(&sm90_fields, config);
}

kjit_status kjit_attention_sm90_config_parse(const char *text, kjit_attention_sm90_config *out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = (kjit_attention_sm90_config){0};
  if (!text) return error_invalid(error, "text", "must not be NULL");
  return sm90_text_parse(text, out, error);
}

kjit_status kjit_attention_sm90_config_print(const kjit_attention_sm90_config *config, uint32_t flags, char *text,
                                             size_t capacity, kjit_error *error) {
  struct text out;
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  if (!text || !capacity) return error_invalid(error, "text", "must have room for KJIT_ATTENTION_SM90_TEXT_MAX bytes");
  text_init_fixed(&out, text, capacity);
  if (flags & ~KJIT_PRINT_JSON) return error_invalid(error, "flags", "only KJIT_PRINT_JSON may be set");
  if (flags & KJIT_PRINT_JSON)
    field_table_json(&sm90_fields, config, &out);
  else
    sm90_text_print(config, &out);
  if (!out.failed) return KJIT_OK;
  *text = '\0';
  return error_invalid(error, "capacity", "too small; KJIT_ATTENTION_SM90_TEXT_MAX never is");
}

kjit_attention_sm90_config kjit_attention_sm90_config_canonical(const kjit_attention_sm90_config *config) {
  kjit_attention_sm90_config canonical = *config;
  /* There is nobody to take turns with. */
  if (canonical.consumers == 1) canonical.ping_pong = 0;
  /* O leaves through the Q that is done with. */
  if (canonical.q_buffers == 2 || canonical.split) canonical.o_chunks = 0;
  return canonical;
}

static uint32_t larger(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/* As pipeline.cuh lays it out: Q (through which O leaves that has no memory of its own), K and V, O, barriers, tiles,
 * words. */
static uint32_t shared_bytes(const kjit_attention_sm90_config *config) {
  const uint32_t qk = (uint32_t)sm90_rules_chunks(config->head_dim),
                 v = (uint32_t)sm90_rules_chunks(config->head_dim_v);
  const uint32_t q_buffers = (uint32_t)config->q_buffers, stages = (uint32_t)config->stages;
  const uint32_t chunk = (uint32_t)config->consumers * SM90_GROUP_ROWS * ROW_BYTES;
  const uint32_t o_chunks = (uint32_t)kjit_attention_sm90_config_canonical(config).o_chunks;
  const uint32_t q = q_buffers * chunk * (o_chunks ? qk : larger(qk, v));
  const uint32_t kv = stages * (uint32_t)config->tile_n * ROW_BYTES * (qk + v);
  const uint32_t tiles = q_buffers * (config->split ? 2 * TILE_BYTES : TILE_BYTES);
  const uint32_t words = config->split ? CONSUMER_WORD_BYTES * (uint32_t)config->consumers : 0;
  return q + kv + o_chunks * chunk + BARRIER_BYTES * (2 * q_buffers + 4 * stages) + tiles + words + ALIGNMENT - 1;
}

kjit_attention_sm90_geometry kjit_attention_sm90_config_geometry(const kjit_attention_sm90_config *config) {
  const uint32_t consumers = (uint32_t)config->consumers, keys = (uint32_t)config->tile_n;
  return (kjit_attention_sm90_geometry){.threads = GROUP_THREADS * (consumers + 1),
                                        .tile_m = SM90_GROUP_ROWS * consumers,
                                        .shared_bytes = shared_bytes(config),
                                        .registers = (uint32_t)config->head_dim_v / 2 + keys / 2 + keys / 4,
                                        .positions = SM90_GROUP_ROWS * consumers / (uint32_t)config->packed};
}
