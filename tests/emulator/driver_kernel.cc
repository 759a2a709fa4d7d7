// Stand-in for libcuda: libraries and modules (images are loaded by dlopen), their kernels and attributes, and
// launches, which run on the machine before the call returns.
#include "driver.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine.h"

namespace emulator {
namespace {

// What a kernel may use without asking.
constexpr int kSharedWithoutOptIn = 49152;

// The loader wants a file: one without a name, in memory. It knows files by their paths, so that this one's must stay
// taken for as long as the object is open.
void open_object(const std::string &bytes, CUlib_st *library) {
  library->file = memfd_create("kjit-emulator", MFD_CLOEXEC);
  if (library->file < 0 || write(library->file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return;
  const std::string path = "/proc/self/fd/" + std::to_string(library->file);
  library->object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->object) complain(std::string("an image cannot be opened: ") + dlerror());
}

template <typename Function> Function find_function(void *object, const std::string &name) {
  return reinterpret_cast<Function>(dlsym(object, name.c_str()));
}

void destroy(CUlib_st *library) {
  if (library->object) dlclose(library->object);
  if (library->file >= 0) close(library->file);
  delete library;
}

CUresult load(const void *bytes, CUlib_st *library) {
  Image image;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!read_image(bytes, &image)) return CUDA_ERROR_INVALID_IMAGE;
  library->arch = image.arch;
  open_object(image.library, library);
  if (!library->object) return CUDA_ERROR_INVALID_IMAGE;
  const auto attach = find_function<void (*)(const struct emulator_device_api *)>(library->object, "emulator_attach");
  if (!attach) return CUDA_ERROR_INVALID_IMAGE;
  attach(emulator_device());
  for (const KernelRecord &record : image.kernels) {
    library->kernels.push_back(std::make_unique<CUkern_st>());
    library->kernels.back()->record = record;
    library->kernels.back()->arch = image.arch;
    library->kernels.back()->entry =
        find_function<void (*)(void **)>(library->object, std::string("emulator_entry_") + record.name);
    if (!library->kernels.back()->entry) return CUDA_ERROR_INVALID_IMAGE;
  }
  return CUDA_SUCCESS;
}

// With the lock, from here on.
void add(Driver *driver, CUlib_st *library) {
  driver->libraries.insert(library);
  for (const auto &kernel : library->kernels)
    driver->kernels.insert(kernel.get());
}

CUresult unload(Driver *driver, CUlib_st *library) {
  if (!driver->libraries.erase(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto &kernel : library->kernels)
    driver->kernels.erase(kernel.get());
  destroy(library);
  return CUDA_SUCCESS;
}

CUresult find_by_name(const Driver &driver, CUlib_st *library, const char *name, CUkern_st **out) {
  *out = nullptr;
  if (!driver.libraries.count(library)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto &kernel : library->kernels)
    if (!strcmp(kernel->record.name, name)) *out = kernel.get();
  return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int allowed_shared(const CUkern_st &kernel, CUdevice device) {
  const auto raised = kernel.dynamic_shared.find(device);
  return raised == kernel.dynamic_shared.end() ? kSharedWithoutOptIn : raised->second;
}

CUresult get_attribute(int *value, CUfunction_attribute attribute, const CUkern_st &kernel, CUdevice device) {
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = kernel.record.max_threads ? static_cast<int>(kernel.record.max_threads) : EMULATOR_THREADS_MAX;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
  case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    *value = 0;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = allowed_shared(kernel, device);
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult set_attribute(CUfunction_attribute attribute, int value, CUkern_st *kernel, CUdevice device) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  if (value < 0 || value > shared_limit(device)) return CUDA_ERROR_INVALID_VALUE;
  kernel->dynamic_shared[device] = value;
  return CUDA_SUCCESS;
}

struct Range {
  uint64_t begin, end;
};

// The allocations as they were at the launch, in order. Asked without the lock.
struct MemoryOfLaunch {
  std::vector<Range> ranges;
  size_t last = 0; // found
};

bool holds(const Range &range, uint64_t begin, uint64_t bytes) {
  return begin >= range.begin && begin < range.end && bytes <= range.end - begin;
}

int is_device_memory(void *context, const void *address, size_t bytes) {
  MemoryOfLaunch *const memory = static_cast<MemoryOfLaunch *>(context);
  const std::vector<Range> &ranges = memory->ranges;
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  if (ranges.empty()) return 0;
  if (holds(ranges[memory->last], begin, bytes)) return 1;
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](uint64_t at, const Range &range) { return at < range.begin; });
  if (after == ranges.begin()) return 0;
  memory->last = static_cast<size_t>(after - ranges.begin()) - 1;
  return holds(ranges[memory->last], begin, bytes);
}

bool is_grid(const CUlaunchConfig &c) {
  return c.gridDimX && c.gridDimY && c.gridDimZ && c.gridDimX <= 0x7fffffff && c.gridDimY <= 65535 &&
         c.gridDimZ <= 65535;
}

bool is_block(const CUlaunchConfig &c) {
  const bool within = c.blockDimX <= 1024 && c.blockDimY <= 1024 && c.blockDimZ <= 64;
  const unsigned threads = within ? c.blockDimX * c.blockDimY * c.blockDimZ : 0;
  return threads && threads <= EMULATOR_THREADS_MAX;
}

// Of the launch attributes those that change nothing where one grid runs at a time.
CUresult check_attributes(const CUlaunchConfig &config) {
  for (unsigned i = 0; i < config.numAttrs; i++) {
    const CUlaunchAttribute &attribute = config.attrs[i];
    const auto &cluster = attribute.value.clusterDim;
    const bool is_cluster = attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    if (is_cluster && (cluster.x != 1 || cluster.y != 1 || cluster.z != 1)) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_cluster && attribute.id != CU_LAUNCH_ATTRIBUTE_IGNORE && attribute.id != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
        attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult check_launch(const CUlaunchConfig &config, const CUkern_st *kernel, CUcontext context) {
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_grid(config) || !is_block(config)) return CUDA_ERROR_INVALID_VALUE;
  if (!runs_on(context->device, kernel->arch)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  if (kernel->record.max_threads && threads > kernel->record.max_threads) return CUDA_ERROR_INVALID_VALUE;
  if (config.sharedMemBytes > static_cast<unsigned>(allowed_shared(*kernel, context->device)))
    return CUDA_ERROR_INVALID_VALUE;
  return check_attributes(config);
}

// $KJIT_EMULATOR_SEED, or the same in every process, and another one for every launch.
uint64_t next_seed() {
  static std::atomic<uint64_t> launches;
  const char *const text = getenv("KJIT_EMULATOR_SEED");
  return (text ? strtoull(text, nullptr, 0) : 1) * 0x9e3779b97f4a7c15u + launches++;
}

CUresult run(const CUlaunchConfig &config, const CUkern_st &kernel, void **parameters, MemoryOfLaunch *memory) {
  char error[EMULATOR_ERROR_BYTES];
  struct emulator_launch launch = {};
  launch.name = kernel.record.name;
  launch.entry = kernel.entry;
  launch.min_blocks = kernel.record.min_blocks;
  launch.params = parameters;
  const unsigned grid[3] = {config.gridDimX, config.gridDimY, config.gridDimZ};
  const unsigned block[3] = {config.blockDimX, config.blockDimY, config.blockDimZ};
  std::copy(grid, grid + 3, launch.grid);
  std::copy(block, block + 3, launch.block);
  launch.shared_bytes = config.sharedMemBytes;
  launch.is_device_memory = is_device_memory;
  launch.context = memory;
  launch.seed = next_seed();
  if (emulator_run(&launch, error) == 0) return CUDA_SUCCESS;
  complain(error);
  return CUDA_ERROR_LAUNCH_FAILED;
}

CUresult launch(const CUlaunchConfig &config, CUfunction function, void **parameters, void **extra) {
  MemoryOfLaunch memory;
  const CUkern_st *kernel;
  {
    const std::lock_guard<std::mutex> hold(driver().lock);
    CUcontext context;
    CUresult result = require_context(driver(), &context);
    if (result == CUDA_SUCCESS) result = check_stream(driver(), config.hStream);
    kernel = find_kernel(driver(), function);
    if (result == CUDA_SUCCESS) result = check_launch(config, kernel, context);
    if (result != CUDA_SUCCESS) return result;
    for (const auto &entry : driver().memory)
      memory.ranges.push_back({entry.first, entry.first + entry.second.bytes});
  }
  if (extra) return CUDA_ERROR_NOT_SUPPORTED;
  if (kernel->record.parameter_count && !parameters) return CUDA_ERROR_INVALID_VALUE;
  return run(config, *kernel, parameters, &memory);
}

} // namespace

CUkern_st *find_kernel(const Driver &driver, void *handle) {
  const auto found = driver.kernels.find(static_cast<CUkern_st *>(handle));
  return found == driver.kernels.end() ? nullptr : *found;
}

} // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *, void **, unsigned, CUlibraryOption *,
                           void **, unsigned) {
  if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  CUlib_st *const library = new CUlib_st;
  const CUresult result = load(image, library);
  if (result != CUDA_SUCCESS) {
    destroy(library);
    return result;
  }
  const std::lock_guard<std::mutex> hold(driver().lock);
  add(&driver(), library);
  *out = library;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  return unload(&driver(), library);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  return find_by_name(driver(), library, name, kernel);
}

// In the current context: a device that cannot run it refuses it here.
CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  if (result != CUDA_SUCCESS) return result;
  CUkern_st *const kernel = find_kernel(driver(), handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (!runs_on(context->device, kernel->arch)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUkern_st *const kernel = find_kernel(driver(), handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return get_attribute(value, attribute, *kernel, device);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUkern_st *const kernel = find_kernel(driver(), handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(attribute, value, kernel, device);
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUkern_st *const kernel = find_kernel(driver(), handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= kernel->record.parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i < index; i++)
    *offset += kernel->record.parameter_bytes[i];
  if (bytes) *bytes = kernel->record.parameter_bytes[index];
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  CUlibrary library;
  CUcontext context;
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard<std::mutex> hold(driver().lock);
    result = require_context(driver(), &context);
  }
  if (result == CUDA_SUCCESS) result = cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) *module = reinterpret_cast<CUmodule>(library);
  return result;
}

CUresult cuModuleUnload(CUmodule module) {
  return cuLibraryUnload(reinterpret_cast<CUlibrary>(module));
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CUkernel kernel;
  const CUresult result = cuLibraryGetKernel(&kernel, reinterpret_cast<CUlibrary>(module), name);
  return result == CUDA_SUCCESS ? cuKernelGetFunction(function, kernel) : result;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  CUkern_st *const kernel = find_kernel(driver(), function);
  if (result != CUDA_SUCCESS) return result;
  return kernel ? set_attribute(attribute, value, kernel, context->device) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                        void **extra) {
  CUlaunchConfig config = {};
  config.gridDimX = grid_x;
  config.gridDimY = grid_y;
  config.gridDimZ = grid_z;
  config.blockDimX = block_x;
  config.blockDimY = block_y;
  config.blockDimZ = block_z;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  return launch(config, function, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  return config ? launch(*config, function, parameters, extra) : CUDA_ERROR_INVALID_VALUE;
}

} // extern "C"
