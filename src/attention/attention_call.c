/* One call of attention, of whichever family.
 *
 * 1. The arguments are checked once, for the device that is current; they describe a problem.
 * 2. Without a config: what was decided for this problem on this device before is used again, kernel included;
 *    otherwise the planner decides, by the tuned table or by the rules. A config of the caller is fitted to the
 *    problem. With the tiered build another kernel may serve the call until the chosen one is there
 *    (attention_tier.h).
 * 3. The kernel is looked up by its config; the first time it is checked, compiled and loaded.
 * 4. The family prepares its launch.
 *
 * Of a dense call without a config that comes a third time, with the same arguments, all this is recalled at once.
 *
 * A variant's calls go the same way: its text is a part of what a decision and a kernel are kept under. A kernel that
 * finds its key blocks is built beside the attention kernel (attention_variant_ahead.h).
 *
 * Threads: any number may call. Decisions are kept in base/threads/recent.h and kernels in family/config_kernel.h, both
 * without locks; a thread waits only while a kernel is built. */
#include "attention/attention_call.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/attention_tier.h"
#include "attention/attention_variant_ahead.h"
#include "attention/attention_variant_call.h"
#include "attention/tune/tune_attention.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "base/threads/recent.h"
#include "family/config.h"
#include "family/tune/tune_store.h"
#include "runtime/runtime_internal.h"

/* What a decision depends on. Everything else that it depends on (tuned tables, cards) does not change while the
 * runtime lives. */
struct key {
  kjit_attention_problem problem;
  uint64_t device;
};
/* The same for a variant: with the digest of its text and of how its blocks are found. */
struct variant_key {
  struct key key;
  struct digest variant;
};
struct decision {
  const struct attention_family *family;
  const struct config_kernel *kernel; /* lives as long as the runtime, as the decision does */
  const struct config_kernel *front;  /* likewise; NULL: nothing is launched in front of it */
  int32_t values[ATTENTION_FIELDS_MAX];
  uint64_t parts;
};
_Static_assert(sizeof(struct key) == 8 * 11, "a key has no padding");
_Static_assert(sizeof(struct variant_key) == sizeof(struct key) + DIGEST_BYTES, "nor has a variant's");
_Static_assert(sizeof(struct decision) == 3 * sizeof(void *) + 4 * ATTENTION_FIELDS_MAX + 8, "nor has a decision");
_Static_assert(sizeof(struct decision) % 8 == 0, "a decision is whole words");

/* A dense call that came before, argument for argument, is taken as it was prepared: its checks, its choice and its
 * tensor maps depend on the arguments alone. */
#define KEPT_CALL_BYTES (offsetof(struct attention_call, of) + ATTENTION_DENSE_CALL_BYTES)
_Static_assert(KEPT_CALL_BYTES % 8 == 0 && sizeof(kjit_attention_args) % 8 == 0, "calls and arguments are whole words");
_Static_assert(KEPT_CALL_BYTES <= sizeof(struct attention_call), "what is kept is a part of a call");

/* More than most models have layers, because each layer's arguments are others. 165 KiB, of which the system gives what
 * is touched. */
#define KEPT_CALLS 128

/* How many decisions are remembered, a power of two. A program comes back to few problems, but while it generates text
 * every position is a problem of its own, because the cache of keys grows. */
#define PLACES 256

static void *create_decisions(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), sizeof(struct decision));
}

static void destroy_decisions(kjit_runtime *runtime, void *decisions) {
  recent_destroy(runtime_mem(runtime), decisions);
}

static const struct runtime_slot slot = {create_decisions, destroy_decisions};

static void *create_kept_calls(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), KEPT_CALLS, sizeof(kjit_attention_args), KEPT_CALL_BYTES);
}

static const struct runtime_slot kept_slot = {create_kept_calls, destroy_decisions};

static void *create_variant_decisions(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct variant_key), sizeof(struct decision));
}

static const struct runtime_slot variant_slot = {create_variant_decisions, destroy_decisions};

kjit_status attention_call_choose(kjit_runtime *runtime, const kjit_attention_problem *problem,
                                  const kjit_device_info *device, struct attention_choice *out, kjit_error *error) {
  const struct family_place place = family_place_of_device(device);
  const struct attention_measured measured =
      tune_attention_measured(tune_store_of_device(runtime, &tune_attention, device));
  return attention_choose(problem, &place, &measured, false, out, error);
}

