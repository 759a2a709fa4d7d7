/* Variants over tensors of the host, by their texts: the tensors that a text names are declared for it. */
#ifndef KJIT_TESTS_VARIANT_FIXTURE_H
#define KJIT_TESTS_VARIANT_FIXTURE_H

#include "attention/variant/create.h"

#include "support/test.h"

#include <string.h>

enum { SEQ = 160, BATCH = 2, HEADS = 3 };

/* What every test finds in memory. Document lengths differ, so that no boundary is at a multiple of a tile. */
struct variant_data {
  int64_t doc[SEQ];        /* 0, 1, 2, … */
  int32_t off[8];          /* where each document begins */
  int32_t pre[8];          /* the document whose prefix it shares */
  uint8_t g[SEQ];          /* bool: global tokens */
  uint8_t pad[BATCH][SEQ]; /* bool: real tokens */
  int32_t len[BATCH];
  int32_t pos[SEQ];
  int32_t iv[8][2], img[SEQ];
  uint8_t anc[16][16]; /* bool */
  int32_t sel[8][4];
  float slope[HEADS], t[SEQ], bias[HEADS][SEQ][SEQ], emb[64][HEADS];
  uint16_t half[SEQ];
};

static struct variant_data data;

static const struct variant_tensor {
  const char *name;
  int32_t dtype;
  uint32_t rank;
  int64_t shape[4], stride[4];
  void *memory;
} variant_tensors[] = {
    {"doc", 4, 1, {SEQ}, {1}, data.doc},
    {"off", 3, 1, {8}, {1}, data.off},
    {"pre", 3, 1, {8}, {1}, data.pre},
    {"g", 11, 1, {SEQ}, {1}, data.g},
    {"pad", 11, 2, {BATCH, SEQ}, {SEQ, 1}, data.pad},
    {"len", 3, 1, {BATCH}, {1}, data.len},
    {"pos", 3, 1, {SEQ}, {1}, data.pos},
    {"iv", 3, 2, {8, 2}, {2, 1}, data.iv},
    {"img", 3, 1, {SEQ}, {1}, data.img},
    {"anc", 11, 2, {16, 16}, {16, 1}, data.anc},
    {"sel", 3, 2, {8, 4}, {4, 1}, data.sel},
    {"slope", 6, 1, {HEADS}, {1}, data.slope},
    {"t", 6, 1, {SEQ}, {1}, data.t},
    {"bias", 6, 4, {BATCH, HEADS, SEQ, SEQ}, {0, SEQ *SEQ, SEQ, 1}, data.bias},
    {"emb", 6, 2, {64, HEADS}, {HEADS, 1}, data.emb},
    {"half", 5, 1, {SEQ}, {1}, data.half},
};

static inline void variant_data_fill(void) {
  static const int lengths[] = {37, 22, 41, 9, 30, 21};
  int at = 0;
  for (int document = 0; document < 6; document++) {
    data.off[document] = at;
    data.pre[document] = document / 2 * 2;
    for (int i = 0; i < lengths[document]; i++, at++) {
      data.doc[at] = document;
      data.pos[at] = i;
      data.img[at] = document;
    }
  }
  data.off[6] = data.off[7] = SEQ;
  for (int i = 0; i < SEQ; i++) {
    data.g[i] = i % 53 == 7;
    data.t[i] = (float)(i % 13) * 0.25f - 1;
    data.half[i] = (uint16_t)(0x3800 + 37 * i);
    for (int b = 0; b < BATCH; b++)
      data.pad[b][i] = i < SEQ - 23 * b;
    for (int j = 0; j < SEQ; j++)
      for (int h = 0; h < HEADS; h++)
        data.bias[h][i][j] = (float)((i * 7 + j * 3 + h) % 17) * 0.125f;
  }
  for (int i = 0; i < 8; i++) {
    data.iv[i][0] = 20 * i;
    data.iv[i][1] = 20 * i + 33;
    for (int j = 0; j < 4; j++)
      data.sel[i][j] = (i * 3 + j * 5) % 10;
  }
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++)
      data.anc[i][j] = j <= i && (i - j) % 3 != 1;
  for (int h = 0; h < HEADS; h++)
    data.slope[h] = 0.5f / (float)(1 << h);
  for (int i = 0; i < 64; i++)
    for (int h = 0; h < HEADS; h++)
      data.emb[i][h] = (float)(i - 20 * h) * 0.03125f;
  data.len[0] = 131;
  data.len[1] = 77;
}

/* The setup of a group of tests that read them. */
static inline int variant_data_setup(void **state) {
  (void)state;
  variant_data_fill();
  return 0;
}

struct variant_made {
  kjit_attention_variant *variant;
  struct kjit_variant_arguments arguments;
  kjit_tensor tensors[8];
  size_t tensor_count;
  kjit_status status;
  kjit_error error;
};

static inline int names(const char *text, const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
  for (const char *at = text; at && (at = strstr(at, name)) != NULL; at++) {
    const char behind = at[strlen(name)];
    if ((at == text || !strchr(letters, at[-1])) && (!behind || !strchr(letters, behind))) return 1;
  }
  return 0;
}

/* Scalars W = 20, P = 30, OFF = 13 and C = 30.0 are there for every text. */
static inline struct variant_made variant_make(const char *score, const char *mask) {
  static const kjit_variant_scalar scalars[] = {
      {"W", KJIT_VARIANT_INT32}, {"P", KJIT_VARIANT_INT32}, {"OFF", KJIT_VARIANT_INT32}, {"C", KJIT_VARIANT_FP32}};
  static const struct variant_problem problem = {SEQ, SEQ, HEADS, 1};
  int32_t values[4] = {20, 30, 13, 0};
  const float cap = 30;
  kjit_variant_tensor declared[8];
  struct variant_made made = {.tensor_count = 0};
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  memcpy(&values[3], &cap, sizeof cap);
  for (size_t i = 0; i < sizeof variant_tensors / sizeof *variant_tensors; i++) {
    const struct variant_tensor *const tensor = &variant_tensors[i];
    if (!names(score, tensor->name) && !names(mask, tensor->name)) continue;
    declared[made.tensor_count] = (kjit_variant_tensor){tensor->name, tensor->dtype, tensor->rank};
    kjit_tensor *const view = &made.tensors[made.tensor_count++];
    *view = (kjit_tensor){tensor->memory, tensor->dtype, KJIT_DEVICE_HOST, tensor->rank, 0, {0}, {0}};
    memcpy(view->shape, tensor->shape, sizeof view->shape);
    memcpy(view->stride, tensor->stride, sizeof view->stride);
  }
  text.score = score;
  text.mask = mask;
  text.scalars = scalars;
  text.scalar_count = 4;
  text.tensors = declared;
  text.tensor_count = made.tensor_count;
  text.file = "model.py";
  text.line = 10;
  made.status = kjit_attention_variant_create(&made.variant, &text, &made.error);
  if (made.status != KJIT_OK) return made;
  assert_status(KJIT_OK, variant_check_tensors(made.variant, values, made.tensors, KJIT_DEVICE_HOST, &made.error),
                &made.error);
  variant_fill_arguments(made.variant, &problem, values, made.tensors, &made.arguments);
  return made;
}

static inline struct variant_made variant_must_make(const char *score, const char *mask) {
  struct variant_made made = variant_make(score, mask);
  if (made.status != KJIT_OK) print_error("%s / %s\n", score ? score : "score", mask ? mask : "true");
  assert_status(KJIT_OK, made.status, &made.error);
  return made;
}

#endif
