/* A libcuda of tables: it counts, it remembers, and it fails when told to. One for the whole test program. */
#ifndef KJIT_TESTS_FAKE_DRIVER_H
#define KJIT_TESTS_FAKE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/driver.h"

enum fake_call {
#define DRIVER_FN(name, symbol, args) FAKE_##name,
#include "runtime/driver_api.def"
#undef DRIVER_FN
  FAKE_CALLS
};

#define FAKE_DEVICES    2
#define FAKE_ARGS       2048 /* the largest argument of any kernel, or all of them side by side */
#define FAKE_ATTRIBUTES 8
#define FAKE_NEVER      (-1)

struct fake_device {
  int major, minor;
  int shared_opt_in;
  atomic_int raised;         /* times that a kernel's dynamic shared memory was raised here */
  atomic_int raised_bytes;   /* to what, last */
  atomic_int large_clusters; /* times that clusters of more than 8 blocks were allowed */
};

struct fake_launch {
  CUfunction function;
  unsigned int grid[3], block[3], cluster[3]; /* cluster: zero without one */
  unsigned int shared_bytes;
  CUstream stream;
  unsigned char args[FAKE_ARGS];
  CUlaunchAttribute attributes[FAKE_ATTRIBUTES];
  unsigned int attribute_count;
};

struct fake_driver {
  /* The machine. */
  int device_count;
  int first_handle; /* of device 0; the others follow */
  struct fake_device device[FAKE_DEVICES];
  int static_shared, max_threads;          /* of every kernel */
  size_t parameter_count, parameter_bytes; /* of each */
  struct fake_kernel {
    const char *name; /* of a kernel whose parameters have another size; NULL for none */
    size_t parameter_bytes;
  } other_kernels[2];
  size_t global_bytes; /* of every variable; its memory is `global` */
  unsigned char global[64];
  CUcontext context;       /* current; NULL: the device's primary one */
  int new_threads_current; /* the device that is current on threads that have set none; -1: none, as with CUDA */
  CUstreamCaptureStatus capture;
  unsigned long long context_id, buffer_id; /* of the current context; of all memory */
  struct {
    CUmemorytype type;
    int device;
    CUdeviceptr seen_at;
  } pointer;
  unsigned int load_us; /* how long a load takes */

  /* What fails. */
  atomic_long fail_at;      /* index over all calls, FAKE_NEVER for none */
  enum fake_call fail_call; /* every call of this function; FAKE_CALLS: of none */
  CUresult failure;         /* with which answer; of both of the above */
  bool eager;               /* an image is read when it is loaded; otherwise when its kernel is asked for */
  atomic_int refuse_images; /* so many loads are refused from now on */
  CUresult refusal;

  /* What happened. */
  atomic_long calls;
  atomic_int calls_of[FAKE_CALLS];
  atomic_int synchronized; /* contexts waited for */
  char kernel_name[128];   /* last asked for */
  atomic_int live;         /* libraries, events and pieces of memory not given back */
  struct fake_launch launch;
};

extern struct fake_driver fake_driver;

/* Two devices of capability 9.0 and 8.0, nothing fails, all counts zero, device 0 current on this thread. */
void fake_driver_reset(void);

/* The context of the calling thread: a device's index, or -1 for none. A new thread has none, as with CUDA. */
void fake_driver_set_current(int device);

/* All functions. */
extern const struct driver_api fake_driver_api;

int fake_driver_calls_of(enum fake_call call);

#endif
