#include "attention/attention_choose.h"

#include <string.h>

#include "attention/flash/flash_choose.h"
#include "attention/flash/flash_rules.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/tune/tune_table.h"
#include "base/error.h"

/* Where no card is at hand, the most common one: H100 SXM, H200, GH200. */
#define USUAL_MULTIPROCESSORS 132

kjit_status attention_place_of_arch(const char *arch, struct attention_place *place, kjit_error *error) {
  const struct target_limits *limits = NULL;
  const kjit_status status = flash_rules_limits(arch, &limits, error);
  if (status != KJIT_OK) return status;
  *place = (struct attention_place){arch, USUAL_MULTIPROCESSORS, limits->shared_per_block, NULL};
  return KJIT_OK;
}

struct attention_place attention_place_of_device(const kjit_device_info *device) {
  return (struct attention_place){device->arch_specific, device->multiprocessors, device->max_shared_per_block, NULL};
}

kjit_status attention_choose(const kjit_attention_problem *problem, const struct attention_place *place,
                             struct attention_choice *out, kjit_error *error) {
  kjit_error why_not;
  out->tuned = place->tuned && tune_table_choose(place->tuned, problem, out);
  if (out->tuned) return KJIT_OK;
  error_clear(&why_not);
  if (!strcmp(place->arch, SM90_ARCH)) {
    out->family = ATTENTION_SM90;
    if (sm90_choose(problem, place->multiprocessors, &out->sm90, &why_not) == KJIT_OK) return KJIT_OK;
  }
  out->family = ATTENTION_FLASH_FORWARD;
  if (flash_choose(problem, place->shared_per_block, &out->flash, &why_not) == KJIT_OK) return KJIT_OK;
  /* The first reason: on a Hopper card that of its own family. */
  return error_set(error, KJIT_ERR_UNSUPPORTED, "no attention kernel for this problem on %s: %.400s", place->arch,
                   why_not.message);
}