/* What a call asks for. */
struct asked {
  const kjit_attention_problem *problem;
  const struct attention_variant_launch *variant; /* NULL: dense attention */
  const CUstream *stream; /* of a launch that follows at once; NULL: of a plan, which may be launched for ever */
  bool is_hurried;        /* of the first tier: the kernel is written to the cache later */
};

/* Is another kernel to be launched in front of this config's? Then `values` are that one's. Blocks that a variant lists
 * may be few of all, which nobody knows beforehand. NULL: none. */
static const kjit_family *choose_front(const struct asked *asked, const struct attention_family *family,
                                       const int32_t *values, const struct family_place *place, int32_t *front_values) {
  const kjit_family *const front = attention_family_front(family, values, front_values);
  if (!front || (asked->variant && asked->variant->is_listed)) return NULL;
  return family->pays_front(asked->problem, values, place) ? front : NULL;
}

/* The kernel to be launched in front. Where it cannot be built the call does without, which is slower and as right; a
 * call whose deadline passes ends, as it does when its own kernel is not there in time. */
static kjit_status complete_front(kjit_runtime *runtime, const struct asked *asked, const struct family_place *place,
                                  const kjit_device_info *device, struct decision *decision, kjit_error *error) {
  int32_t values[ATTENTION_FIELDS_MAX];
  kjit_error why_not;
  const kjit_family *const front = choose_front(asked, decision->family, decision->values, place, values);
  decision->front = NULL;
  if (!front) return KJIT_OK;
  error_clear(&why_not);
  const kjit_status status = config_kernel_get(runtime, front, values, device, NULL, 0, &decision->front, &why_not);
  if (status != KJIT_OK) decision->front = NULL;
  if (status != KJIT_ERR_TIMEOUT) return KJIT_OK;
  *error = why_not;
  return status;
}

/* Steps 3 and 4 for a config that fits the problem: find its kernel, and what a launch takes besides. */
static kjit_status complete(kjit_runtime *runtime, const struct asked *asked, const kjit_device_info *device,
                            struct decision *decision, kjit_error *error) {
  const struct attention_family *family = decision->family;
  const kjit_attention_problem *problem = asked->problem;
  const struct config_extra *extra = asked->variant ? &asked->variant->extra : NULL;
  const uint32_t more = extra && family->variant_shared ? family->variant_shared(asked->variant, decision->values) : 0;
  struct attention_variant_ahead ahead;
  attention_variant_ahead_begin(&ahead, runtime, asked->variant, device);
  const kjit_status status =
      asked->is_hurried
          ? config_kernel_get_early(runtime, family->family, decision->values, device, &decision->kernel, error)
          : config_kernel_get(runtime, family->family, decision->values, device, extra, more, &decision->kernel, error);
  attention_variant_ahead_end(&ahead);
  if (status != KJIT_OK) return status;
  const struct family_place place = family_place_of_device(device);
  decision->parts = family->count_parts ? family->count_parts(problem, decision->values, &place) : 1;
  return complete_front(runtime, asked, &place, device, decision, error);
}

/* A variant needs a family whose kernel has its hooks. */
static kjit_status check_hooks(const struct attention_family *family, const struct asked *asked, kjit_error *error) {
  if (!asked->variant || family->tiling) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "config.family: %s computes no variants: take another family",
                   family->family->table.family);
}

/* Step 2 for a config of the caller: fit it to the problem. */
static kjit_status take_config(kjit_runtime *runtime, const kjit_config *config, const struct asked *asked,
                               const kjit_device_info *device, struct decision *decision, kjit_error *error) {
  decision->family = attention_family_of(config->family);
  if (!decision->family)
    return error_invalid(error, "config.family",
                         "must be attention_sm90, attention_decode_sm90, attention_short_sm90, attention_serving_sm90 "
                         "or flash_forward, which compute attention");
  memcpy(decision->values, config->values, sizeof decision->values);
  kjit_status status = check_hooks(decision->family, asked, error);
  if (status == KJIT_OK) status = decision->family->fit(asked->problem, decision->values, error);
  return status == KJIT_OK ? complete(runtime, asked, device, decision, error) : status;
}

