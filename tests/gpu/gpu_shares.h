/* Work of a GPU test in several processes at once, because most of its time is compiling, which takes one core each. */
#ifndef KJIT_TESTS_GPU_SHARES_H
#define KJIT_TESTS_GPU_SHARES_H

#include "gpu_fixture.h"

/* Does item `index`; whether it is right. It must not assert, since it runs in a process that is not cmocka's. */
typedef bool gpu_work(struct gpu_fixture *fixture, size_t index);

/* Do the items 0 to `count` - 1, each in one of as many processes as there are cores, at most 16, or KJIT_TEST_JOBS=N.
 * Each process has a fixture of its own; the calling one must not have used the GPU, because its state does not
 * survive a fork. Returns how many items failed, a process that died counting as one. Skips the test without a GPU. */
size_t gpu_share(size_t count, gpu_work *work);

#endif
