/* A variant as its kernels need to know it. Pure. */
#ifndef KJIT_ATTENTION_ATTENTION_VARIANT_SOURCE_H
#define KJIT_ATTENTION_ATTENTION_VARIANT_SOURCE_H

#include <stdbool.h>

#include <kjit/attention.h>

#include "attention_variant/params.h"
#include "family/config_build.h"

enum { ATTENTION_VARIANT_SCALARS = 32, ATTENTION_VARIANT_TENSORS = 8 };

/* The generated header, and what its text says of itself. */
struct attention_variant_source {
  const char *header;     /* NUL-terminated; lives as long as the variant */
  struct digest digest;   /* of all that the header depends on */
  bool has_score;         /* KJIT_VARIANT_SCORE */
  bool has_mask;          /* KJIT_VARIANT_MASK  */
  int intervals;          /* KJIT_VARIANT_INTERVALS */
  bool is_narrow;         /* each row's keys begin where its query's place says: windows, chunks, documents */
  bool is_stepped;        /* neighbouring queries' keys begin at the same place: chunks, documents */
  bool is_curved;         /* the score function is one of s alone, multiplied and added to, such as tanh's */
  int key_loads;          /* elements that the score function loads for each pair, as other keys have others */
  int tile;               /* 0, or 1 + the tensor with the terms of KJIT_VARIANT_TILE */
  int tile_axes;          /* of that tensor */
  int tile_rows;          /* 0, or 1 + its axis along the queries: KJIT_VARIANT_TILE_ROWS + 1 */
  bool by_batch, by_head; /* whether the mask may differ between batch entries, and between heads */
};

/* The variant whose score function is the identity and whose mask sees all: for sinks and block lists alone. */
extern const struct attention_variant_source attention_variant_none;

#endif
