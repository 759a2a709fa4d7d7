/* What families see of the runtime: resident kernels by request, and launching with everything looked up. */
#ifndef KJIT_RUNTIME_RUNTIME_INTERNAL_H
#define KJIT_RUNTIME_RUNTIME_INTERNAL_H

#include <stdbool.h>

#include <kjit/kernel.h>

#include "base/log.h"
#include "base/mem.h"
#include "jit/builder.h"
#include "jit/request/request.h"

struct driver_api; /* runtime/driver.h: libcuda's functions */

/* What a test puts in the place of the real thing; NULL: the real thing. */
struct runtime_fakes {
  const struct driver_api *driver;
  struct nvrtc *nvrtc; /* taken over, also on failure */
};

/* kjit_runtime_create() over fakes; `options` and `fakes` may be NULL. */
kjit_status runtime_create_with(kjit_runtime **out, const kjit_runtime_options *options,
                                const struct runtime_fakes *fakes, kjit_error *error);

const struct mem *runtime_mem(const kjit_runtime *runtime);
const struct log *runtime_log(const kjit_runtime *runtime);
struct builder *runtime_builder(kjit_runtime *runtime);

/* May a family's choice look at what was measured? */
bool runtime_uses_tuned(const kjit_runtime *runtime);

/* Are attention calls served by a first tier while their kernel is built; and how many, 0: until it is loaded. */
bool runtime_is_tiered(const kjit_runtime *runtime);
uint32_t runtime_tier_calls(const kjit_runtime *runtime);
void runtime_count_first_tier(kjit_runtime *runtime);
void runtime_count_tier_swap(kjit_runtime *runtime);

/* What a module above the runtime keeps in one: its slot is known by the address of this struct, which is static. The
 * state is made on first use and ended by `destroy` with the runtime, the newest slot first. */
struct runtime_slot {
  void *(*create)(kjit_runtime *runtime); /* NULL: out of memory. Two threads may call it at once: one result is kept */
  void (*destroy)(kjit_runtime *runtime, void *state);
};

/* The slot's state; NULL when out of memory. Thread-safe; a few loads after the first call. */
void *runtime_slot_get(kjit_runtime *runtime, const struct runtime_slot *slot);

/* The current context's device, as CUDA's ordinal. KJIT_ERR_NO_DRIVER when there is no context. Costs some 10 ns. */
kjit_status runtime_current_device(kjit_runtime *runtime, int32_t *ordinal, kjit_error *error);

/* As runtime_current_device(), for a call that ends in a launch, which finds out whether a context is current: see
 * gpu_current_of_launch(). */
kjit_status runtime_device_of_launch(kjit_runtime *runtime, int32_t *ordinal, kjit_error *error);

/* Properties of a device, read from the driver once. NULL with the error set for an ordinal that does not exist. */
const kjit_device_info *runtime_device(kjit_runtime *runtime, int32_t ordinal, kjit_error *error);

/* As runtime_device(), for properties that have been read; NULL if they have not. Makes no system call, by which a
 * forked process would be noticed, because a launch asks the driver anyway. */
const kjit_device_info *runtime_known_device(kjit_runtime *runtime, int32_t ordinal);

/* A device's primary context on the calling thread: see runtime/primary.h. The device's properties must have been read.
 */
bool runtime_primary_is_current(const kjit_runtime *runtime, const kjit_device_info *device);
bool runtime_primary_enter(kjit_runtime *runtime, const kjit_device_info *device);
void runtime_primary_leave(kjit_runtime *runtime, const kjit_device_info *device);

/* For a thread of the library's own, once: from now on what it loads does not end a capture that the program makes on
 * another thread. The driver must be open. */
void runtime_thread_leaves_captures(kjit_runtime *runtime);

/* Build and load, with a reference for the caller: kjit_kernel_release(). */
kjit_status runtime_kernel_take(kjit_runtime *runtime, const struct jit_request *request, kjit_kernel **out,
                                kjit_error *error);

/* Build and load. The result is owned by the runtime and lives as long as it does: no reference is taken. */
kjit_status runtime_kernel_get(kjit_runtime *runtime, const struct jit_request *request, kjit_kernel **out,
                               kjit_error *error);

/* Make sure that `kernel` may use `bytes` of dynamic shared memory on the device; once per kernel and device it asks
 * the driver, after that it is one load. */
kjit_status runtime_kernel_prepare(kjit_kernel *kernel, int32_t ordinal, uint32_t bytes, kjit_error *error);

/* Enqueue a prepared kernel; nothing is checked but the driver's answer, and nothing is counted. `parameters` points to
 * the kernel's one struct argument. */
kjit_status runtime_kernel_enqueue(const kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                                   uint32_t dynamic_shared_bytes, const void *parameters, CUstream stream,
                                   kjit_error *error);

/* The same; with `is_dependent` as a programmatic dependent of the launch before it on the stream: it may start before
 * that one has ended, and its kernel waits by griddepcontrol. Only where runtime_has_dependents(). */
kjit_status runtime_kernel_enqueue_behind(const kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                                          uint32_t dynamic_shared_bytes, const void *parameters, bool is_dependent,
                                          CUstream stream, kjit_error *error);