/* Look the call's problem up among the decisions that are remembered, or remember one. */
static bool recall(struct recent *decisions, const struct asked *asked, const kjit_device_info *device,
                   struct decision *decision) {
  struct variant_key key = {.key = {*asked->problem, (uint64_t)device->ordinal}};
  if (asked->variant) key.variant = asked->variant->extra.digest;
  return recent_get(decisions, &key, decision);
}
static void remember(struct recent *decisions, const struct asked *asked, const kjit_device_info *device,
                     const struct decision *decision) {
  struct variant_key key = {.key = {*asked->problem, (uint64_t)device->ordinal}};
  if (asked->variant) key.variant = asked->variant->extra.digest;
  recent_put(decisions, &key, decision);
}

/* Choose for a variant: by the rules alone, because what was measured was dense attention; and as if every key were
 * seen, because another window must not be another kernel. How many splits a tile gets follows from the keys that are
 * seen. */
static kjit_status choose_for_variant(const struct asked *asked, const kjit_device_info *device,
                                      struct attention_choice *out, kjit_error *error) {
  const struct family_place place = family_place_of_device(device);
  const struct attention_measured nothing = {0};
  kjit_attention_problem all = *asked->problem;
  all.seen_keys = 0;
  const kjit_status status = attention_choose(&all, &place, &nothing, true, out, error);
  if (status == KJIT_OK && out->family->suit) out->family->suit(&all, asked->variant, out->values);
  return status;
}

static kjit_status complete_choice(kjit_runtime *runtime, const struct asked *asked,
                                   const struct attention_choice *choice, const kjit_device_info *device,
                                   struct decision *decision, kjit_error *error) {
  decision->family = choice->family;
  memcpy(decision->values, choice->values, sizeof decision->values);
  return complete(runtime, asked, device, decision, error);
}

/* Let the first tier serve this call where the chosen kernel is still being built. False: it does not, or cannot. */
static bool complete_first_tier(kjit_runtime *runtime, const struct asked *asked, const struct attention_choice *choice,
                                const kjit_device_info *device, struct decision *decision) {
  struct attention_choice first;
  kjit_error unread = {0};
  if (!runtime_is_tiered(runtime) || asked->variant || !asked->stream) return false;
  if (runtime_stream_is_captured(runtime, *asked->stream)) return false;
  if (!attention_tier_first(asked->problem, choice, device, &first)) return false;
  const struct family_place place = family_place_of_device(device);
  int32_t values[ATTENTION_FIELDS_MAX];
  const bool has_front = choose_front(asked, choice->family, choice->values, &place, values) != NULL;
  if (attention_tier_turn(runtime, choice, has_front, device) != TIER_FIRST) return false;
  struct asked hurried = *asked;
  hurried.is_hurried = true;
  const bool served = complete_choice(runtime, &hurried, &first, device, decision, &unread) == KJIT_OK;
  attention_tier_release(runtime, choice, device);
  if (served) runtime_count_first_tier(runtime);
  return served;
}

/* Step 2 without a config: the decision that is remembered, or a new one by table or rules. */
static kjit_status decide(kjit_runtime *runtime, const struct asked *asked, const kjit_device_info *device,
                          struct decision *decision, kjit_error *error) {
  struct attention_choice choice;
  struct recent *decisions = runtime_slot_get(runtime, asked->variant ? &variant_slot : &slot);
  if (!decisions) return error_no_memory(error);
  if (recall(decisions, asked, device, decision)) return KJIT_OK;
  kjit_status status = asked->variant ? choose_for_variant(asked, device, &choice, error)
                                      : attention_call_choose(runtime, asked->problem, device, &choice, error);
  if (status != KJIT_OK) return status;
  if (complete_first_tier(runtime, asked, &choice, device, decision)) return KJIT_OK;
  status = complete_choice(runtime, asked, &choice, device, decision, error);
  if (status == KJIT_OK) remember(decisions, asked, device, decision);
  return status;
}

/* The variant of a call: what its arguments say, and what the problem's choice may know of it. */
static kjit_status take_variant(struct attention_call *call, const kjit_attention_args *args,
                                kjit_attention_problem *problem, kjit_error *error) {
  problem->flags &= KJIT_ATTENTION_CAUSAL;
  problem->seen_keys = attention_variant_seen_keys(args);
  return attention_variant_of_args(&call->variant, args, call->device, error);
}

