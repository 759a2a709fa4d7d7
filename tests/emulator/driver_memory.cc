// Stand-in for libcuda: device memory. Each allocation lies between two inaccessible pages and is filled with a poison
// pattern, so that an access outside of it faults and a read of memory that nobody wrote is noticed.
#include "driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace emulator {
namespace {

// What cuMemAlloc promises, and with it what can lie between an allocation's end and the page behind it.
constexpr size_t kAlignment = 256;

// NaN in every floating type.
constexpr unsigned char kPoisonByte = 0xff;

// What the host gives: a test that asks for a card's worth of memory must be refused, as a full card would.
constexpr size_t kMostBytes = static_cast<size_t>(6) << 30;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t bytes_in_use(const Driver &driver) {
  size_t bytes = 0;
  for (const auto &entry : driver.memory)
    bytes += entry.second.bytes;
  return bytes;
}

// As near to the page behind it as its alignment allows.
bool map_memory(size_t bytes, Allocation *out) {
  const size_t page = page_bytes(), inner = round_up(round_up(bytes, kAlignment), page);
  out->mapped_bytes = inner + 2 * page;
  void *const mapped = mmap(nullptr, out->mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  out->mapped = static_cast<char *>(mapped);
  if (mprotect(out->mapped + page, inner, PROT_READ | PROT_WRITE)) {
    munmap(mapped, out->mapped_bytes);
    return false;
  }
  memset(out->mapped + page, kPoisonByte, inner);
  out->address = reinterpret_cast<uint64_t>(out->mapped) + page + inner - round_up(bytes, kAlignment);
  out->bytes = bytes;
  return true;
}

bool is_poison(const char *begin, const char *end) {
  return std::all_of(begin, end, [](char byte) { return static_cast<unsigned char>(byte) == kPoisonByte; });
}

// Nobody wrote between the allocation and the pages around it.
bool is_surrounded(const Allocation &allocation) {
  const char *const begin = reinterpret_cast<const char *>(allocation.address);
  const char *const end = allocation.mapped + allocation.mapped_bytes - page_bytes();
  return is_poison(allocation.mapped + page_bytes(), begin) && is_poison(begin + allocation.bytes, end);
}

// Copies and fills check their range as the driver would.
CUresult check_range(CUdeviceptr address, size_t bytes, CUstream stream) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUresult result = check_stream(driver(), stream);
  if (result != CUDA_SUCCESS) return result;
  return !bytes || find_allocation(driver(), address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename Word> CUresult fill(CUdeviceptr to, Word value, size_t count, CUstream stream) {
  const CUresult result = to % sizeof value ? CUDA_ERROR_INVALID_VALUE : check_range(to, count * sizeof value, stream);
  if (result != CUDA_SUCCESS) return result;
  Word *const words = reinterpret_cast<Word *>(to);
  std::fill(words, words + count, value);
  return CUDA_SUCCESS;
}

// False for what is not emulated.
bool answer_pointer(CUpointer_attribute attribute, const Allocation *found, const Driver &driver, void *value) {
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *static_cast<CUcontext *>(value) = found ? found->context : nullptr;
    return true;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *static_cast<unsigned *>(value) = found ? static_cast<unsigned>(CU_MEMORYTYPE_DEVICE) : 0;
    return true;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    *static_cast<unsigned long long *>(value) = found ? found->id : 0;
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *static_cast<int *>(value) = found ? found->context->device : -2;
    return true;
  default:
    (void)driver;
    return false;
  }
}

} // namespace

const Allocation *find_allocation(const Driver &driver, uint64_t address, size_t bytes) {
  auto at = driver.memory.upper_bound(address);
  if (at == driver.memory.begin()) return nullptr;
  const Allocation &allocation = (--at)->second;
  const uint64_t offset = address - allocation.address;
  return offset < allocation.bytes && bytes <= allocation.bytes - offset ? &allocation : nullptr;
}

void release_allocation(Driver *driver, uint64_t address) {
  const Allocation allocation = driver->memory.at(address);
  if (!is_surrounded(allocation)) {
    char text[128];
    snprintf(text, sizeof text, "memory beside the %zu bytes at %#llx was written to", allocation.bytes,
             static_cast<unsigned long long>(address));
    complain(text);
  }
  munmap(allocation.mapped, allocation.mapped_bytes);
  driver->memory.erase(address);
}

} // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  if (result != CUDA_SUCCESS) return result;
  *total_bytes = kMostBytes;
  *free_bytes = kMostBytes - std::min(kMostBytes, bytes_in_use(driver()));
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  Allocation allocation = {};
  const CUresult result = require_context(driver(), &allocation.context);
  if (result != CUDA_SUCCESS) return result;
  if (!memory || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kMostBytes || bytes_in_use(driver()) > kMostBytes - bytes || !map_memory(bytes, &allocation))
    return CUDA_ERROR_OUT_OF_MEMORY;
  allocation.id = ++driver().last_id;
  driver().memory[allocation.address] = allocation;
  *memory = allocation.address;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!memory) return CUDA_SUCCESS;
  if (!driver().memory.count(memory)) return CUDA_ERROR_INVALID_VALUE;
  release_allocation(&driver(), memory);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  const CUresult result = check_range(to, bytes, stream);
  if (result == CUDA_SUCCESS && bytes) memcpy(reinterpret_cast<void *>(to), from, bytes);
  return result;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const CUresult result = check_range(from, bytes, stream);
  if (result == CUDA_SUCCESS && bytes) memcpy(to, reinterpret_cast<const void *>(from), bytes);
  return result;
}

// Streams are done at once, so that these are the same.
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill(to, value, count, nullptr);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
  if (pitch < width * sizeof value || pitch % sizeof value) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t row = 0; row < height && result == CUDA_SUCCESS; row++)
    result = fill(to + row * pitch, value, width, stream);
  return result;
}

// What is on the stream is done, so both are as the ones that wait.
CUresult cuMemAllocAsync(CUdeviceptr *memory, size_t bytes, CUstream) {
  return cuMemAlloc_v2(memory, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream) {
  return cuMemFree_v2(memory);
}

// Unlike cuPointerGetAttribute() it succeeds for an address that it does not know.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const Allocation *const found = find_allocation(driver(), pointer, 1);
  const CUcontext here = current_context(driver());
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
      const bool reachable = found && here && found->context->device == here->device;
      *static_cast<CUdeviceptr *>(values[i]) = reachable ? pointer : 0;
    } else if (!answer_pointer(attributes[i], found, driver(), values[i])) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

} // extern "C"
