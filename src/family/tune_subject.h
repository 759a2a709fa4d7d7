/* What tuned tables are about: how problems are told apart, and which families' configs may be chosen for them.
 * Attention is one subject with several families; each user's family is a subject of its own. */
#ifndef KJIT_FAMILY_TUNE_SUBJECT_H
#define KJIT_FAMILY_TUNE_SUBJECT_H

#include <stdbool.h>

#include "base/digest.h"
#include "family/family.h"
#include "jit/builder.h"

/* Most members of a class: 16 classes of a user's family, and as many fields that its caller decides. */
#define TUNE_CLASS_MAX 32

/* Most families of a subject. */
#define TUNE_FAMILIES_MAX 5

struct tune_subject {
  const struct field_table *class; /* the members of a class: int32 each, without padding, at most TUNE_CLASS_MAX */
  const kjit_family *const *families;
  size_t family_count;
  const char *prefix; /* of its tables' file names: "" or "gemm-" */

  /* True when the tables of architectures without a card are read from the cache folders too. Otherwise such an
   * architecture has what ships alone. */
  bool has_arch_tables;

  /* Check that problems can be of this class: values in range, buckets by their names. KJIT_ERR_INVALID_CONFIG. */
  kjit_status (*check)(const struct tune_subject *subject, const int32_t *class, kjit_error *error);

  /* True when the class decides on this field of a family; `*value` is its value then. */
  bool (*gives)(const struct tune_subject *subject, const int32_t *class, const kjit_field_info *field, int32_t *value);

  /* The digest of what the kernels of family `index` are compiled from. */
  kjit_status (*digest)(const struct tune_subject *subject, size_t index, struct builder *builder, struct digest *out,
                        kjit_error *error);
};

#endif
