/* The table of preambles and of the processes that hold them precompiled: see keepers.h. One mutex guards all of it;
 * nothing waits while it is held. */
#include "jit/server/keepers.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void release(struct keeper *keeper) {
  if (keeper->stream >= 0) (void)shutdown(keeper->stream, SHUT_RDWR); /* also where a forked process has a copy */
  if (keeper->stream >= 0) (void)close(keeper->stream);
  if (keeper->control >= 0) (void)close(keeper->control);
  keeper->stream = keeper->control = -1;
  keeper->state = KEEPER_NONE;
}

/* Let go of every process. Preambles that were refused stay refused, because they would be again. In a forked child the
 * parent's sockets are closed and not shut down. */
static void forget_all(struct keepers *keepers, bool is_fork) {
  for (int i = 0; i < KEEPERS_KNOWN; i++) {
    struct keeper *keeper = &keepers->table[i];
    const bool refused = keeper->state == KEEPER_REFUSED;
    if (is_fork && keeper->stream >= 0) (void)close(keeper->stream);
    if (is_fork) keeper->stream = -1; /* not shut down: the parent goes on with it */
    release(keeper);
    if (refused) keeper->state = KEEPER_REFUSED;
  }
}

bool keepers_init(struct keepers *keepers) {
  memset(keepers, 0, sizeof *keepers);
  for (int i = 0; i < KEEPERS_KNOWN; i++)
    keepers->table[i].stream = keepers->table[i].control = -1;
  return !pthread_mutex_init(&keepers->mutex, NULL);
}

void keepers_finish(struct keepers *keepers) {
  forget_all(keepers, 0);
  pthread_mutex_destroy(&keepers->mutex);
}

void keepers_forget(struct keepers *keepers) {
  pthread_mutex_lock(&keepers->mutex);
  forget_all(keepers, 0);
  pthread_mutex_unlock(&keepers->mutex);
}

void keepers_fork_prepare(struct keepers *keepers) {
  pthread_mutex_lock(&keepers->mutex);
}

void keepers_fork_parent(struct keepers *keepers) {
  pthread_mutex_unlock(&keepers->mutex);
}

void keepers_fork_child(struct keepers *keepers) {
  forget_all(keepers, 1);
  pthread_mutex_unlock(&keepers->mutex);
}

/* Find the place of a preamble. A preamble that is not known gets the least recently used place, emptied. */
static struct keeper *place_of(struct keepers *keepers, const struct digest *preamble) {
  struct keeper *oldest = &keepers->table[0];
  for (int i = 0; i < KEEPERS_KNOWN; i++) {
    struct keeper *keeper = &keepers->table[i];
    if (keeper->uses && digest_equal(&keeper->preamble, preamble)) return keeper;
    if (keeper->last_use < oldest->last_use) oldest = keeper;
  }
  release(oldest);
  oldest->preamble = *preamble;
  oldest->uses = 0;
  return oldest;
}

static bool is_held(const struct keeper *keeper) {
  return keeper->state == KEEPER_MAKING || keeper->state == KEEPER_READY;
}

/* Make room for one more process by ending the least recently used one. */
static void make_room(struct keepers *keepers) {
  struct keeper *oldest = NULL;
  int held = 0;
  for (int i = 0; i < KEEPERS_KNOWN; i++) {
    struct keeper *keeper = &keepers->table[i];
    if (!is_held(keeper)) continue;
    held++;
    if (keeper->stream >= 0 && (!oldest || keeper->last_use < oldest->last_use)) oldest = keeper;
  }
  if (held >= KEEPERS_MOST && oldest) release(oldest);
}

/* Read what the keeper's process has said since the last look. */
static void listen_to(struct keeper *keeper) {
  static const struct mem none;
  const struct channel channel = {.mem = &none, .socket = keeper->stream, .until_ns = INT64_MAX};
  uint8_t bytes[FRAME_HEAD_BYTES];
  struct frame_head head;
  if (keeper->state != KEEPER_MAKING || keeper->stream < 0 || !channel_has_news(&channel)) return;
  /* Heads are written in one piece. The first says that the process began; anything but "ready" after it is a reason
   * why there will be no header, which nobody needs to know. */
  const ssize_t got = recv(keeper->stream, bytes, sizeof bytes, MSG_DONTWAIT);
  const bool sound = got == (ssize_t)sizeof bytes && frame_read_head(&head, bytes);
  if (sound && head.kind == FRAME_BEGAN) {
    listen_to(keeper);
  } else if (sound && head.kind == FRAME_READY) {
    keeper->state = KEEPER_READY;
  } else {
    release(keeper);
    keeper->state = KEEPER_REFUSED;
  }
}

/* A precompiled header is made at the second use of a preamble, since a single use would pay more for making it than it
 * saves; an eager caller wants it at the first, and waits for one that is being made. */
enum keeper_advice keepers_ask(struct keepers *keepers, const struct digest *preamble, bool eager) {
  enum keeper_advice advice = KEEPER_COMPILE_PLAINLY;
  pthread_mutex_lock(&keepers->mutex);
  struct keeper *keeper = place_of(keepers, preamble);
  keeper->uses++;
  keeper->last_use = ++keepers->clock;
  listen_to(keeper);
  if (keeper->state == KEEPER_READY) advice = KEEPER_USE;
  if (keeper->state == KEEPER_MAKING && eager) advice = KEEPER_WAIT;
  if (keeper->state == KEEPER_NONE && (eager || keeper->uses > 1)) {
    make_room(keepers);
    keeper->state = KEEPER_MAKING;
    advice = KEEPER_MAKE;
  }
  pthread_mutex_unlock(&keepers->mutex);
  return advice;
}

/* The place may have been given to another preamble since keepers_ask(), and is then taken back. */
void keepers_made(struct keepers *keepers, const struct digest *preamble, int stream, int control) {
  pthread_mutex_lock(&keepers->mutex);
  struct keeper *keeper = place_of(keepers, preamble);
  release(keeper);
  keeper->uses += !keeper->uses;
  keeper->stream = stream;
  keeper->control = control;
  keeper->state = KEEPER_MAKING;
  pthread_mutex_unlock(&keepers->mutex);
}

void keepers_refuse(struct keepers *keepers, const struct digest *preamble) {
  pthread_mutex_lock(&keepers->mutex);
  struct keeper *keeper = place_of(keepers, preamble);
  release(keeper);
  keeper->uses += !keeper->uses;
  keeper->state = KEEPER_REFUSED;
  pthread_mutex_unlock(&keepers->mutex);
}

enum channel_end keepers_send(struct keepers *keepers, const struct digest *preamble, uint32_t number, int socket) {
  enum channel_end end = CHANNEL_CLOSED;
  pthread_mutex_lock(&keepers->mutex);
  struct keeper *keeper = place_of(keepers, preamble);
  if (keeper->state == KEEPER_READY) end = packet_send(keeper->control, number, &socket, 1);
  /* The process was idle for too long, or has died; the next use makes another. */
  if (end == CHANNEL_CLOSED) release(keeper);
  pthread_mutex_unlock(&keepers->mutex);
  return end;
}
