/* One backward call, of whichever families.
 *
 * 1. The arguments are checked once, for the device that is current; they describe a problem and say which gradients
 *    are wanted.
 * 2. Without configs: what was decided for this problem on this device before is used again, kernels included;
 *    otherwise the planner decides by rules: families are asked in turn for what is not computed yet. Configs of the
 *    caller are checked against the problem and against each other.
 * 3. The kernels are looked up by their configs; the first time they are checked, compiled and loaded.
 * 4. The families prepare their launches, which run one after the other on the caller's stream.
 *
 * Threads: any number may call. Decisions are kept in base/threads/recent.h and kernels in family/config_kernel.h, both
 * without locks; a thread waits only while a kernel is built. */
#include "attention/backward/backward_call.h"

#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/attention_variant_call.h"
#include "attention/backward/backward_arguments.h"
#include "attention/backward/backward_gradients.h"
#include "attention/stream_workspace.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "base/threads/recent.h"
#include "family/config.h"
#include "runtime/runtime_internal.h"

/* ---- What was decided before ---- */

/* What a decision depends on. Everything else that it depends on (the cards) does not change while the runtime lives.
 * Of a variant it is the digest of its text; zeros: there is none. */
struct key {
  kjit_attention_problem problem;
  uint64_t device;
  uint64_t gradients;
  struct digest variant;
};
struct decision {
  struct backward_choice choice;
  const struct config_kernel *kernels[KJIT_ATTENTION_BACKWARD_KERNELS_MAX]; /* live as long as the runtime */
};
_Static_assert(sizeof(struct key) == 8 * 12 + DIGEST_BYTES, "a key has no padding");
_Static_assert(sizeof(struct decision) % 8 == 0, "a decision is whole words");

/* How many decisions are remembered, a power of two: a program that trains comes back to few problems. */
#define PLACES 64

static void *create_decisions(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), sizeof(struct decision));
}

static void destroy_decisions(kjit_runtime *runtime, void *decisions) {
  recent_destroy(runtime_mem(runtime), decisions);
}

static const struct runtime_slot slot = {create_decisions, destroy_decisions};

/* ---- Memory that the launches of a call share ---- */

static void *create_workspace(kjit_runtime *runtime) {
  return stream_workspace_create(runtime);
}

static void destroy_workspace(kjit_runtime *runtime, void *workspace) {
  (void)runtime; /* it knows its own */
  stream_workspace_destroy(workspace);
}

static const struct runtime_slot workspace_slot = {create_workspace, destroy_workspace};

/* ---- Choosing ---- */

/* The first family that computes some of `wanted`. The first family's reason stays in `why_not`, because on a Hopper
 * card that is the family made for it. */
static kjit_status choose_next(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                               struct backward_choice *out, kjit_error *error) {
  kjit_error why_not;
  error_clear(&why_not);
  for (size_t i = 0; i < BACKWARD_FAMILY_COUNT; i++) {
    const struct backward_family *family = backward_families[i];
    if (family->arch && strcmp(family->arch, place->arch) != 0) continue;
    if (wanted->is_variant && !family->add_variant) continue;
    int32_t *values = out->kernels[out->count].values;
    if (family->choose(wanted, left, place, values, &why_not) != KJIT_OK) continue;
    out->kernels[out->count++].family = family;
    return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_UNSUPPORTED, "no kernel for attention backward for this problem on %s: %.400s",
                   place->arch, why_not.message);
}

