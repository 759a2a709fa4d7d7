/* The tiered build of attention kernels.
 *
 * 1. The first call that chooses a config finds neither a loaded kernel nor, without tier_calls, one in the cache. The
 *    config becomes an entry. Once the first tier has its own kernel, a thread that belongs to the runtime builds and
 *    loads the chosen one: not sooner, because compiles wait for each other in NVRTC's front end.
 * 2. Until that is done, calls that choose the config are served by the first tier: a config of flash_forward with
 *    small tiles, whose kernel is compiled in about a third of the time for the first of them. That call does not wait
 *    until the kernel is in the cache.
 * 3. When the kernel is loaded, the next call finds it as any resident kernel is found, and its decision is remembered;
 *    from then on launches do not come here. A kernel that failed to build is built again by the next call, which
 *    reports why.
 * With tier_calls N the first N calls that choose a config are served by the first tier, whatever is done or cached by
 * then, and the next waits for the kernel: which kernel computes a call depends on nothing but the calls before it.
 *
 * A stream that is captured and a plan never get the first tier, because their launch is repeated for ever; nor does a
 * call in a context of cuCtxCreate(), because the thread works in the device's primary context.
 *
 * Threads: the mutex guards the list and its entries; it is held for no build and no driver call. The thread reads the
 * part of an entry that does not change. A forked child has no such thread, so it builds what it calls itself. Ending
 * the runtime cancels what is being built and waits for the thread. */
#include "attention/attention_tier.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "attention/flash/flash_call.h"
#include "attention/flash/flash_choose.h"
#include "base/threads/quiet_thread.h"
#include "family/config.h"
#include "family/config_kernel.h"
#include "jit/builder.h"
#include "runtime/runtime_internal.h"

/* Most configs that wait at once; a program that has more than these builds the others in its calls. */
#define ENTRIES_MAX 256

/* Held: the first tier is being built, which must have the compiler to itself. */
enum entry_state { ENTRY_IS_HELD, ENTRY_WAITS, ENTRY_IS_LOADED, ENTRY_FAILED };

struct entry {
  struct entry *next;
  const kjit_family *family;
  int32_t values[ATTENTION_FIELDS_MAX];
  const kjit_device_info *device; /* lives as long as the runtime */
  bool has_front;                 /* the kernel that is launched in front is built too */
  enum entry_state state;
  bool is_swapped; /* a call has gone over to the kernel */
  uint32_t calls;  /* that the first tier has served */
};

struct tiers {
  kjit_runtime *runtime;
  pid_t process; /* that has the thread */
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* an entry was added or has changed its state, or the runtime ends */
  struct entry *entries;  /* the oldest first */
  uint32_t count;
  pthread_t thread;
  bool has_thread, is_ending;
};

/* ---- The thread ---- */

static struct entry *next_waiting(const struct tiers *tiers) {
  struct entry *entry = tiers->entries;
  while (entry && entry->state != ENTRY_WAITS)
    entry = entry->next;
  return entry;
}

/* Build the kernel in front of a config's launches. Where that fails, calls are launched without it, so the failure is
 * no error of the config. */
static void build_front(kjit_runtime *runtime, const struct entry *entry) {
  int32_t values[ATTENTION_FIELDS_MAX];
  const struct config_kernel *kernel;
  kjit_error unread;
  const kjit_family *const front = attention_family_front(attention_family_of(entry->family), entry->values, values);
  if (front) (void)config_kernel_get(runtime, front, values, entry->device, NULL, 0, &kernel, &unread);
}

/* Build and load in the device's primary context, because a new thread has none and a kernel is loaded into a context.
 * Of the entry, nothing is read that calls change meanwhile. */
static bool build(kjit_runtime *runtime, const struct entry *entry, bool has_front) {
  const struct config_kernel *kernel;
  kjit_error unread;
  if (!runtime_primary_enter(runtime, entry->device)) return false;
  const kjit_status status =
      config_kernel_get(runtime, entry->family, entry->values, entry->device, NULL, 0, &kernel, &unread);
  if (status == KJIT_OK && has_front) build_front(runtime, entry);
  runtime_primary_leave(runtime, entry->device);
  return status == KJIT_OK;
}

