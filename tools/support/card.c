/* A GPU for tests, benchmarks and the command: device, primary context, one stream, buffers, graphs.
 *
 * The driver is used through a table of its own and not through the library, so that a fault of the library cannot
 * hide itself from its tests. Each function returns a kjit_status and fills a kjit_error; the first error wins. A
 * card belongs to the thread that opened it; another thread calls card_make_current() first. */
#include "support/card.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/card_library.h"

kjit_status card_fail(kjit_error *error, kjit_status status, const char *format, ...) {
  if (!error || error->status != KJIT_OK) return status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  error->status = (int32_t)status;
  return status;
}

kjit_status card_result(const struct card *card, CUresult result, const char *what, kjit_error *error) {
  if (result == CUDA_SUCCESS) return KJIT_OK;
  const char *name = NULL;
  if (card->api.error_name(result, &name) != CUDA_SUCCESS || !name) name = "an unknown error";
  const bool is_first = error && error->status == KJIT_OK;
  card_fail(error, KJIT_ERR_DRIVER, "%s: %s (%d)", what, name, (int)result);
  if (is_first) {
    error->cause_domain = KJIT_CAUSE_CUDA;
    error->cause = (int64_t)result;
  }
  return KJIT_ERR_DRIVER;
}

static kjit_status start_driver(struct card *card, kjit_error *error) {
  kjit_status status = card_library_open(card, error);
  if (status != KJIT_OK) return status;
  const CUresult result = card->api.init(0);
  if (result != CUDA_SUCCESS)
    return card_fail(error, KJIT_ERR_NO_DRIVER, "the CUDA driver does not start: cuInit gave %d", (int)result);
  if (card->api.device_count(&card->device_count) != CUDA_SUCCESS || card->device_count == 0)
    return card_fail(error, KJIT_ERR_NO_DRIVER, "the CUDA driver shows no GPU");
  return KJIT_OK;
}

static int device_attribute(const struct card *card, CUdevice_attribute attribute) {
  int value = 0;
  return card->api.device_attribute(&value, attribute, card->device) == CUDA_SUCCESS ? value : 0;
}

static kjit_status describe_device(struct card *card, kjit_error *error) {
  kjit_status status =
      card_result(card, card->api.device_get(&card->device, card->ordinal), "opening the device (cuDeviceGet)", error);
  if (status != KJIT_OK) return status;
  status = card_result(card, card->api.device_name(card->name, (int)sizeof card->name, card->device), "cuDeviceGetName",
                       error);
  if (status != KJIT_OK) return status;
  card->multiprocessors = device_attribute(card, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  card->l2_bytes = (size_t)device_attribute(card, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  snprintf(card->arch, sizeof card->arch, "sm_%d%d",
           device_attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
           device_attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return KJIT_OK;
}

static kjit_status enter_context(struct card *card, kjit_error *error) {
  kjit_status status = card_result(card, card->api.primary_retain(&card->context, card->device),
                                   "taking the primary context (cuDevicePrimaryCtxRetain)", error);
  if (status != KJIT_OK) return status;
  status = card_make_current(card, error);
  if (status != KJIT_OK) return status;
  return card_result(card, card->api.stream_create(&card->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", error);
}

kjit_status card_open(struct card *card, int ordinal, kjit_error *error) {
  if (error) *error = (kjit_error){0};
  *card = (struct card){.ordinal = ordinal};
  kjit_status status = start_driver(card, error);
  if (status == KJIT_OK) status = describe_device(card, error);
  if (status == KJIT_OK) status = enter_context(card, error);
  if (status != KJIT_OK) card_close(card);
  return status;
}

void card_close(struct card *card) {
  if (card->stream) card->api.stream_destroy(card->stream);
  if (card->context) {
    card->api.context_set(NULL);
    card->api.primary_release(card->device);
  }
  /* The driver stays mapped: it does not survive being closed and opened again. */
  *card = (struct card){0};
}

bool card_present(kjit_error *error) {
  struct card card = {0};
  if (error) *error = (kjit_error){0};
  return start_driver(&card, error) == KJIT_OK;
}

kjit_status card_make_current(const struct card *card, kjit_error *error) {
  return card_result(card, card->api.context_set(card->context), "cuCtxSetCurrent", error);
}

kjit_status card_buffer_create(const struct card *card, struct card_buffer *out, size_t bytes, kjit_error *error) {
  *out = (struct card_buffer){0};
  char what[64];
  snprintf(what, sizeof what, "allocating %zu bytes on the GPU", bytes);
  const kjit_status status = card_result(card, card->api.memory_alloc(&out->address, bytes), what, error);
  if (status == KJIT_OK) out->bytes = bytes;
  return status;
}

void card_buffer_destroy(const struct card *card, struct card_buffer *buffer) {
  if (buffer->address) card->api.memory_free(buffer->address);
  *buffer = (struct card_buffer){0};
}

kjit_status card_poison(const struct card *card, struct card_buffer buffer, CUstream stream, kjit_error *error) {
  return card_result(card, card->api.set16(buffer.address, CARD_POISON, buffer.bytes / 2, stream), "cuMemsetD16Async",
                     error);
}

kjit_status card_synchronize(const struct card *card, CUstream stream, kjit_error *error) {
  return card_result(card, card->api.stream_synchronize(stream), "cuStreamSynchronize", error);
}

kjit_status card_read(const struct card *card, void *to, CUdeviceptr from, size_t bytes, kjit_error *error) {
  const kjit_status status =
      card_result(card, card->api.copy_out(to, from, bytes, card->stream), "cuMemcpyDtoHAsync", error);
  return status == KJIT_OK ? card_synchronize(card, card->stream, error) : status;
}

kjit_status card_write(const struct card *card, CUdeviceptr to, const void *from, size_t bytes, kjit_error *error) {
  const kjit_status status =
      card_result(card, card->api.copy_in(to, from, bytes, card->stream), "cuMemcpyHtoDAsync", error);
  return status == KJIT_OK ? card_synchronize(card, card->stream, error) : status;
}

kjit_status card_capture(const struct card *card, CUstream stream, card_work work, void *user, CUgraphExec *out,
                         kjit_error *error) {
  *out = NULL;
  CUgraph graph = NULL;
  kjit_status status = card_result(card, card->api.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                                   "cuStreamBeginCapture", error);
  if (status != KJIT_OK) return status;
  status = work(user, stream, error);
  /* Ended also after a failure, or the stream stays in capture. */
  const kjit_status ended =
      card_result(card, card->api.stream_end_capture(stream, &graph), "cuStreamEndCapture", error);
  if (status == KJIT_OK) status = ended;
  if (status == KJIT_OK)
    status = card_result(card, card->api.graph_instantiate(out, graph, 0), "cuGraphInstantiate", error);
  if (graph) card->api.graph_destroy(graph);
  return status;
}
