#include "attention/flash/flash_call.h"

#include "attention/attention_arguments.h"
#include "attention/flash/flash_arguments.h"
#include "attention/flash/flash_choose.h"
#include "attention/flash/flash_geometry.h"
#include "attention/flash/flash_request.h"
#include "attention/flash/flash_rules.h"
#include "attention/flash/flash_traits.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"

static void *create_state(kjit_runtime *runtime) {
  return flash_resident_create(runtime_mem(runtime));
}

static void destroy_state(kjit_runtime *runtime, void *state) {
  (void)runtime;
  flash_resident_destroy(state);
}

static kjit_status describe_device(kjit_runtime *runtime, int32_t ordinal, const kjit_device_info **device,
                                   kjit_error *error) {
  *device = runtime_device(runtime, ordinal, error);
  if (*device) return KJIT_OK;
  if (error->status != KJIT_OK) return (kjit_status)error->status;
  return error_set(error, KJIT_ERR_INTERNAL, "device %d has no description", (int)ordinal);
}

/* The first call with a variant on a device: the rules, then the compiler and the driver. */
static kjit_status load(kjit_runtime *runtime, const kjit_flash_variant *variant, int32_t ordinal,
                        struct flash_resident_kernel *kernel, kjit_error *error) {
  struct flash_request request;
  const kjit_device_info *device = NULL;
  kjit_status status = describe_device(runtime, ordinal, &device, error);
  if (status == KJIT_OK) status = flash_rules_check_variant(variant, error);
  if (status == KJIT_OK)
    status = flash_rules_check_variant_place(variant, device->arch, device->max_shared_per_block, error);
  if (status == KJIT_OK)
    status = flash_request_init(&request, builder_sources(runtime_builder(runtime)), variant, device->arch, 0, error);
  if (status == KJIT_OK) status = runtime_kernel_get(runtime, &request.request, &kernel->kernel, error);
  if (status != KJIT_OK) return status;
  const kjit_flash_geometry geometry = kjit_flash_variant_geometry(variant);
  kernel->B_r = (uint32_t)variant->config.B_r;
  kernel->threads = geometry.threads;
  kernel->shared_bytes = geometry.shared_bytes;
  return runtime_kernel_prepare(kernel->kernel, ordinal, kernel->shared_bytes, error);
}

static kjit_status find_or_load(struct flash_call *call, kjit_runtime *runtime, const kjit_flash_variant *variant,
                                kjit_error *error) {
  struct flash_resident_kernel kernel;
  struct flash_resident *resident = runtime_slot_get(runtime, RUNTIME_SLOT_FLASH_FORWARD, create_state, destroy_state);
  if (!resident) return error_no_memory(error);
  call->resident = flash_resident_find(resident, variant, call->device);
  if (call->resident) return KJIT_OK;
  const kjit_status status = load(runtime, variant, call->device, &kernel, error);
  if (status != KJIT_OK) return status;
  call->resident = flash_resident_add(resident, variant, call->device, &kernel);
  return call->resident ? KJIT_OK : error_no_memory(error);
}

static kjit_status choose(kjit_runtime *runtime, const kjit_attention_problem *problem, int32_t ordinal,
                          kjit_flash_config *config, kjit_error *error) {
  const kjit_device_info *device = NULL;
  const kjit_status status = describe_device(runtime, ordinal, &device, error);
  return status == KJIT_OK ? flash_choose(problem, device->max_shared_per_block, config, error) : status;
}

static kjit_status prepare(struct flash_call *call, kjit_runtime *runtime, const kjit_flash_config *config,
                           const kjit_attention_args *args, kjit_error *error) {
  kjit_attention_problem problem;
  kjit_flash_variant variant;
  kjit_status status = runtime_current_device(runtime, &call->device, error);
  if (status == KJIT_OK) status = attention_arguments_check(args, call->device, error);
  if (status != KJIT_OK) return status;
  attention_arguments_problem(args, &problem);
  if (config) {
    variant.config = *config;
    status = flash_arguments_match(&problem, config, error);
  } else {
    status = choose(runtime, &problem, call->device, &variant.config, error);
  }
  variant.traits = flash_traits_of(&problem);
  if (status == KJIT_OK) status = find_or_load(call, runtime, &variant, error);
  if (status != KJIT_OK) return status;
  flash_arguments_fill(args, &problem, &call->params);
  flash_geometry_grid(call->resident->B_r, problem.seq_q, problem.heads_q, problem.batch, call->grid);
  return KJIT_OK;
}

kjit_status flash_call_prepare(struct flash_call *call, kjit_runtime *runtime, const kjit_flash_config *config,
                               const kjit_attention_args *args, kjit_error *error) {
  kjit_attention_args known;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (args && args->struct_size == sizeof *args) return prepare(call, runtime, config, args, error);
  const kjit_status status = struct_intake(&known, sizeof known, args, sizeof known, "args", error);
  return status == KJIT_OK ? prepare(call, runtime, config, &known, error) : status;
}

kjit_status flash_call_enqueue(const struct flash_call *call, CUstream stream, kjit_error *error) {
  const uint32_t block[3] = {call->resident->threads, 1, 1};
  return runtime_kernel_enqueue(call->resident->kernel, call->grid, block, call->resident->shared_bytes, &call->params,
                                stream, error);
}