static kjit_status prepare_variant(struct attention_call *call, kjit_runtime *runtime, const struct decision *decision,
                                   const kjit_attention_args *args, const kjit_attention_problem *problem,
                                   const kjit_device_info *device, kjit_error *error) {
  struct attention_tiling tiling;
  assert(decision->family);
  decision->family->tiling(problem, &call->variant, decision->values, &tiling);
  return attention_variant_prepare(&call->variant, runtime, args, &tiling, device, error);
}

static kjit_status prepare_empty(struct attention_call *call, kjit_runtime *runtime, const kjit_attention_args *args,
                                 kjit_error *error) {
  call->family = &empty_attention;
  call->is_variant = false;
  return attention_empty_prepare(&call->of.empty, runtime, args, error);
}

/* Steps 1 to 4. `*is_again` becomes true when the same tensors came before, and the call would be prepared likewise
 * again. */
static kjit_status prepare_anew(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                                const kjit_attention_args *args, const CUstream *stream, bool *is_again,
                                kjit_error *error) {
  kjit_attention_problem problem;
  struct decision decision;
  decision.family = NULL;
  kjit_status status = attention_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  if (attention_arguments_are_empty(args)) return prepare_empty(call, runtime, args, error);
  attention_arguments_problem(args, &problem);
  call->is_variant = attention_variant_is_asked(args);
  if (call->is_variant) status = take_variant(call, args, &problem, error);
  if (status != KJIT_OK) return status;
  const struct asked asked = {&problem, call->is_variant ? &call->variant : NULL, stream, false};
  const kjit_device_info *device = runtime_known_device(runtime, call->device);
  if (!device) device = runtime_device(runtime, call->device, error);
  if (!device) return (kjit_status)error->status;
  status = config ? take_config(runtime, config, &asked, device, &decision, error)
                  : decide(runtime, &asked, device, &decision, error);
  if (status == KJIT_OK && call->is_variant)
    status = prepare_variant(call, runtime, &decision, args, &problem, device, error);
  if (status != KJIT_OK) return status;
  assert(decision.family);
  const struct attention_launch launch = {decision.kernel, decision.values, (uint32_t)decision.parts,
                                          asked.variant,   decision.front,  is_again};
  call->family = decision.family;
  return call->family->prepare(&call->of, runtime, &launch, args, &problem, device, error);
}

/* A call by arguments is recalled; otherwise it is prepared, and kept the second time that its tensors come, so that
 * tensors that come once cost no copy. With the tiered build nothing is kept, since a call may be served by a kernel
 * that is not the chosen one. The tensors' device is compared, because the arguments do not say which one was current.
 */
static kjit_status prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                           const kjit_attention_args *args, const CUstream *stream, kjit_error *error) {
  int32_t current;
  bool is_again = false;
  kjit_status status = runtime_device_of_launch(runtime, &current, error);
  if (status != KJIT_OK) return status;
  struct recent *const kept = config || runtime_is_tiered(runtime) ? NULL : runtime_slot_get(runtime, &kept_slot);
  if (kept && recent_get(kept, args, call) && call->device == current) return KJIT_OK;
  call->device = current;
  status = prepare_anew(call, runtime, config, args, stream, &is_again, error);
  if (status == KJIT_OK && kept && is_again && !call->is_variant) recent_put(kept, args, call);
  return status;
}

kjit_status attention_call_prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                                   const kjit_attention_args *args, const CUstream *stream, kjit_error *error) {
  kjit_attention_args known;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (args && args->struct_size == sizeof *args) return prepare(call, runtime, config, args, stream, error);
  const kjit_status status =
      struct_intake(&known, sizeof known, args, offsetof(kjit_attention_args, variant), "args", error);
  return status == KJIT_OK ? prepare(call, runtime, config, &known, stream, error) : status;
}

kjit_status attention_call_enqueue(const struct attention_call *call, CUstream stream, kjit_error *error) {
  struct attention_variant_blocks blocks;
  if (!call->is_variant) return call->family->enqueue(&call->of, NULL, stream, error);
  kjit_status status = attention_variant_begin(&call->variant, stream, &blocks, error);
  if (status != KJIT_OK) return status;
  status = call->family->enqueue(&call->of, &blocks, stream, error);
  if (status != KJIT_OK) attention_variant_abandon(&call->variant, stream, &blocks);
  attention_variant_end(&call->variant, stream, &blocks);
  return status;
}
