/* A machine that runs kernels on the CPU, one fiber a CUDA thread. It lives in the stand-in for libcuda; a compiled
 * kernel reaches it through a table (device/emulator_device.h).
 *
 * How a kernel's source becomes an object that this machine runs (what the stand-in for NVRTC does, compile.cc):
 *   - the program's headers are written under their names to a folder, the program's text to a file outside of it;
 *   - an EMULATOR_KERNEL(name) line for each extern "C" __global__ function is appended to the text;
 *   - the C++ compiler gets device/emulator_prelude.h and translated.h in front of the text, and searches device/
 * before the program's headers, so that device/ptx/ comes before the kernels' own, which it includes;
 *   - with -fsanitize=kernel-address it announces what the kernel reads and writes (device/emulator_checks.h).
 * The object exports:
 *   void emulator_attach(const struct emulator_device_api *)   to be called once, with emulator_device(), after dlopen
 *   void emulator_entry_NAME(void **params)                 for each kernel: struct emulator_launch's entry
 *   const unsigned emulator_parameters_NAME[]               bytes of each parameter, ended by 0 */
#ifndef KJIT_TESTS_EMULATOR_MACHINE_H
#define KJIT_TESTS_EMULATOR_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device that the machine is: what the stand-in for libcuda reports and checks launches against. */
#define EMULATOR_SHARED_BYTES_MAX 232448 /* dynamic shared memory of a block, sm_90 */
#define EMULATOR_THREADS_MAX      1024   /* of a block                              */

struct emulator_device_api;

/* The table to give to every kernel object. */
const struct emulator_device_api *emulator_device(void);

struct emulator_launch {
  const char *name;             /* the kernel's, for messages                                                         */
  void (*entry)(void **params); /* called once by each CUDA thread                                                    */
  void **params; /* one pointer a parameter, as cuLaunchKernel takes them; must live until the end      */
  unsigned grid[3], block[3];
  unsigned min_blocks; /* that a multiprocessor has room for, by __launch_bounds__; 0: one                            */
  unsigned shared_bytes; /* dynamic shared memory                                                              */
  /* Whether all of [address, address + bytes) lies in one allocation of device memory. Called by the thread that
   * called emulator_run(). */
  int (*is_device_memory)(void *context, const void *address, size_t bytes);
  void *context;
  /* Of every choice that the hardware is free to make: order of warps, when copies arrive. The same seed gives the same
   * run. */
  uint64_t seed;
};

/* Longest text that emulator_run() writes, with its end. */
#define EMULATOR_ERROR_BYTES 4096

/* Run a grid to its end.
 * error: EMULATOR_ERROR_BYTES bytes; receives what a kernel did wrong (block, thread, address, rule), or where each
 *        warp waits in a deadlock
 * @return 0, or -1 with error set; the output is then incomplete
 * Any thread; several at a time. */
int emulator_run(const struct emulator_launch *launch, char *error);

/* What the stand-in for cuTensorMapEncodeTiled puts into a CUtensorMap's 128 bytes. */
#define EMULATOR_TENSOR_MAP_MAGIC 0x70616d54u

struct emulator_tensor_map {
  uint32_t magic;
  uint8_t rank;          /* 1 to 5                                                       */
  uint8_t element_bytes; /* 1, 2, 4 or 8                                                 */
  uint8_t swizzle;       /* CUtensorMapSwizzle: 0 none, 1, 2, 3: 32, 64, 128 bytes       */
  uint8_t interleave;    /* CUtensorMapInterleave                                        */
  uint8_t fill;          /* CUtensorMapFloatOOBfill                                      */
  uint8_t element_stride[5];
  uint16_t box[5]; /* elements, innermost first                                    */
  uint64_t address;
  uint64_t size[5];   /* elements, innermost first                                    */
  uint64_t stride[5]; /* bytes; stride[0] is element_bytes                            */
};

#ifdef __cplusplus
}
static_assert(sizeof(struct emulator_tensor_map) <= 128, "it must fit a CUtensorMap");
#endif

#endif
