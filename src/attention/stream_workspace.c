/* Device memory for split-KV launches: stream_workspace.h says what it is for and why a stream may use it again.
 *
 * A launch asks for its stream's latest piece of memory; if that is too small, a larger one is made and becomes the
 * stream's latest. Where a stream cannot be identified, is captured, or the limit is reached, memory is borrowed from
 * the stream's allocator instead.
 *
 * Threads: streams are in a push-only table, pieces in push-only lists, one of all and one for each stream; no thread
 * waits for another. */
#include "attention/stream_workspace.h"

#include <stddef.h>

#include "base/threads/push.h"
#include "base/threads/push_table.h"
#include "runtime/runtime_internal.h"

#define LEAST_PARTIAL_BYTES ((size_t)1 << 20)
#define LEAST_ARRIVALS      ((size_t)1 << 12)
#define MOST_BYTES          ((size_t)1 << 30)

/* One piece of memory: partial results, then counters of arrivals. But for `held` it does not change. */
struct piece {
  struct push_node of_all;    /* among the pieces of all streams */
  struct push_node of_stream; /* among those of its stream */
  struct runtime_memory memory;
  size_t partial_bytes, arrivals;
  atomic_flag held; /* by a thread that enqueues several launches */
};

/* A stream's pieces, of which the newest is used. */
struct stream_pieces {
  struct push_list pieces; /* struct piece, by of_stream */
};

struct stream_workspace {
  kjit_runtime *runtime;
  struct push_table streams; /* struct runtime_stream to struct stream_pieces */
  struct push_list pieces;   /* struct piece, by of_all */
  _Atomic(size_t) bytes;     /* bytes of all pieces together */
};

struct stream_workspace *stream_workspace_create(kjit_runtime *runtime) {
  const struct mem *mem = runtime_mem(runtime);
  struct stream_workspace *workspace = mem_alloc(mem, sizeof *workspace);
  if (!workspace) return NULL;
  workspace->runtime = runtime;
  push_table_init(&workspace->streams, mem, sizeof(struct stream_pieces));
  return workspace;
}

void stream_workspace_destroy(struct stream_workspace *workspace) {
  if (!workspace) return;
  const struct mem *mem = runtime_mem(workspace->runtime);
  struct push_node *node = push_list_newest(&workspace->pieces);
  while (node) {
    struct push_node *const next = node->next;
    struct piece *const piece = (struct piece *)(void *)node;
    runtime_memory_destroy(workspace->runtime, &piece->memory);
    mem_free(mem, piece);
    node = next;
  }
  push_table_finish(&workspace->streams);
  mem_free(mem, workspace);
}

static size_t power_of_two(size_t least, size_t needed) {
  while (least < needed)
    least *= 2;
  return least;
}

/* Set the pointers into a piece that has `partial_bytes` bytes of partial results, a multiple of 16. */
static void point_into(uint64_t address, size_t partial_bytes, struct stream_space *out) {
  out->partials = (float *)(uintptr_t)address;
  out->arrivals = (int *)(uintptr_t)(address + partial_bytes);
}

static bool borrow(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, CUstream stream,
                   struct stream_space *out) {
  const size_t arrival_bytes = arrivals * sizeof(int);
  out->borrowed = runtime_memory_borrow(workspace->runtime, partial_bytes + arrival_bytes, stream);
  if (!out->borrowed) return false;
  point_into(out->borrowed, partial_bytes, out);
  if (runtime_memory_clear(workspace->runtime, out->borrowed + partial_bytes, arrival_bytes, stream)) return true;
  stream_workspace_put(workspace, out, stream);
  *out = (struct stream_space){0};
  return false;
}

/* Count bytes before they are allocated. Returns false when that would exceed the limit. */
static bool reserve(struct stream_workspace *workspace, size_t bytes) {
  const size_t before = atomic_fetch_add_explicit(&workspace->bytes, bytes, memory_order_relaxed);
  if (before + bytes <= MOST_BYTES) return true;
  atomic_fetch_sub_explicit(&workspace->bytes, bytes, memory_order_relaxed);
  return false;
}

static void enlist(struct stream_workspace *workspace, struct piece *piece) {
  piece->of_all.next = push_list_newest(&workspace->pieces);
  while (!push_list_add(&workspace->pieces, &piece->of_all))
    continue;
}

static struct piece *latest_of(const struct stream_pieces *pieces) {
  struct push_node *const node = push_list_newest(&pieces->pieces);
  return node ? (struct piece *)(void *)((char *)node - offsetof(struct piece, of_stream)) : NULL;
}

