/* A runtime's tuned tables: each is read when it is first asked for, and kept until the runtime ends.
 *
 * Threads: tables are in a list that only grows at its head, so that readers need no lock; of two threads that read the
 * same table, the second gives its own up. */
#include "family/tune/tune_store.h"

#include <stdio.h>
#include <string.h>

#include "base/threads/push.h"
#include "runtime/runtime_internal.h"

struct kept {
  struct push_node node;
  const struct tune_subject *subject; /* of a user's family: the family is retained */
  int32_t ordinal;                    /* the device's; TUNE_NO_DEVICE for an architecture's table */
  char arch[16];
  struct tune_table *table;
};

/* What tuning keeps in a runtime: one for each device and for each architecture that was asked for. */
struct state {
  struct push_list tables; /* struct kept */
};

struct tune_places tune_store_places(kjit_runtime *runtime, const struct tune_subject *subject) {
  return (struct tune_places){.subject = subject,
                              .mem = runtime_mem(runtime),
                              .log = runtime_log(runtime),
                              .builder = runtime_builder(runtime),
                              .shipped = subject->families[0]->definition ? (struct tune_shipped){0}
                                                                          : tune_shipped_embedded()};
}

static void destroy_kept(const struct mem *mem, struct kept *kept) {
  tune_table_destroy(kept->table);
  kjit_family_release(kept->subject->families[0]);
  mem_free(mem, kept);
}

/* End all tables. Runs when the runtime ends, so no other thread is in here. */
static void destroy_state(kjit_runtime *runtime, void *user) {
  struct state *state = user;
  struct push_node *node = push_list_newest(&state->tables);
  while (node) {
    struct push_node *const next = node->next;
    destroy_kept(runtime_mem(runtime), (struct kept *)(void *)node);
    node = next;
  }
  mem_free(runtime_mem(runtime), state);
}

static void *create_state(kjit_runtime *runtime) {
  return mem_alloc(runtime_mem(runtime), sizeof(struct state));
}

static const struct runtime_slot slot = {create_state, destroy_state};

static struct state *find_state(kjit_runtime *runtime) {
  if (!runtime_uses_tuned(runtime)) return NULL;
  return runtime_slot_get(runtime, &slot);
}

/* Find a table of a subject. Devices are told apart by number; a table of no device is found by its architecture. */
static struct tune_table *find(const struct push_node *newest, const struct tune_subject *subject, int32_t ordinal,
                               const char *arch) {
  for (const struct push_node *node = newest; node; node = node->next) {
    const struct kept *const kept = (const void *)node;
    if (kept->subject != subject || kept->ordinal != ordinal) continue;
    if (ordinal != TUNE_NO_DEVICE || !strcmp(kept->arch, arch)) return kept->table;
  }
  return NULL;
}

/* Keep a table, which is taken over. When two threads have read the same one, the second's is freed. */
static struct tune_table *keep(struct state *state, const struct tune_places *places, int32_t ordinal, const char *arch,
                               struct tune_table *table) {
  const struct mem *mem = places->mem;
  struct kept *made = table ? mem_alloc(mem, sizeof *made) : NULL;
  if (!made) {
    tune_table_destroy(table);
    return NULL;
  }
  made->subject = places->subject;
  (void)kjit_family_retain(made->subject->families[0]);
  made->ordinal = ordinal;
  made->table = table;
  snprintf(made->arch, sizeof made->arch, "%s", arch);
  made->node.next = push_list_newest(&state->tables);
  do {
    struct tune_table *const found = find(made->node.next, places->subject, ordinal, arch);
    if (found) {
      destroy_kept(mem, made);
      return found;
    }
  } while (!push_list_add(&state->tables, &made->node));
  return table;
}

struct tune_table *tune_store_of_device(kjit_runtime *runtime, const struct tune_subject *subject,
                                        const kjit_device_info *device) {
  struct state *state = find_state(runtime);
  struct tune_table *table =
      state ? find(push_list_newest(&state->tables), subject, device->ordinal, device->arch) : NULL;
  if (table || !state) return table;
  const struct tune_places places = tune_store_places(runtime, subject);
  return keep(state, &places, device->ordinal, device->arch_specific, tune_load_of_device(&places, device));
}

struct tune_table *tune_store_of_arch(kjit_runtime *runtime, const struct tune_subject *subject,
                                      const struct family_place *place) {
  struct state *state = find_state(runtime);
  struct tune_table *table =
      state ? find(push_list_newest(&state->tables), subject, TUNE_NO_DEVICE, place->arch) : NULL;
  if (table || !state) return table;
  const struct tune_places places = tune_store_places(runtime, subject);
  return keep(state, &places, TUNE_NO_DEVICE, place->arch, tune_load_of_arch(&places, place));
}
