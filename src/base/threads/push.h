/* What one thread publishes for all others and nobody takes back: a place that is filled once, and a list that only
 * grows at its head. Readers take no lock and wait for nobody; writers compare and swap. push_table.h is a table made
 * of such places.
 *
 * Publishing has release order and reading acquire order, so a reader sees all that was written before. Whatever is
 * published stays until its owner ends, when no other thread is there any more. */
#ifndef KJIT_BASE_PUSH_H
#define KJIT_BASE_PUSH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* All zero is an empty place. */
struct push_place {
  _Atomic(void *) value;
};

/* What fills it, or NULL. */
static inline void *push_place_get(const struct push_place *place) {
  return atomic_load_explicit(&place->value, memory_order_acquire);
}

/* Fill it with `made`, unless another thread did so before. Returns what fills it from now on; when that is not `made`,
 * the caller still owns `made`. */
static inline void *push_place_fill(struct push_place *place, void *made) {
  void *there = NULL;
  const bool mine =
      atomic_compare_exchange_strong_explicit(&place->value, &there, made, memory_order_acq_rel, memory_order_acquire);
  return mine ? made : there;
}

/* The first member of what a list holds. */
struct push_node {
  struct push_node *next; /* older; NULL: the oldest */
};

/* All zero is an empty list. */
struct push_list {
  struct push_place newest;
};

/* The newest node, from which `next` leads to the older ones; NULL: the list is empty. */
static inline void *push_list_newest(const struct push_list *list) {
  return push_place_get(&list->newest);
}

/* Add a node whose `next` is the newest that its maker has seen. False when there are newer ones: `next` is then the
 * newest, so that the maker can look whether somebody has added the same, and try again. */
static inline bool push_list_add(struct push_list *list, struct push_node *node) {
  void *seen = node->next;
  const bool added = atomic_compare_exchange_strong_explicit(&list->newest.value, &seen, node, memory_order_acq_rel,
                                                             memory_order_acquire);
  if (!added) node->next = seen;
  return added;
}

#endif