kjit_status backward_choose(const struct backward_wanted *wanted, const struct family_place *place,
                            struct backward_choice *out, kjit_error *error) {
  uint32_t left = wanted->gradients;
  memset(out, 0, sizeof *out); /* the padding too, because choices are remembered as bytes */
  for (size_t i = 0; i < BACKWARD_FAMILY_COUNT; i++) {
    const struct backward_family *family = backward_families[i];
    if (!family->choose_all || wanted->is_variant || (family->arch && strcmp(family->arch, place->arch) != 0)) continue;
    if (!family->choose_all(wanted->problem, left & ~KJIT_GRADIENT_TENSORS, place, out)) continue;
    left &= KJIT_GRADIENT_TENSORS;
    break;
  }
  if ((left & KJIT_GRADIENT_K) && !(left & KJIT_GRADIENT_Q)) left |= BACKWARD_DELTA;
  while (left) {
    const kjit_status status = choose_next(wanted, left, place, out, error);
    if (status != KJIT_OK) return status;
    left &= ~out->kernels[out->count - 1].family->computes(out->kernels[out->count - 1].values);
  }
  return KJIT_OK;
}

/* ---- Configs of the caller ---- */

#define GRADIENTS (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V | KJIT_GRADIENT_TENSORS)

/* What a call for `gradients` may compute: these, and what leads to them. */
static uint32_t useful_for(uint32_t gradients) {
  return gradients | (gradients & ~KJIT_GRADIENT_V ? BACKWARD_DELTA : 0) |
         (gradients & KJIT_GRADIENT_Q ? BACKWARD_ZEROS | BACKWARD_SUMS : 0);
}

/* Check that a config finds what it needs computed before it, and computes what is wanted and was not. */
static kjit_status check_turn(uint32_t computes, uint32_t needs, uint32_t useful, uint32_t done, size_t index,
                              kjit_error *error) {
  if (needs & ~done & (BACKWARD_ZEROS | BACKWARD_SUMS))
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "configs[%zu]: sums dq, whose passes must come in the order 8, 7, 16 of attention_backward_sm90",
                     index);
  if (needs & ~done)
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "configs[%zu]: computes dk, which must come behind dq or delta (pass 1 or 8)", index);
  if (computes & ~useful || computes & done & GRADIENTS)
    return error_set(error, KJIT_ERR_INVALID_CONFIG,
                     "configs[%zu]: computes a gradient that is not wanted or was computed before it", index);
  return KJIT_OK;
}

static kjit_status take_config(const kjit_config *config, size_t index, const struct backward_wanted *wanted,
                               uint32_t useful, struct backward_choice *out, uint32_t *done, kjit_error *error) {
  const struct backward_family *family = backward_family_of(config->family);
  if (!family)
    return error_set(error, KJIT_ERR_INVALID_ARG, "configs[%zu].family: must be one that computes attention backward",
                     index);
  if (wanted->is_variant && !family->add_variant)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "configs[%zu].family: %s computes no gradients of variants", index,
                     family->family->table.family);
  kjit_status status = family->fit(wanted, config->values, error);
  if (status != KJIT_OK) return status;
  out->kernels[index].family = family;
  memcpy(out->kernels[index].values, config->values, sizeof out->kernels[index].values);
  const uint32_t computes = family->computes(config->values);
  status = check_turn(computes, family->needs(config->values), useful, *done, index, error);
  *done |= computes;
  return status;
}

static kjit_status take_configs(const kjit_config *configs, size_t count, const struct backward_wanted *wanted,
                                struct backward_choice *out, kjit_error *error) {
  const uint32_t gradients = wanted->gradients, useful = useful_for(gradients);
  uint32_t done = 0;
  kjit_status status = KJIT_OK;
  memset(out, 0, sizeof *out);
  if (count < 1 || count > KJIT_ATTENTION_BACKWARD_KERNELS_MAX)
    return error_invalid(error, "count", "must be from 1 to KJIT_ATTENTION_BACKWARD_KERNELS_MAX");
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = take_config(&configs[i], i, wanted, useful, out, &done, error);
  out->count = (uint32_t)count;
  const uint32_t left = gradients & ~done;
  if (status != KJIT_OK || !left) return status;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "configs: none computes %s",
                   left & KJIT_GRADIENT_Q   ? "dq"
                   : left & KJIT_GRADIENT_K ? "dk"
                   : left & KJIT_GRADIENT_V ? "dv"
                                            : "the gradients of tensors");
}

