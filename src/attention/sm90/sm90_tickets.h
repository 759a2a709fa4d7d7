/* Tile-scheduler counters ("tickets"): blocks of a causal launch take their tiles from a counter as they get free,
 * longest first. A launch needs a pair of integers in device memory: how many tiles are taken, and how many blocks have
 * finished. The last block to finish leaves both at zero, so no launch needs a memset before it.
 *
 * Two launches that used one pair at the same time would take each other's tiles. So every stream has a pair of its
 * own: launches of one stream run one after the other (the kernel does not use programmatic dependent launch), and a
 * launch that the driver has begun is complete, its pair at zero, before the next on that stream begins. Streams are
 * known by the driver's identifiers, which are unique for the life of the program, not by their handles, which are used
 * again. (A ring of pairs handed out launch by launch would depend on how many launches can be outstanding over all
 * streams, which nothing bounds.)
 *
 * There is no pair, and tiles are dealt out beforehand without any shared state:
 *  - while a stream is captured, because the graph may later run several times at once, on any stream;
 *  - where the driver does not tell a stream's identifier, or has no memory;
 *  - on the 16,385th stream that a context sees.
 *
 * The memory belongs to a context and is allocated when the context launches for the first time; a pair is zeroed by
 * its stream before that stream's first launch. */
#ifndef KJIT_ATTENTION_SM90_SM90_TICKETS_H
#define KJIT_ATTENTION_SM90_SM90_TICKETS_H

#include <kjit/kernel.h>

struct sm90_tickets;

/* NULL when out of memory. */
struct sm90_tickets *sm90_tickets_create(kjit_runtime *runtime);

/* Frees the memory; nothing may be running that uses it. Accepts NULL. */
void sm90_tickets_destroy(struct sm90_tickets *tickets);

/* The pair of a stream of the current context, in device memory; NULL when there is none. Thread-safe. */
int *sm90_tickets_of(struct sm90_tickets *tickets, CUstream stream);

#endif
