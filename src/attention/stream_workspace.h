/* Where split launches leave partial results and count arrivals: device memory.
 *
 * Two launches with one piece of memory at the same time would mix up their results, so every stream has a piece of its
 * own, as with tickets (sm90_tickets.h says why that is safe): arrivals are zeroed once, by the stream, and each launch
 * leaves zeros. A launch that needs more gets a larger piece; the old one is kept until the runtime ends, as launches
 * may be waiting that use it. Sizes are powers of two, so that a stream holds at most twice its largest piece.
 *
 * At most 1 GiB a runtime. Beyond, on a stream that is captured (its graph may later run at any time, on any stream)
 * and where the driver does not tell streams apart, memory is allocated on the stream before the launch and freed after
 * it: nodes of the graph, in a capture. CUDA lets a graph with such nodes be instantiated once at a time, and not be a
 * part of another graph. Where the driver has no such memory either, the launch does without: nothing is split. */
#ifndef KJIT_ATTENTION_STREAM_WORKSPACE_H
#define KJIT_ATTENTION_STREAM_WORKSPACE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <kjit/kernel.h>

struct stream_workspace;

/* NULL when out of memory. */
struct stream_workspace *stream_workspace_create(kjit_runtime *runtime);

/* Frees the memory; nothing may be running that uses it. Accepts NULL. */
void stream_workspace_destroy(struct stream_workspace *workspace);

/* The device memory that one split launch works in. The kernel writes partial results to `partials` and counts the
 * splits of a tile that have finished in `arrivals`. */
struct stream_space {
  float *partials;
  int *arrivals;     /* zeros by the time of the launch */
  uint64_t borrowed; /* to be given back; 0: nothing is */
  atomic_flag *held; /* to be cleared; NULL: nothing is */
};

/* Memory of the current context for the stream's next launch. False: there is none. Thread-safe. */
bool stream_workspace_get(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, CUstream stream,
                          struct stream_space *out);

/* The same for several launches that work in one piece, one after the other. Until stream_workspace_put() no other
 * thread gets that piece, because otherwise its launches on the stream could come between these. A thread that would
 * have to wait borrows memory instead. `zeros`: a piece that has to be made is filled with zeros, once. No kernel needs
 * them; initcheck of compute-sanitizer does, because it does not see what the bulk copy engine writes. */
bool stream_workspace_hold(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, bool zeros,
                           CUstream stream, struct stream_space *out);

/* After the launch, or the launches, whether or not they were enqueued. Thread-safe. */
void stream_workspace_put(struct stream_workspace *workspace, const struct stream_space *space, CUstream stream);

#endif