/* ---- Preparing ---- */

/* What a call asks for; `variant` is NULL for dense attention. */
struct asked {
  struct backward_wanted wanted;
  const struct attention_variant_launch *variant;
  struct kjit_variant_tensor_argument gradients[KJIT_VARIANT_TENSORS_MAX]; /* with KJIT_GRADIENT_TENSORS */
};

static kjit_status find_kernels(kjit_runtime *runtime, const struct asked *asked, const kjit_device_info *device,
                                struct decision *decision, kjit_error *error) {
  const struct config_extra *extra = asked->variant ? &asked->variant->extra : NULL;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < decision->choice.count && status == KJIT_OK; i++)
    status = config_kernel_get(runtime, decision->choice.kernels[i].family->family, decision->choice.kernels[i].values,
                               device, extra, 0, &decision->kernels[i], error);
  return status;
}

static kjit_status decide(kjit_runtime *runtime, const struct asked *asked, const kjit_device_info *device,
                          struct decision *decision, kjit_error *error) {
  struct recent *decisions = runtime_slot_get(runtime, &slot);
  if (!decisions) return error_no_memory(error);
  struct key key = {
      .problem = *asked->wanted.problem, .device = (uint64_t)device->ordinal, .gradients = asked->wanted.gradients};
  if (asked->variant) key.variant = asked->variant->extra.digest;
  if (recent_get(decisions, &key, decision)) return KJIT_OK;
  const struct family_place place = family_place_of_device(device);
  kjit_status status = backward_choose(&asked->wanted, &place, &decision->choice, error);
  if (status == KJIT_OK) status = find_kernels(runtime, asked, device, decision, error);
  if (status == KJIT_OK) recent_put(decisions, &key, decision);
  return status;
}

static kjit_status prepare_launches(struct backward_call *call, kjit_runtime *runtime, const struct asked *asked,
                                    const struct decision *decision, const kjit_attention_backward_args *args,
                                    const kjit_device_info *device, kjit_error *error) {
  kjit_status status = KJIT_OK;
  call->count = decision->choice.count;
  call->workspace = runtime_slot_get(runtime, &workspace_slot);
  if (!call->workspace) return error_no_memory(error);
  for (size_t i = 0; i < call->count && status == KJIT_OK; i++) {
    const struct backward_family *family = decision->choice.kernels[i].family;
    call->launches[i] = (struct backward_launch){.kernel = decision->kernels[i]};
    status = family->prepare(&call->launches[i], runtime, decision->choice.kernels[i].values, args,
                             asked->wanted.problem, device, error);
    if (status == KJIT_OK && asked->variant) family->add_variant(&call->launches[i], asked->variant);
    if (status == KJIT_OK && asked->wanted.gradients & KJIT_GRADIENT_TENSORS && family->add_gradients)
      family->add_gradients(&call->launches[i], asked->gradients);
  }
  return status;
}

/* Take the variant of checked arguments. The kernels find no blocks and know no sinks: the log-sum-exp has the sinks in
 * it. */
static kjit_status take_variant(struct attention_variant_launch *launch, const kjit_attention_backward_args *args,
                                int32_t device, struct asked *asked, kjit_error *error) {
  const kjit_attention_args forward = backward_arguments_forward(args);
  const bool is_asked = attention_variant_is_asked(&forward);
  kjit_status status = is_asked ? attention_variant_of_args(launch, &forward, device, error) : KJIT_OK;
  if (status == KJIT_OK && asked->wanted.gradients & KJIT_GRADIENT_TENSORS)
    status = backward_gradients_take(args, device, asked->gradients, error);
  if (status != KJIT_OK || !is_asked) return status;
  attention_variant_leave_blocks(launch);
  asked->variant = launch;
  asked->wanted.is_variant = true;
  asked->wanted.has_score = launch->source.has_score;
  return KJIT_OK;
}

