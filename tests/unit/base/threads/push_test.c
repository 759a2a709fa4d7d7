/* Places that are filled once and lists that only grow, alone and by several threads at the same time. */
#include "base/threads/push.h"

#include <pthread.h>

#include "support/test.h"

#define THREADS 4
#define ROUNDS  500
#define NUMBERS 8

static void test_push__first_value_stays(void **state) {
  (void)state;
  struct push_place place = {NULL};
  int first, second;
  assert_null(push_place_get(&place));
  assert_ptr_equal(&first, push_place_fill(&place, &first));
  assert_ptr_equal(&first, push_place_fill(&place, &second));
  assert_ptr_equal(&first, push_place_get(&place));
}

struct numbered {
  struct push_node node;
  int number;
};

static void test_push__list_has_the_newest_first(void **state) {
  (void)state;
  struct push_list list = {{NULL}};
  struct numbered older = {.number = 1}, newer = {.number = 2};
  assert_true(push_list_add(&list, &older.node));
  assert_false(push_list_add(&list, &newer.node)); /* its maker has not seen the older one */
  assert_ptr_equal(&older, newer.node.next);
  assert_true(push_list_add(&list, &newer.node));
  assert_ptr_equal(&newer, push_list_newest(&list));
}

/* What the threads share, and what one of them brings. */
struct scene {
  pthread_barrier_t barrier;
  struct push_place place;
  struct push_list list;
};

struct worker {
  struct scene *scene;
  struct numbered own[NUMBERS];
  void *found;
};

static const struct numbered *find(const struct push_node *newest, int number) {
  for (const struct push_node *node = newest; node; node = node->next) {
    const struct numbered *const numbered = (const void *)node;
    if (numbered->number == number) return numbered;
  }
  return NULL;
}

/* Fill the place, and add each number unless it is there. */
static void *publish(void *user) {
  struct worker *worker = user;
  struct scene *scene = worker->scene;
  pthread_barrier_wait(&scene->barrier);
  worker->found = push_place_fill(&scene->place, worker);
  for (int i = 0; i < NUMBERS; i++) {
    struct numbered *const own = &worker->own[i];
    own->number = i;
    own->node.next = push_list_newest(&scene->list);
    while (!find(own->node.next, i) && !push_list_add(&scene->list, &own->node))
      continue;
  }
  return NULL;
}

static void test_push__threads_agree_and_add_nothing_twice(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    struct scene scene = {.place = {NULL}};
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    assert_int_equal(0, pthread_barrier_init(&scene.barrier, NULL, THREADS));
    for (int i = 0; i < THREADS; i++) {
      workers[i].scene = &scene;
      assert_int_equal(0, pthread_create(&threads[i], NULL, publish, &workers[i]));
    }
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
      assert_ptr_equal(push_place_get(&scene.place), workers[i].found);
    int count[NUMBERS] = {0};
    for (const struct push_node *node = push_list_newest(&scene.list); node; node = node->next)
      count[((const struct numbered *)(const void *)node)->number]++;
    for (int i = 0; i < NUMBERS; i++)
      assert_int_equal(1, count[i]);
    pthread_barrier_destroy(&scene.barrier);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_push__first_value_stays),
      cmocka_unit_test(test_push__list_has_the_newest_first),
      cmocka_unit_test(test_push__threads_agree_and_add_nothing_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
