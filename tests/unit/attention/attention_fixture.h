/* kjit_attention_forward() over a fake driver and compiler: a problem, and what reached the driver. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_ATTENTION_FIXTURE_H
#define KJIT_TESTS_UNIT_ATTENTION_ATTENTION_FIXTURE_H

#include "attention_sm90/params.h"
#include "unit/attention/sm90/sm90_configs.h"
#include "unit/runtime/fixture.h"

#define STREAM(number) ((CUstream)(uintptr_t)(number))

/* What the fake driver answers for every attribute that it was not told: the attribute's number. */
#define MULTIPROCESSORS 16

/* Device 0 of the fake machine is sm_90 and current, device 1 is sm_80. */
static inline void *address(uintptr_t number) {
  return (void *)(number << 20);
}

static inline kjit_attention_args grouped_args(int32_t device, int64_t heads_q, int64_t heads_kv, uint32_t flags) {
  kjit_attention_args args = kjit_attention_args_default();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, device, 2, 1000, heads_q, 192);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, device, 2, 700, heads_kv, 192);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, device, 2, 700, heads_kv, 128);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, device, 2, 1000, heads_q, 128);
  args.flags = flags;
  return args;
}

/* 8 query tiles of 128 rows, 12 pairs: more tiles than the fake card has multiprocessors. */
static inline kjit_attention_args causal_args(void) {
  return grouped_args(0, 6, 2, KJIT_ATTENTION_CAUSAL);
}

static inline CUresult any_pointer(unsigned int count, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr pointer) {
  for (unsigned int i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
      *(CUdeviceptr *)values[i] = pointer;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
      *(unsigned long long *)values[i] = fake_driver.buffer_id;
    else
      *(int *)values[i] = 1;
  }
  return CUDA_SUCCESS;
}

typedef CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);

/* A card whose memory is slow for its multiprocessors: 128 GB/s. */
static inline CUresult slow_memory(int *value, CUdevice_attribute attribute, CUdevice device) {
  if (attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) return *value = 500000, CUDA_SUCCESS;
  if (attribute == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) return *value = 1024, CUDA_SUCCESS;
  return fake_driver_api.DeviceGetAttribute(value, attribute, device);
}

/* A kernel with this name and argument, on a card with these attributes. */
static inline int setup_kernel(void **state, const char *entry, size_t parameter_bytes, device_attribute attributes) {
  static struct driver_api driver;
  driver = fake_driver_api;
  driver.PointerGetAttributes = any_pointer;
  driver.DeviceGetAttribute = attributes;
  if (fixture_setup_closed(state) != 0) return -1;
  fake_nvrtc.entry = entry;
  fake_driver.parameter_bytes = parameter_bytes;
  return fixture_open_over(*state, &driver) != KJIT_OK;
}

static inline int setup(void **state) {
  return setup_kernel(state, "attention_sm90", sizeof(struct attention_sm90_params),
                      fake_driver_api.DeviceGetAttribute);
}

#define ATTENTION_TEST(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static inline void forward(struct fixture *f, const kjit_attention_args *args, CUstream stream) {
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, NULL, args, stream, &f->error), &f->error);
}

/* How much L2 fetches at a time by a tensor map, which is as the fake driver writes it. */
static inline unsigned map_promotion(const struct attention_tensor_map *map) {
  uint64_t words[16];
  memcpy(words, map, sizeof words);
  return (unsigned)(words[13] >> 24 & 0xff);
}

static inline const struct attention_sm90_params *launched(void) {
  static struct attention_sm90_params params;
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return &params;
}

#endif