static kjit_status prepare(struct backward_call *call, kjit_runtime *runtime, const kjit_config *configs, size_t count,
                           const kjit_attention_backward_args *args, kjit_error *error) {
  kjit_attention_problem problem;
  struct attention_variant_launch variant;
  struct decision decision;
  memset(&decision, 0, sizeof decision);
  kjit_status status = runtime_current_device(runtime, &call->device, error);
  if (status == KJIT_OK) status = backward_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  backward_arguments_problem(args, &problem);
  problem.flags |= args->flags & KJIT_ATTENTION_DETERMINISTIC; /* a decision may depend on it */
  struct asked asked = {.wanted = {.problem = &problem, .gradients = backward_arguments_gradients(args)}};
  status = take_variant(&variant, args, call->device, &asked, error);
  if (status != KJIT_OK) return status;
  const kjit_device_info *device = runtime_known_device(runtime, call->device);
  if (!device) device = runtime_device(runtime, call->device, error);
  if (!device) return (kjit_status)error->status;
  if (!configs) {
    status = decide(runtime, &asked, device, &decision, error);
  } else {
    status = take_configs(configs, count, &asked.wanted, &decision.choice, error);
    if (status == KJIT_OK) status = find_kernels(runtime, &asked, device, &decision, error);
  }
  return status == KJIT_OK ? prepare_launches(call, runtime, &asked, &decision, args, device, error) : status;
}

kjit_status backward_call_prepare(struct backward_call *call, kjit_runtime *runtime, const kjit_config *configs,
                                  size_t count, const kjit_attention_backward_args *args, kjit_error *error) {
  kjit_attention_backward_args known;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  const kjit_status status = struct_intake(&known, sizeof known, args, sizeof known, "args", error);
  return status == KJIT_OK ? prepare(call, runtime, configs, count, &known, error) : status;
}

/* The most memory that a launch of the call shares with others: (0, 0) when none does. */
static void find_shared(const struct backward_call *call, size_t *sum_bytes, size_t *counters) {
  *sum_bytes = *counters = 0;
  for (size_t i = 0; i < call->count; i++) {
    if (call->launches[i].sum_bytes > *sum_bytes) *sum_bytes = call->launches[i].sum_bytes;
    const size_t words = call->launches[i].turns + call->launches[i].counters;
    if (words > *counters) *counters = words;
  }
}

static kjit_status enqueue_launch(const struct backward_launch *launch, bool is_first, CUstream stream,
                                  kjit_error *error) {
  const kjit_geometry *geometry = &launch->kernel->geometry;
  const bool is_dependent = launch->is_dependent && !is_first;
  return runtime_kernel_enqueue_behind(launch->kernel->kernel, launch->grid, geometry->threads, geometry->shared_bytes,
                                       &launch->params, is_dependent, stream, error);
}

/* The same for a launch that is to work in `space`. */
static kjit_status enqueue_placed(const struct backward_launch *launch, bool is_first, const struct stream_space *space,
                                  CUstream stream, kjit_error *error) {
  if (!launch->place) return enqueue_launch(launch, is_first, stream, error);
  struct backward_launch placed = *launch;
  placed.place(&placed, space->partials, space->arrivals);
  return enqueue_launch(&placed, is_first, stream, error);
}

kjit_status backward_call_enqueue(const struct backward_call *call, CUstream stream, kjit_error *error) {
  kjit_status status = KJIT_OK;
  struct stream_space space = {0};
  size_t sum_bytes, counters;
  find_shared(call, &sum_bytes, &counters);
  if (sum_bytes && !stream_workspace_hold(call->workspace, sum_bytes, counters, true, stream, &space))
    return error_set(error, KJIT_ERR_DRIVER, "attention backward: the device has no %zu bytes for the sums of dq",
                     sum_bytes);
  for (size_t i = 0; i < call->count && status == KJIT_OK; i++)
    status = enqueue_placed(&call->launches[i], i == 0, &space, stream, error);
  if (sum_bytes) stream_workspace_put(call->workspace, &space, stream);
  return status;
}
