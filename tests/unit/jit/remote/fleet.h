/* Machines with empty folders that share stores in memory, which fail, lie and wait as a test says. */
#ifndef KJIT_TESTS_UNIT_JIT_REMOTE_FLEET_H
#define KJIT_TESTS_UNIT_JIT_REMOTE_FLEET_H

#include <pthread.h>

#include "jit/admin/remote_admin.h"
#include "jit/remote/remote_internal.h"
#include "support/cache_world.h"

#define OBJECTS 16

struct object {
  char name[DIGEST_HEX_BYTES];
  unsigned char *data;
  size_t bytes;
};

/* A store in memory. */
struct memory_store {
  pthread_mutex_t mutex;
  struct object objects[OBJECTS];
  atomic_long gets, puts, leases, removals, closed; /* leases are put too, and counted apart */
  atomic_int fails, held, lies; /* each call fails; another holds every lease; each get gives 1 GiB of zeros */
  atomic_int paused;            /* a put waits until it is cleared */
  int sleep_ms;
};

static inline struct object *find(struct memory_store *store, const char *name) {
  for (int i = 0; i < OBJECTS; i++)
    if (!strcmp(store->objects[i].name, name)) return &store->objects[i];
  return NULL;
}

static inline kjit_remote_answer memory_get(void *user, const char *name, uint32_t timeout_ms,
                                            kjit_remote_write_fn write, void *write_user) {
  static const char zeros[65536];
  struct memory_store *store = user;
  kjit_remote_answer answer = KJIT_REMOTE_ABSENT;
  (void)timeout_ms;
  atomic_fetch_add(&store->gets, 1);
  if (atomic_load(&store->fails)) return KJIT_REMOTE_FAILED;
  for (int i = 0; atomic_load(&store->lies) && i < 16384; i++)
    if (write(write_user, zeros, sizeof zeros)) return KJIT_REMOTE_FAILED;
  pthread_mutex_lock(&store->mutex);
  const struct object *object = find(store, name);
  if (object) answer = write(write_user, object->data, object->bytes) ? KJIT_REMOTE_FAILED : KJIT_REMOTE_DONE;
  pthread_mutex_unlock(&store->mutex);
  return answer;
}

static inline void store_set(struct memory_store *store, const char *name, const void *data, size_t bytes) {
  struct object *object = find(store, name);
  if (!object) object = find(store, "");
  assert_non_null(object);
  free(object->data);
  memmove(object->name, name, strlen(name) + 1); /* a test may store an object under its own name */
  object->data = malloc(bytes + 1);
  object->bytes = bytes;
  memcpy(object->data, data, bytes);
}

/* A lease is put where none is; with `held` somebody always has it. */
static inline kjit_remote_answer memory_put_lease(struct memory_store *store, const char *name, const void *data,
                                                  size_t bytes) {
  atomic_fetch_add(&store->leases, 1);
  if (atomic_load(&store->fails)) return KJIT_REMOTE_FAILED;
  pthread_mutex_lock(&store->mutex);
  const bool taken = atomic_load(&store->held) || find(store, name);
  if (!taken) store_set(store, name, data, bytes);
  pthread_mutex_unlock(&store->mutex);
  return taken ? KJIT_REMOTE_ABSENT : KJIT_REMOTE_DONE;
}

static inline kjit_remote_answer memory_put(void *user, const char *name, const void *data, size_t bytes,
                                            uint32_t lease_seconds, uint32_t timeout_ms) {
  struct memory_store *store = user;
  (void)timeout_ms;
  if (lease_seconds) return memory_put_lease(store, name, data, bytes);
  atomic_fetch_add(&store->puts, 1);
  if (atomic_load(&store->fails)) return KJIT_REMOTE_FAILED;
  while (atomic_load(&store->paused))
    usleep(1000);
  if (store->sleep_ms) usleep((useconds_t)store->sleep_ms * 1000);
  pthread_mutex_lock(&store->mutex);
  store_set(store, name, data, bytes);
  pthread_mutex_unlock(&store->mutex);
  return KJIT_REMOTE_DONE;
}

