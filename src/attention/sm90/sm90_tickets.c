/* Tile-scheduler counters ("tickets"), a pair for each stream: sm90_tickets.h says what they are and why a stream may
 * use its pair again.
 *
 * A stream that is seen for the first time takes the next pair of its context's memory, has it zeroed by itself, and is
 * remembered; later launches find it in the table.
 *
 * Threads: look-ups take no lock; one mutex guards the list of contexts and their counts. */
#include "attention/sm90/sm90_tickets.h"

#include <pthread.h>

#include "base/threads/push_table.h"
#include "runtime/runtime_internal.h"

/* Pairs of a context, 128 KiB: more streams than a program has at a time. Streams that come and go use pairs up. */
#define PAIRS 16384

struct pair {
  int *address; /* on the device: tiles taken, blocks finished */
};

#define PAIR_BYTES (2 * sizeof(int))

/* A context's memory; without any when the driver refused, which is not asked again. */
struct context {
  struct context *next;
  uint64_t id;
  struct runtime_memory memory;
  uint32_t used;
};

struct sm90_tickets {
  kjit_runtime *runtime;
  struct push_table streams; /* struct runtime_stream to struct pair */
  pthread_mutex_t lock;      /* of the contexts */
  struct context *contexts;
};

struct sm90_tickets *sm90_tickets_create(kjit_runtime *runtime) {
  const struct mem *mem = runtime_mem(runtime);
  struct sm90_tickets *tickets = mem_alloc(mem, sizeof *tickets);
  if (!tickets) return NULL;
  tickets->runtime = runtime;
  push_table_init(&tickets->streams, mem, sizeof(struct pair));
  if (pthread_mutex_init(&tickets->lock, NULL) == 0) return tickets;
  mem_free(mem, tickets);
  return NULL;
}

void sm90_tickets_destroy(struct sm90_tickets *tickets) {
  if (!tickets) return;
  const struct mem *mem = runtime_mem(tickets->runtime);
  while (tickets->contexts) {
    struct context *context = tickets->contexts;
    tickets->contexts = context->next;
    runtime_memory_destroy(tickets->runtime, &context->memory);
    mem_free(mem, context);
  }
  pthread_mutex_destroy(&tickets->lock);
  push_table_finish(&tickets->streams);
  mem_free(mem, tickets);
}

/* Find a context. The caller holds the mutex. */
static struct context *find_context(const struct sm90_tickets *tickets, uint64_t id) {
  struct context *context = tickets->contexts;
  while (context && context->id != id)
    context = context->next;
  return context;
}

/* Take the next pair; NULL when the context has no memory or no pair left. */
static int *take_pair(struct context *context) {
  if (!context->memory.address || context->used == PAIRS) return NULL;
  return (int *)(uintptr_t)(context->memory.address + PAIR_BYTES * context->used++);
}

/* Take the first pair of a context that has not been seen. If another thread sees it at the same time, its memory is
 * used. */
static int *meet_context(struct sm90_tickets *tickets, uint64_t id) {
  const struct mem *mem = runtime_mem(tickets->runtime);
  struct context *made = mem_alloc(mem, sizeof *made);
  if (!made) return NULL;
  made->id = id;
  (void)runtime_memory_create(tickets->runtime, PAIRS * PAIR_BYTES, &made->memory, NULL);
  pthread_mutex_lock(&tickets->lock);
  struct context *context = find_context(tickets, id);
  if (!context) {
    context = made;
    made->next = tickets->contexts;
    tickets->contexts = made;
    made = NULL;
  }
  int *const address = take_pair(context);
  pthread_mutex_unlock(&tickets->lock);
  if (made) runtime_memory_destroy(tickets->runtime, &made->memory);
  mem_free(mem, made);
  return address;
}

/* Give a pair to a stream that has not been seen. The stream zeroes the pair itself before another thread can find it,
 * so launches that use it come after. A stream for which there is no pair is remembered too. */
static int *meet_stream(struct sm90_tickets *tickets, const struct runtime_stream *identified, CUstream stream) {
  uint64_t id;
  if (!runtime_context_identify(tickets->runtime, &id)) return NULL;
  pthread_mutex_lock(&tickets->lock);
  struct context *const context = find_context(tickets, id);
  struct pair pair = {context ? take_pair(context) : NULL};
  pthread_mutex_unlock(&tickets->lock);
  if (!context) pair.address = meet_context(tickets, id);
  if (pair.address && !runtime_memory_clear(tickets->runtime, (uintptr_t)pair.address, PAIR_BYTES, stream))
    pair.address = NULL;
  const struct pair *kept = push_table_add(&tickets->streams, identified, sizeof *identified, &pair);
  return kept ? kept->address : NULL;
}

int *sm90_tickets_of(struct sm90_tickets *tickets, CUstream stream) {
  struct runtime_stream identified;
  if (!runtime_stream_identify(tickets->runtime, stream, &identified)) return NULL;
  const struct pair *known = push_table_find(&tickets->streams, &identified, sizeof identified);
  return known ? known->address : meet_stream(tickets, &identified, stream);
}
