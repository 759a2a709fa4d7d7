/* What the fake driver's files share. */
#ifndef KJIT_TESTS_FAKE_DRIVER_INTERNAL_H
#define KJIT_TESTS_FAKE_DRIVER_INTERNAL_H

#include "fake_driver.h"

/* Count a call; the failure that it was told, or CUDA_SUCCESS. */
CUresult fake_enter(enum fake_call call);

#define ENTER(name)                                                                                                    \
  do {                                                                                                                 \
    const CUresult told = fake_enter(FAKE_##name);                                                                     \
    if (told != CUDA_SUCCESS) return told;                                                                             \
  } while (0)

struct fake_device *fake_device_of(CUdevice handle);
int fake_current(void); /* device of the calling thread's context, -1 for none */

CUresult fake_library_load_data(CUlibrary *library, const void *image, CUjit_option *jit_options, void **jit_values,
                                unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count);
CUresult fake_library_unload(CUlibrary library);
CUresult fake_library_get_kernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult fake_kernel_get_function(CUfunction *function, CUkernel kernel);
CUresult fake_kernel_get_attribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device);
CUresult fake_kernel_set_attribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device);
CUresult fake_kernel_get_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *bytes);
CUresult fake_launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                            CUstream stream, void **parameters, void **extra);
CUresult fake_launch_kernel_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra);
CUresult fake_library_get_module(CUmodule *module, CUlibrary library);
CUresult fake_library_get_global(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name);
CUresult fake_max_active_blocks(int *blocks, CUfunction function, int threads, size_t shared_bytes);
CUresult fake_max_active_clusters(int *clusters, CUfunction function, const CUlaunchConfig *config);
CUresult fake_max_potential_block_size(int *grid, int *block, CUfunction function, CUoccupancyB2DSize of_block,
                                       size_t shared_bytes, int limit);

#endif
