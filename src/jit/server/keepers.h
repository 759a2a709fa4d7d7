/* Which preambles were asked for how often, and the processes that hold some of them precompiled.
 *
 * A preamble is precompiled when it is asked for a second time, because making it costs more than one plain compile. A
 * process makes it while the second compile runs without it; from then on it is used. Four are held at once, because
 * one of CUB takes 220 MB of memory and 180 MB of disk; a fifth one replaces the least recently used. */
#ifndef KJIT_JIT_SERVER_KEEPERS_H
#define KJIT_JIT_SERVER_KEEPERS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/digest.h"
#include "jit/server/channel.h"

/* Preambles that are remembered, whether precompiled or not. */
#define KEEPERS_KNOWN 64
#define KEEPERS_MOST  4

struct keeper {
  struct digest preamble;
  uint64_t uses, last_use; /* 0: this place is free */
  enum { KEEPER_NONE, KEEPER_MAKING, KEEPER_READY, KEEPER_REFUSED } state;
  int stream;  /* of the job that made it; closing it ends the process; -1: none */
  int control; /* where it takes jobs; -1: none */
};

struct keepers {
  pthread_mutex_t mutex; /* held for no longer than a look at the table and a packet that does not wait */
  struct keeper table[KEEPERS_KNOWN];
  uint64_t clock;
};

bool keepers_init(struct keepers *keepers);
void keepers_finish(struct keepers *keepers); /* ends every process */
void keepers_forget(struct keepers *keepers); /* the server is gone, and all of them with it */

/* Around fork(): as for struct fork_guard. A child has none of the processes. */
void keepers_fork_prepare(struct keepers *keepers);
void keepers_fork_parent(struct keepers *keepers);
void keepers_fork_child(struct keepers *keepers);

enum keeper_advice { KEEPER_COMPILE_PLAINLY, KEEPER_MAKE, KEEPER_WAIT, KEEPER_USE };

/* Count a use of a preamble and say what to do; `eager`: the first use makes it too. KEEPER_MAKE is said to one caller,
 * who calls keepers_made() or keepers_refuse(). */
enum keeper_advice keepers_ask(struct keepers *keepers, const struct digest *preamble, bool eager);

/* The process was sent for: it will say on `stream` whether it is ready. The descriptors are the table's now. */
void keepers_made(struct keepers *keepers, const struct digest *preamble, int stream, int control);

/* Never try this preamble again: it cannot be precompiled, or gives warnings, or its process has died. */
void keepers_refuse(struct keepers *keepers, const struct digest *preamble);

/* Send a packet to the process that holds the preamble and is ready. */
enum channel_end keepers_send(struct keepers *keepers, const struct digest *preamble, uint32_t number, int socket);

#endif
