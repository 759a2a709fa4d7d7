/* Get or build: request -> artifact, through memory, the disk tiers and NVRTC. One builder per key. No GPU. */
#ifndef KJIT_JIT_BUILDER_H
#define KJIT_JIT_BUILDER_H

#include <stdbool.h>

#include <kjit/build.h>
#include <kjit/doctor.h>

#include "base/log.h"
#include "base/mem.h"
#include "jit/request/request.h"

struct builder;
struct nvrtc; /* jit/toolkit/nvrtc.h */

/* Make a builder. The options are resolved and copied; `mem` and `log` must outlive the builder. It takes `nvrtc` over,
 * also on failure; NULL makes it find NVRTC itself. Tests pass nvrtc_create_fake(). */
kjit_status builder_create_with(struct builder **out, const kjit_runtime_options *options, const struct mem *mem,
                                const struct log *log, struct nvrtc *nvrtc, kjit_error *error);
void builder_destroy(struct builder *builder); /* accepts NULL and half-built ones */

/* What kjit_build() promises. Thread-safe. */
kjit_status builder_get(struct builder *builder, const struct jit_request *request, kjit_artifact **out,
                        kjit_error *error);

/* The driver refused this artifact: forget it in memory, set its entry aside and count it, so that the next
 * builder_get() compiles. Thread-safe. */
void builder_forget(struct builder *builder, const kjit_artifact *artifact);

/* What kjit_runtime_cancel() promises. Thread-safe. */
void builder_cancel(struct builder *builder);

/* Wait until no thread is inside the compiler. False: after `timeout_ms` one still is. Thread-safe. */
bool builder_wait_compiles(const struct builder *builder, uint32_t timeout_ms);

/* Whether a profiler is to be told ranges (base/nvtx.h). Thread-safe. */
bool builder_tells_ranges(const struct builder *builder);

/* The embedded kernels' sources, kept as long as the builder. */
struct source_shelf *builder_sources(struct builder *builder);

/* What kjit_runtime_record() promises; clears no error. Thread-safe. */
kjit_status builder_record(struct builder *builder, const char *path, kjit_error *error);

/* Add this builder's counters into `stats`. Thread-safe. */
void builder_add_stats(const struct builder *builder, kjit_runtime_stats *stats);

/* The NVRTC and cache parts of the report. Thread-safe. */
void builder_doctor(struct builder *builder, kjit_doctor_report *report);

/* With KJIT_CACHE_RW, write a file into the user's folder and remove it. If that cannot be done, the report that
 * builder_doctor() filled gets the reason. Thread-safe. */
void builder_try_cache(struct builder *builder, kjit_doctor_report *report);

#endif