static void *run(void *user) {
  struct tiers *tiers = user;
  runtime_thread_leaves_captures(tiers->runtime);
  pthread_mutex_lock(&tiers->mutex);
  while (!tiers->is_ending) {
    struct entry *const entry = next_waiting(tiers);
    if (!entry) {
      pthread_cond_wait(&tiers->changed, &tiers->mutex);
      continue;
    }
    bool has_front, is_loaded;
    do { /* once more where a call has come meanwhile that wants the kernel in front, too */
      has_front = entry->has_front;
      pthread_mutex_unlock(&tiers->mutex);
      is_loaded = build(tiers->runtime, entry, has_front);
      pthread_mutex_lock(&tiers->mutex);
    } while (is_loaded && entry->has_front != has_front);
    entry->state = is_loaded ? ENTRY_IS_LOADED : ENTRY_FAILED;
    pthread_cond_broadcast(&tiers->changed);
  }
  pthread_mutex_unlock(&tiers->mutex);
  return NULL;
}

/* ---- The state of a runtime ---- */

static void free_state(const struct mem *mem, struct tiers *tiers) {
  while (tiers->entries) {
    struct entry *const entry = tiers->entries;
    tiers->entries = entry->next;
    mem_free(mem, entry);
  }
  mem_free(mem, tiers);
}

static void *create_state(kjit_runtime *runtime) {
  struct tiers *tiers = mem_alloc(runtime_mem(runtime), sizeof *tiers);
  if (!tiers) return NULL;
  tiers->runtime = runtime;
  tiers->process = getpid();
  (void)pthread_mutex_init(&tiers->mutex, NULL); /* of the default kind: cannot fail on Linux */
  (void)pthread_cond_init(&tiers->changed, NULL);
  return tiers;
}

static void destroy_state(kjit_runtime *runtime, void *user) {
  struct tiers *tiers = user;
  if (tiers->process == getpid()) {
    pthread_mutex_lock(&tiers->mutex);
    tiers->is_ending = true;
    pthread_cond_broadcast(&tiers->changed);
    pthread_mutex_unlock(&tiers->mutex);
    if (tiers->has_thread) {
      builder_cancel(runtime_builder(runtime)); /* the runtime ends, so nobody waits for a kernel any more */
      (void)pthread_join(tiers->thread, NULL);
    }
    pthread_cond_destroy(&tiers->changed);
    pthread_mutex_destroy(&tiers->mutex);
  }
  free_state(runtime_mem(runtime), tiers);
}

static const struct runtime_slot slot = {create_state, destroy_state};

/* ---- A call's turn ---- */

/* Find the entry of a config, or the place for a new one. Configs are compared as bytes, up to the last field. */
static struct entry **find(struct tiers *tiers, const struct attention_choice *chosen, const kjit_device_info *device) {
  const kjit_family *family = chosen->family->family;
  struct entry **link = &tiers->entries;
  while (*link && ((*link)->family != family || (*link)->device != device ||
                   memcmp((*link)->values, chosen->values, family->table.config_bytes) != 0))
    link = &(*link)->next;
  return link;
}

/* Add an entry, and start the thread with the first. NULL where the system has no memory or no thread, and in a context
 * of cuCtxCreate(), which may end while the thread works in it. */
static struct entry *add(struct tiers *tiers, struct entry **link, const struct attention_choice *chosen,
                         const kjit_device_info *device) {
  if (tiers->count >= ENTRIES_MAX || !runtime_primary_is_current(tiers->runtime, device)) return NULL;
  if (!tiers->has_thread) tiers->has_thread = quiet_thread_start(&tiers->thread, run, tiers);
  struct entry *entry = tiers->has_thread ? mem_alloc(runtime_mem(tiers->runtime), sizeof *entry) : NULL;
  if (!entry) return NULL;
  entry->family = chosen->family->family;
  memcpy(entry->values, chosen->values, sizeof entry->values);
  entry->device = device;
  *link = entry;
  tiers->count++;
  return entry;
}