/* Make a piece that is at least as large as the latest, with zeros in its counters and, if `zeros`, in all of it. NULL
 * when there is no memory. */
static struct piece *make_piece(struct stream_workspace *workspace, const struct piece *latest, size_t partial_bytes,
                                size_t arrivals, bool zeros, CUstream stream) {
  const struct mem *mem = runtime_mem(workspace->runtime);
  struct piece *const piece = mem_alloc(mem, sizeof *piece);
  if (!piece) return NULL;
  piece->partial_bytes = power_of_two(latest ? latest->partial_bytes : LEAST_PARTIAL_BYTES, partial_bytes);
  piece->arrivals = power_of_two(latest ? latest->arrivals : LEAST_ARRIVALS, arrivals);
  const size_t arrival_bytes = piece->arrivals * sizeof(int), bytes = piece->partial_bytes + arrival_bytes;
  if (reserve(workspace, bytes)) {
    if (runtime_memory_create(workspace->runtime, bytes, &piece->memory, NULL) == KJIT_OK) {
      enlist(workspace, piece);
      /* If its counters cannot be cleared, the piece is not used, but stays in the list, which frees it with the
       * workspace. */
      const uint64_t first = piece->memory.address + (zeros ? 0 : piece->partial_bytes);
      return runtime_memory_clear(workspace->runtime, first, zeros ? bytes : arrival_bytes, stream) ? piece : NULL;
    }
    atomic_fetch_sub_explicit(&workspace->bytes, bytes, memory_order_relaxed);
  }
  mem_free(mem, piece);
  return NULL;
}

static bool is_enough(const struct piece *piece, size_t partial_bytes, size_t arrivals) {
  return piece && piece->partial_bytes >= partial_bytes && piece->arrivals >= arrivals;
}

/* Give the stream a larger piece. Several threads may do so at once; each one's piece is right for its own launch. */
static struct piece *grow(struct stream_workspace *workspace, struct stream_pieces *pieces, size_t partial_bytes,
                          size_t arrivals, bool zeros, CUstream stream) {
  struct piece *const latest = latest_of(pieces);
  if (is_enough(latest, partial_bytes, arrivals)) return latest;
  struct piece *const made = make_piece(workspace, latest, partial_bytes, arrivals, zeros, stream);
  if (!made) return NULL;
  made->of_stream.next = latest ? &latest->of_stream : NULL;
  (void)push_list_add(&pieces->pieces, &made->of_stream); /* where another was faster, its piece stays the newest */
  return made;
}

/* Find what is kept of a stream, or add it. NULL when out of memory. */
static struct stream_pieces *meet_stream(struct stream_workspace *workspace, const struct runtime_stream *identified) {
  static const struct stream_pieces none;
  const void *known = push_table_find(&workspace->streams, identified, sizeof *identified);
  if (!known) known = push_table_add(&workspace->streams, identified, sizeof *identified, &none);
  return (struct stream_pieces *)(uintptr_t)known; /* the table's own copy, which may be written */
}

static bool find_space(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, CUstream stream,
                       bool holds, bool zeros, struct stream_space *out) {
  struct runtime_stream identified;
  *out = (struct stream_space){0};
  if (!runtime_stream_identify(workspace->runtime, stream, &identified))
    return borrow(workspace, partial_bytes, arrivals, stream, out);
  struct stream_pieces *const pieces = meet_stream(workspace, &identified);
  if (!pieces) return false;
  struct piece *const piece = grow(workspace, pieces, partial_bytes, arrivals, zeros, stream);
  const bool mine = piece && (!holds || !atomic_flag_test_and_set_explicit(&piece->held, memory_order_acquire));
  if (!mine) return borrow(workspace, partial_bytes, arrivals, stream, out);
  if (holds) out->held = &piece->held;
  point_into(piece->memory.address, piece->partial_bytes, out);
  return true;
}

bool stream_workspace_get(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, CUstream stream,
                          struct stream_space *out) {
  return find_space(workspace, partial_bytes, arrivals, stream, false, false, out);
}

bool stream_workspace_hold(struct stream_workspace *workspace, size_t partial_bytes, size_t arrivals, bool zeros,
                           CUstream stream, struct stream_space *out) {
  return find_space(workspace, partial_bytes, arrivals, stream, true, zeros, out);
}

void stream_workspace_put(struct stream_workspace *workspace, const struct stream_space *space, CUstream stream) {
  if (space->held) atomic_flag_clear_explicit(space->held, memory_order_release);
  if (space->borrowed) runtime_memory_give_back(workspace->runtime, space->borrowed, stream);
}