static inline kjit_remote_answer memory_remove(void *user, const char *name, uint32_t timeout_ms) {
  struct memory_store *store = user;
  (void)timeout_ms;
  atomic_fetch_add(&store->removals, 1);
  pthread_mutex_lock(&store->mutex);
  struct object *object = find(store, name);
  if (object) object->name[0] = '\0';
  pthread_mutex_unlock(&store->mutex);
  return object ? KJIT_REMOTE_DONE : KJIT_REMOTE_ABSENT;
}

/* How many objects of a store are leases. */
static inline int count_leases(struct memory_store *store) {
  int count = 0;
  pthread_mutex_lock(&store->mutex);
  for (int i = 0; i < OBJECTS; i++)
    count += store->objects[i].name[0] && !memcmp(store->objects[i].data, "kjit-lease", 10);
  pthread_mutex_unlock(&store->mutex);
  return count;
}

static inline void memory_close(void *user) {
  atomic_fetch_add(&((struct memory_store *)user)->closed, 1);
}

struct fleet {
  struct cache_world *world;
  struct memory_store stores[2];
  kjit_remote_store tables[2];
  char key_path[TEMP_PATH_BYTES];
  const char *keys[1];
  char public_key[DIGEST_HEX_BYTES], secret_key[DIGEST_HEX_BYTES];
};

static inline int setup(void **state) {
  struct fleet *fleet = calloc(1, sizeof *fleet);
  *state = fleet;
  if (!fleet || cache_world_setup((void **)&fleet->world)) return -1;
  for (int i = 0; i < 2; i++) {
    pthread_mutex_init(&fleet->stores[i].mutex, NULL);
    fleet->tables[i] = (kjit_remote_store){.struct_size = sizeof *fleet->tables,
                                           .title = "memory",
                                           .user = &fleet->stores[i],
                                           .get = memory_get,
                                           .put = memory_put,
                                           .close = memory_close};
  }
  fleet->world->options.remote_stores = fleet->tables;
  fleet->world->options.remote_store_count = 1;
  return 0;
}

static inline int teardown(void **state) {
  struct fleet *fleet = *state;
  cache_world_teardown((void **)&fleet->world);
  for (int i = 0; i < 2; i++)
    for (int at = 0; at < OBJECTS; at++)
      free(fleet->stores[i].objects[at].data);
  free(fleet);
  return 0;
}

/* A new machine: an empty folder, and the same stores. */
static inline void next_machine(struct fleet *fleet) {
  struct cache_world *world = fleet->world;
  builder_destroy(world->builder);
  world->builder = NULL;
  temp_folder_remove(&world->folder);
  assert_int_equal(0, temp_folder_create(&world->folder));
  temp_folder_path(&world->folder, "cache", world->cache_dir);
  if (fleet->secret_key[0]) {
    char line[128];
    const int bytes = snprintf(line, sizeof line, "kjit-secret-key 1 %s\n", fleet->secret_key);
    assert_int_equal(0, temp_folder_write(&world->folder, "a.key", line, (size_t)bytes));
    temp_folder_path(&world->folder, "a.key", fleet->key_path);
  }
  assert_status(KJIT_OK, cache_world_open(world, NULL), NULL);
}

static inline void make_keys(struct fleet *fleet) {
  struct trust_key seed, key;
  struct digest digest;
  trust_generate(&seed, &key);
  memcpy(digest.bytes, seed.bytes, sizeof digest.bytes);
  digest_to_hex(&digest, fleet->secret_key);
  memcpy(digest.bytes, key.bytes, sizeof digest.bytes);
  digest_to_hex(&digest, fleet->public_key);
  fleet->keys[0] = fleet->public_key;
}

static inline kjit_origin get(struct fleet *fleet, long number) {
  kjit_origin origin = KJIT_ORIGIN_NONE;
  kjit_error error = {0};
  assert_status(KJIT_OK, cache_world_get(fleet->world, number, 0, &origin, &error), &error);
  return origin;
}

static inline uint64_t count(struct fleet *fleet, enum cache_counter which) {
  return cache_world_count(fleet->world, which);
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_remote__##name, setup, teardown)

/* The stores of the machine's builder; NULL: it asks none. */
static inline struct remote *remote_of(const struct fleet *fleet) {
  const struct builder *builder = fleet->world->builder;
  assert_non_null(builder);
  return builder ? builder->remote : NULL;
}

#endif
