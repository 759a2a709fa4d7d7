/* Reads what the driver says of one device into a kjit_device_info: name, architecture, and the numbers of a table of
 * attributes. Called once for each device, behind the device's gate (gpu.c), so one thread at a time. */
#include "runtime/device.h"

#include <stdio.h>
#include <string.h>

#include "runtime/card.h"

static const struct {
  CUdevice_attribute attribute;
  size_t offset; /* where the number goes: offset of a uint32_t in kjit_device_info */
} numbers[] = {
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, offsetof(kjit_device_info, multiprocessors)},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, offsetof(kjit_device_info, max_shared_per_block)},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
     offsetof(kjit_device_info, max_shared_per_multiprocessor)},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, offsetof(kjit_device_info, l2_bytes)},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, offsetof(kjit_device_info, clock_khz)},
};

static CUresult read_number(const struct driver_api *cu, const struct device *device, CUdevice_attribute attribute,
                            uint32_t *out) {
  int value = 0;
  const CUresult result = cu->DeviceGetAttribute(&value, attribute, device->handle);
  *out = value > 0 ? (uint32_t)value : 0;
  return result;
}

/* What kernels are chosen by. Memory moves two bits a clock on each of the bus's wires. */
static CUresult read_figures(const struct driver_api *cu, struct device *device) {
  uint32_t memory_khz, bus_bits;
  CUresult result = read_number(cu, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &memory_khz);
  if (result == CUDA_SUCCESS) result = read_number(cu, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &bus_bits);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t bytes_a_ms = (uint64_t)memory_khz * 2 * bus_bits / 8;
  card_fill(&device->info, device->capability, (uint32_t)(bytes_a_ms / 1000000));
  return CUDA_SUCCESS;
}

/* Read the attributes of the table, and the size of the memory. */
static CUresult read_numbers(const struct driver_api *cu, struct device *device) {
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uint32_t value;
    const CUresult result = read_number(cu, device, numbers[i].attribute, &value);
    if (result != CUDA_SUCCESS) return result;
    memcpy((char *)&device->info + numbers[i].offset, &value, sizeof value);
  }
  size_t bytes = 0;
  const CUresult result = cu->DeviceTotalMem(&bytes, device->handle);
  device->info.memory_bytes = bytes;
  if (result != CUDA_SUCCESS) return result;
  return read_figures(cu, device);
}

/* Compute capability 9.0 becomes "sm_90" and, for code that uses the architecture's own features, "sm_90a". */
static CUresult read_arch(const struct driver_api *cu, struct device *device) {
  uint32_t major, minor;
  CUresult result = read_number(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  if (result == CUDA_SUCCESS) result = read_number(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  if (result != CUDA_SUCCESS) return result;
  device->capability = 10 * major + minor;
  /* Architecture-specific code exists since 9.0 (CUDA C++ Programming Guide, "Feature Availability"). */
  const char *const suffix = major >= 9 ? "a" : "";
  snprintf(device->info.arch, sizeof device->info.arch, "sm_%u", device->capability);
  snprintf(device->info.arch_specific, sizeof device->info.arch_specific, "sm_%u%s", device->capability, suffix);
  return CUDA_SUCCESS;
}

kjit_status device_read(const struct driver *driver, struct device *device, int32_t ordinal, kjit_error *error) {
  const struct driver_api *const cu = &driver->cu;
  kjit_device_info *const info = &device->info;
  *info =
      (kjit_device_info){.struct_size = sizeof *info, .ordinal = ordinal, .driver_version = (uint32_t)driver->version};
  CUresult result = cu->DeviceGetName(info->name, (int)sizeof info->name, device->handle);
  info->name[sizeof info->name - 1] = '\0';
  if (result == CUDA_SUCCESS) result = read_arch(cu, device);
  if (result == CUDA_SUCCESS) result = read_numbers(cu, device);
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "the properties of device %d could not be read", ordinal);
}
