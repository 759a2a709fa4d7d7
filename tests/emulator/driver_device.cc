// Stand-in for libcuda: devices with their attributes, contexts, and the names of errors.
#include "driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulator {
namespace {

struct Card {
  const char *word, *name; // of $KJIT_EMULATOR_CARD
  int capability, multiprocessors;
  size_t memory_bytes;
  std::map<CUdevice_attribute, int> attributes;
};

// $KJIT_EMULATOR_CARD, or the first.
const Card &card() {
  static const Card known[] = {
      {"h200",
       "H200 (emulated)",
       90,
       132,
       static_cast<size_t>(141) << 30,
       {{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144}}},
      {"a100",
       "A100 (emulated)",
       80,
       108,
       static_cast<size_t>(80) << 30,
       {{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 166912},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 167936},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 41943040},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1410000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1593000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120}}},
  };
  const char *const word = getenv("KJIT_EMULATOR_CARD");
  for (const Card &one : known)
    if (word && !strcmp(word, one.word)) return one;
  return known[0];
}

// The same on both.
const std::map<CUdevice_attribute, int> &common_attributes() {
  static const std::map<CUdevice_attribute, int> attributes = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
  };
  return attributes;
}

// A number from the environment within [least, most], or `usual`.
int setting(const char *name, int usual, int least, int most) {
  const char *const text = getenv(name);
  const long value = text ? strtol(text, nullptr, 10) : usual;
  return value >= least && value <= most ? static_cast<int>(value) : usual;
}

int device_count() {
  return setting("KJIT_EMULATOR_DEVICES", 1, 0, 8);
}

int attribute_of(CUdevice_attribute attribute, bool *known) {
  *known = true;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) return card().capability / 10;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) return card().capability % 10;
  if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    return setting("KJIT_EMULATOR_MULTIPROCESSORS", card().multiprocessors, 1, card().multiprocessors);
  for (const auto *table : {&common_attributes(), &card().attributes}) {
    const auto found = table->find(attribute);
    if (found != table->end()) return found->second;
  }
  *known = false;
  return 0;
}

thread_local std::vector<CUcontext> context_stack;

// With the lock: everything of a context goes with it.
void end_context(Driver *driver, CUcontext context) {
  for (auto at = driver->memory.begin(); at != driver->memory.end();) {
    const Allocation allocation = (at++)->second;
    if (allocation.context == context) release_allocation(driver, allocation.address);
  }
  for (auto at = driver->streams.begin(); at != driver->streams.end();)
    at = (*at)->context == context ? (delete *at, driver->streams.erase(at)) : std::next(at);
  for (auto at = driver->events.begin(); at != driver->events.end();)
    at = (*at)->context == context ? (delete *at, driver->events.erase(at)) : std::next(at);
  driver->contexts.erase(context);
  delete context;
}

std::string last_complaint;

} // namespace

Driver &driver() {
  static Driver &one = *new Driver; // never destroyed: programs call until their last moment
  return one;
}

bool is_device(CUdevice device) {
  return device >= 0 && device < device_count();
}

int shared_limit(CUdevice) {
  bool known;
  return attribute_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &known);
}

// "sm_90a" on 9.0 alone; "sm_80" on every 8.x from 8.0 on.
bool runs_on(CUdevice, const std::string &arch) {
  const char *const digits = arch.c_str() + strcspn(arch.c_str(), "0123456789");
  const int wanted = static_cast<int>(strtol(digits, nullptr, 10)), here = card().capability;
  const bool specific = !arch.empty() && (arch.back() == 'a' || arch.back() == 'f');
  return specific ? wanted == here : wanted / 10 == here / 10 && wanted <= here;
}

CUcontext current_context(const Driver &driver) {
  if (context_stack.empty() || !driver.contexts.count(context_stack.back())) return nullptr;
  return context_stack.back();
}

CUresult require_context(const Driver &driver, CUcontext *context) {
  *context = nullptr;
  if (!driver.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (context_stack.empty() || !context_stack.back()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current_context(driver);
  return *context ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void complain(const std::string &text) {
  static std::mutex lock;
  const std::lock_guard<std::mutex> hold(lock);
  last_complaint = text;
  if (!getenv("KJIT_EMULATOR_QUIET")) fprintf(stderr, "emulator: %s\n", text.c_str());
}

} // namespace emulator

using namespace emulator;

extern "C" {

const char *kjit_emulator_complaint(void) {
  return last_complaint.c_str();
}

void kjit_emulator_clear_complaint(void) {
  last_complaint.clear();
}

CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!device_count()) return CUDA_ERROR_NO_DEVICE;
  driver().initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
  static const std::map<CUresult, const char *> names = {
#define NAME(value) {value, #value}
      NAME(CUDA_SUCCESS),
      NAME(CUDA_ERROR_INVALID_VALUE),
      NAME(CUDA_ERROR_OUT_OF_MEMORY),
      NAME(CUDA_ERROR_NOT_INITIALIZED),
      NAME(CUDA_ERROR_NO_DEVICE),
      NAME(CUDA_ERROR_INVALID_DEVICE),
      NAME(CUDA_ERROR_INVALID_IMAGE),
      NAME(CUDA_ERROR_INVALID_CONTEXT),
      NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
      NAME(CUDA_ERROR_INVALID_HANDLE),
      NAME(CUDA_ERROR_NOT_FOUND),
      NAME(CUDA_ERROR_NOT_READY),
      NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
      NAME(CUDA_ERROR_LAUNCH_FAILED),
      NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
      NAME(CUDA_ERROR_NOT_SUPPORTED),
#undef NAME
  };
  const auto found = names.find(result);
  *name = found == names.end() ? nullptr : found->second;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text) {
  static const std::map<CUresult, const char *> texts = {
      {CUDA_SUCCESS, "no error"},
      {CUDA_ERROR_NOT_SUPPORTED, "the emulator does not do this"},
      {CUDA_ERROR_LAUNCH_FAILED, "the emulator stopped the kernel; stderr has why"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "the image is not for this emulated device, or is no emulator's"},
  };
  const auto found = texts.find(result);
  *text = found == texts.end() ? "as the emulator has it" : found->second;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int capacity, CUdevice device) {
  if (!name || capacity < 1) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(capacity), "%s", card().name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  bool known;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(attribute, &known);
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = card().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned, CUdevice device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = new CUctx_st{device, ++driver().last_id, 1};
  driver().contexts.insert(*out);
  context_stack.push_back(*out);
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context_stack.empty() && context_stack.back() == context) context_stack.pop_back();
  end_context(&driver(), context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext &primary = driver().primary[device];
  if (!primary) {
    primary = new CUctx_st{device, ++driver().last_id, 0};
    driver().contexts.insert(primary);
  }
  primary->users++;
  *out = primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext &primary = driver().primary[device];
  if (!primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->users) return CUDA_SUCCESS;
  end_context(&driver(), primary);
  primary = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (context && !driver().contexts.count(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context_stack.empty()) context_stack.pop_back();
  if (context) context_stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  *context = current_context(driver());
  return driver().initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  if (result == CUDA_SUCCESS) *device = context->device;
  return result;
}

CUresult cuCtxGetId(CUcontext asked, unsigned long long *id) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context = asked;
  if (asked && !driver().contexts.count(asked)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const CUresult result = asked ? CUDA_SUCCESS : require_context(driver(), &context);
  if (result == CUDA_SUCCESS) *id = context->id;
  return result;
}

CUresult cuCtxSynchronize(void) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  return require_context(driver(), &context);
}

} // extern "C"
