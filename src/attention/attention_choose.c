/* The planner: what was measured for the problem's class, else the first family whose rules compute the problem.
 *
 * Threads: pure, but for what the measured table counts. */
#include "attention/attention_choose.h"

#include <string.h>

#include "base/error.h"

kjit_status attention_choose(const kjit_attention_problem *problem, const struct family_place *place,
                             const struct attention_measured *measured, bool is_variant, struct attention_choice *out,
                             kjit_error *error) {
  kjit_error why_not, unread;
  memset(out, 0, sizeof *out); /* the padding too, because choices are remembered and compared as bytes */
  if (measured->find && measured->find(measured->table, problem, out)) {
    out->decided_by = KJIT_DECIDED_BY_TABLE;
    return KJIT_OK;
  }
  error_clear(&why_not);
  out->decided_by = KJIT_DECIDED_BY_RULES;
  for (size_t i = 0; i < ATTENTION_FAMILY_COUNT; i++) {
    out->family = attention_families[i];
    if (is_variant && !out->family->tiling) continue; /* it computes no variants */
    if (out->family->arch && strcmp(out->family->arch, place->arch) != 0) continue;
    /* The first family's reason stays in `why_not`, because on a Hopper card that is the family made for it. */
    kjit_error *const reason = out->family->is_special ? &unread : &why_not;
    error_clear(&unread);
    if (out->family->choose(problem, place, out->values, reason) != KJIT_OK) continue;
    if (!is_variant && out->family->settle) out->family->settle(problem, place, out->values);
    return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_UNSUPPORTED, "no attention kernel for this problem on %s: %.400s", place->arch,
                   why_not.message);
}