/* Does the device have programmatic dependent launches, also in a stream under capture? */
bool runtime_has_dependents(const kjit_device_info *device);

#define RUNTIME_TENSOR_RANK_MAX 5

/* A tensor of 16 bits an element, or of 8, as TMA sees it, innermost axis first and contiguous. Without padding. */
struct runtime_tensor {
  uint64_t address;                             /* a multiple of 16                                                 */
  uint64_t size[RUNTIME_TENSOR_RANK_MAX];       /* elements, each from 1 to 2^32; 0 beyond the rank                 */
  uint64_t stride[RUNTIME_TENSOR_RANK_MAX - 1]; /* bytes between neighbours on the outer axes: multiples of 16 below
                                                 * 2^40; 0 beyond the rank                                          */
  uint32_t box[3]; /* along the second to fourth axis, at most 256, 0 being 1; a box is 1 deep                        */
  uint16_t rank;   /* 4 or 5                                                                                     */
  uint16_t box_bytes; /* width of a box, and of the pattern of its swizzle: 64, else 128                            */
  int32_t dtype;      /* KJIT_FP16, KJIT_BF16 or KJIT_FP8_E4M3                                                      */
  uint32_t promotion; /* a kjit_map_promotion: how much L2 fetches of memory at a time                              */
};

#define RUNTIME_TENSOR_MAP_BYTES     128
#define RUNTIME_TENSOR_MAP_ALIGNMENT 64

/* Encode a tensor map with the swizzle of a box's width; what lies outside reads as zero and is not written. `map` is
 * RUNTIME_TENSOR_MAP_BYTES, so aligned. Nothing is allocated, and it is not bound to a context. The driver must be
 * open. KJIT_ERR_UNSUPPORTED with `name` in the message when the driver refuses the shape. Costs some 100 ns. */
kjit_status runtime_tensor_map_encode(kjit_runtime *runtime, const struct runtime_tensor *tensor, const char *name,
                                      void *map, kjit_error *error);

/* Device memory of the current context, owned by who asked. All zero: none. */
struct runtime_memory {
  uint64_t address;
  uint64_t identity; /* of the allocation, never given out again while the process lives */
};

/* Allocate memory, whose content is undefined. Leaves alone what any thread captures into a graph. KJIT_ERR_DRIVER. */
kjit_status runtime_memory_create(kjit_runtime *runtime, size_t bytes, struct runtime_memory *out, kjit_error *error);

/* Whatever context is current. What ended with its context is left alone. Accepts none. */
void runtime_memory_destroy(kjit_runtime *runtime, struct runtime_memory *memory);

/* Enqueue zeros: `bytes` and the address are multiples of 4. False when the driver does not. */
bool runtime_memory_clear(kjit_runtime *runtime, uint64_t address, size_t bytes, CUstream stream);

/* Rows of 4-byte words in device memory, `pitch` bytes apart; a single row's pitch is not looked at. */
struct runtime_rows {
  uint64_t address, words, rows, pitch;
};

/* Enqueue one memset that sets every word. KJIT_ERR_DRIVER. */
kjit_status runtime_memory_fill(kjit_runtime *runtime, const struct runtime_rows *rows, uint32_t value, CUstream stream,
                                kjit_error *error);

/* Memory for what the stream does next, of any content; on a stream that is captured, a node of its graph. 0: the
 * driver has none. */
uint64_t runtime_memory_borrow(kjit_runtime *runtime, size_t bytes, CUstream stream);

/* Once the stream has done what was enqueued. */
void runtime_memory_give_back(kjit_runtime *runtime, uint64_t address, CUstream stream);

/* A stream, by numbers that the driver never gives out again. */
struct runtime_stream {
  uint64_t context; /* where the handle means another stream in each context; else 0 */
  uint64_t stream;
  uint64_t thread; /* of the caller, where the handle means another stream on each thread; else 0 */
};

/* False while work on it is recorded into a graph in place of being run, and where the driver does not tell. The driver
 * must be open. Costs some 10 ns. */
bool runtime_stream_identify(kjit_runtime *runtime, CUstream stream, struct runtime_stream *out);

/* The current context, by a number that is given out once. False where the driver does not tell. */
bool runtime_context_identify(kjit_runtime *runtime, uint64_t *out);

/* Is work on the stream recorded into a graph in place of being run? True too where the driver does not tell. */
bool runtime_stream_is_captured(kjit_runtime *runtime, CUstream stream);

/* Add one to kjit_runtime_stats.launches: a family's calls count, its plans do not. */
void runtime_count_launch(kjit_runtime *runtime);

/* Time what `enqueue` puts on the stream, between two events that are destroyed on every path; waits for the second. */
kjit_status runtime_time(kjit_runtime *runtime, CUstream stream, kjit_status (*enqueue)(void *user, kjit_error *error),
                         void *user, float *milliseconds, kjit_error *error);

/* Can kernels on the current device, which is `ordinal`, use this address: the device's own, managed, peer-mapped or
 * registered host memory? KJIT_ERR_INVALID_ARG with `name` in the message otherwise. Asks the driver: some 100 ns. */
kjit_status runtime_check_pointer(kjit_runtime *runtime, const void *pointer, int32_t ordinal, const char *name,
                                  kjit_error *error);

#endif
