// What a kernel compiled for the host asks of the machine. Read by the machine and by the kernels: built-in types only,
// because the kernels define uint64_t and its like themselves.
#ifndef KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_DEVICE_H
#define KJIT_TESTS_EMULATOR_DEVICE_EMULATOR_DEVICE_H

#include <stdbool.h>

struct emulator_index {
  unsigned x, y, z;
};

// Where the calling fiber stands in the grid.
struct emulator_place {
  emulator_index thread, block, block_size, grid_size;
};

// One lane's part of an instruction that a warp, or the four warps of a warpgroup, execute together.
struct emulator_matrix_access { // ldmatrix, stmatrix
  unsigned address;
  unsigned *r[4];
  int count;
  bool transposed;
};
struct emulator_mma { // mma.sync m16n8k16
  float *c[4];
  unsigned a[4], b[2];
  bool bf16;
};
struct emulator_shuffle {
  unsigned mask, value, result;
  int from; // lane to read
};
struct emulator_vote {
  unsigned mask, votes;
  bool predicate;
};
struct emulator_wgmma { // wgmma.mma_async m64nNk16
  float *d;             // N / 8 groups of 4
  const unsigned *a;    // 4 registers, or null: a_descriptor
  unsigned long long a_descriptor, b_descriptor;
  int columns;
  bool bf16, accumulate, a_transposed, b_transposed;
};

// What an atomic access orders. Additions to data, whose order does not matter, are told from words by which threads
// let each other know.
enum emulator_order { EMULATOR_RELAXED, EMULATOR_ACQUIRES, EMULATOR_RELEASES, EMULATOR_BOTH, EMULATOR_ADDS };

struct emulator_device_api {
  const emulator_place *(*place)();
  void (*trap)();
  void (*sleep)();

  char *(*dynamic_shared)();
  unsigned (*shared_address)(const void *pointer);
  void (*load_shared)(void *value, unsigned address, unsigned bytes);
  void (*store_shared)(unsigned address, const void *value, unsigned bytes);
  void (*load_global)(void *value, const void *address, unsigned bytes);
  void (*store_global)(void *address, const void *value, unsigned bytes);
  // Of an atomic access: what it reads, and then what it writes.
  void (*load_atomic)(void *value, const void *address, unsigned bytes, emulator_order order);
  void (*store_atomic)(void *address, const void *value, unsigned bytes, emulator_order order);
  void (*fence)(); // of global memory

  // A kernel's own reads and writes through pointers, where the compiler was asked to announce them.
  void (*announce)(const void *address, unsigned bytes, bool write);

  void (*sync_warp)(unsigned mask);
  void (*shuffle)(emulator_shuffle *);
  void (*vote)(emulator_vote *);
  void (*load_matrix)(emulator_matrix_access *);
  void (*store_matrix)(emulator_matrix_access *);
  void (*mma)(emulator_mma *);

  // threads 0: all of the block.
  void (*barrier_sync)(int barrier, int threads);
  void (*barrier_arrive)(int barrier, int threads);

  // bytes: how many of the 16 are read; the others become zeros.
  void (*async_copy)(unsigned shared, const void *global, unsigned bytes);
  void (*async_copy_commit)();
  void (*async_copy_wait)(int pending);
  void (*async_copy_arrive)(unsigned barrier); // when the thread's copies are done

  void (*mbarrier_init)(unsigned barrier, int arrivals);
  void (*mbarrier_init_fence)();
  void (*mbarrier_arrive)(unsigned barrier, int bytes);
  void (*mbarrier_wait)(unsigned barrier, int parity);

  void (*tensor_load)(unsigned shared, const void *map, unsigned barrier, const int *coordinates, int rank);
  void (*tensor_store)(const void *map, unsigned shared, const int *coordinates, int rank);
  void (*bulk_load)(unsigned shared, const void *global, unsigned barrier, unsigned bytes);
  void (*bulk_store)(void *global, unsigned shared, unsigned bytes, bool adds); // fp32 values; in a group
  void (*tensor_store_commit)();
  void (*tensor_store_wait)(int pending, bool read_only);
  void (*shared_proxy_fence)(void), (*global_proxy_fence)(void);

  void (*set_registers)(int registers, bool increase);
  void (*wgmma_fence)();
  void (*wgmma)(emulator_wgmma *);
  void (*wgmma_commit)();
  void (*wgmma_wait)(int pending);
};

#endif