static bool is_done(const struct entry *entry) {
  return entry->state == ENTRY_IS_LOADED || entry->state == ENTRY_FAILED;
}

/* What this call does. The caller holds the mutex. */
static enum tier_turn take_turn(struct tiers *tiers, struct entry *entry, uint32_t first_calls) {
  const bool is_early = first_calls > 0 ? entry->calls < first_calls : !is_done(entry);
  if (is_early) {
    entry->calls++;
    return TIER_FIRST;
  }
  while (!is_done(entry) && !tiers->is_ending)
    pthread_cond_wait(&tiers->changed, &tiers->mutex);
  if (entry->state == ENTRY_IS_LOADED && !entry->is_swapped) {
    entry->is_swapped = true;
    runtime_count_tier_swap(tiers->runtime);
  }
  return TIER_CHOSEN;
}

/* Load a config's kernels if memory or the cache has them all. False when one must be compiled. */
static bool are_cached(kjit_runtime *runtime, const struct attention_choice *chosen, bool has_front,
                       const kjit_device_info *device) {
  int32_t values[ATTENTION_FIELDS_MAX];
  const kjit_family *const front = has_front ? attention_family_front(chosen->family, chosen->values, values) : NULL;
  if (!config_kernel_is_cached(runtime, chosen->family->family, chosen->values, device)) return false;
  return !front || config_kernel_is_cached(runtime, front, values, device);
}

enum tier_turn attention_tier_turn(kjit_runtime *runtime, const struct attention_choice *chosen, bool has_front,
                                   const kjit_device_info *device) {
  const uint32_t first_calls = runtime_tier_calls(runtime);
  /* This look-up makes the table of kernels, which has to be older than the thread that fills it: slots end with the
   * newest. */
  const bool is_there = config_kernel_is_resident(runtime, chosen->family->family, chosen->values, device, NULL);
  struct tiers *const tiers = runtime_slot_get(runtime, &slot);
  if (!tiers || tiers->process != getpid()) return TIER_CHOSEN;
  pthread_mutex_lock(&tiers->mutex);
  struct entry *entry = *find(tiers, chosen, device);
  pthread_mutex_unlock(&tiers->mutex);
  const bool is_ready =
      !entry && first_calls == 0 && ((is_there && !has_front) || are_cached(runtime, chosen, has_front, device));
  pthread_mutex_lock(&tiers->mutex);
  /* Another thread may have added the entry meanwhile; if it was what made the kernel ready, this call is the swap. */
  struct entry **const link = find(tiers, chosen, device);
  entry = *link || is_ready ? *link : add(tiers, link, chosen, device);
  if (entry && !is_done(entry)) entry->has_front |= has_front;
  const enum tier_turn turn = entry ? take_turn(tiers, entry, first_calls) : TIER_CHOSEN;
  pthread_mutex_unlock(&tiers->mutex);
  return turn;
}

void attention_tier_release(kjit_runtime *runtime, const struct attention_choice *chosen,
                            const kjit_device_info *device) {
  struct tiers *const tiers = runtime_slot_get(runtime, &slot);
  if (!tiers || tiers->process != getpid()) return;
  pthread_mutex_lock(&tiers->mutex);
  struct entry *const entry = *find(tiers, chosen, device);
  if (entry && entry->state == ENTRY_IS_HELD) {
    entry->state = ENTRY_WAITS;
    pthread_cond_broadcast(&tiers->changed);
  }
  pthread_mutex_unlock(&tiers->mutex);
}

bool attention_tier_first(const kjit_attention_problem *problem, const struct attention_choice *chosen,
                          const kjit_device_info *device, struct attention_choice *out) {
  const struct family_place place = family_place_of_device(device);
  kjit_error unread;
  memset(out, 0, sizeof *out);
  if (chosen->family == &flash_attention) return false;
  out->family = &flash_attention;
  out->decided_by = KJIT_DECIDED_BY_RULES;
  return flash_choose_small(problem, &place, (struct flash_variant *)out->values, &unread) == KJIT_OK;
}
