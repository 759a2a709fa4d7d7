// A stand-in for libcuda: the functions that kjit and its tests look up, over memory of the host and the machine
// (machine.h). Work on a stream is done before the call that enqueues it returns.
#ifndef KJIT_TESTS_EMULATOR_DRIVER_H
#define KJIT_TESTS_EMULATOR_DRIVER_H

// All versions of the functions under their own names: what is exported must not change with the header.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdbool.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "image.h"

// Device memory. An address is the host's, so that kernels use it as it is.
struct Allocation {
  uint64_t address;
  size_t bytes;
  uint64_t id;
  CUcontext context;
  char *mapped; // with an inaccessible page in front and behind
  size_t mapped_bytes;
};

struct CUctx_st {
  CUdevice device;
  unsigned long long id;
  unsigned users; // of a primary context
};

struct CUstream_st {
  CUcontext context;
  unsigned long long id;
};

struct CUevent_st {
  CUcontext context;
  bool recorded;
  std::chrono::steady_clock::time_point time;
};

struct CUkern_st {
  emulator::KernelRecord record;
  std::string arch;
  void (*entry)(void **);
  std::map<CUdevice, int> dynamic_shared; // what was asked for, where it was
};

// A library; a module is one too.
struct CUlib_st {
  std::string arch;
  int file = -1;          // that holds the object
  void *object = nullptr; // dlopen()'s
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};

namespace emulator {

struct Driver {
  std::mutex lock; // of everything here
  bool initialised = false;
  std::set<CUcontext> contexts;
  std::map<CUdevice, CUcontext> primary;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::set<CUlib_st *> libraries;
  std::set<CUkern_st *> kernels;
  std::map<uint64_t, Allocation> memory; // by address
  unsigned long long last_id = 0;
};

Driver &driver();

// The calling thread's; null when there is none, or no longer.
CUcontext current_context(const Driver &driver);

// CUDA_SUCCESS when the driver is started and a context is current.
CUresult require_context(const Driver &driver, CUcontext *context);

// CUDA_SUCCESS for a stream of the current context, one of the default ones among them.
CUresult check_stream(const Driver &driver, CUstream stream);

// The allocation that holds all of the range; null when none does.
const Allocation *find_allocation(const Driver &driver, uint64_t address, size_t bytes);

// Free it, with a word on stderr if its surroundings were written to. Gone from the table afterwards.
void release_allocation(Driver *driver, uint64_t address);

bool is_device(CUdevice device);

// What a block may ask for in all, and whether code for `arch` runs on the device.
int shared_limit(CUdevice device);
bool runs_on(CUdevice device, const std::string &arch);

// A CUkernel, or a CUfunction: here they are one. Null for anything else.
CUkern_st *find_kernel(const Driver &driver, void *handle);

// Tell the person and, by kjit_emulator_complaint(), the test.
void complain(const std::string &text);

} // namespace emulator

extern "C" {

// The last thing that a kernel or a caller did wrong; "" when nothing was. Until the next complaint or clearing.
const char *kjit_emulator_complaint(void);
void kjit_emulator_clear_complaint(void);
}

#endif
