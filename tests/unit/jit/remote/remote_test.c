/* The remote tier over stores in memory, which fail, lie and wait as a test says. */
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
  char lease[DIGEST_HEX_BYTES];
  atomic_long gets, puts, leases, releases, closed;
  atomic_int fails, held, lies; /* each call fails; another holds every lease; each get gives 1 GiB of zeros */
  int sleep_ms;
};

static struct object *find(struct memory_store *store, const char *name) {
  for (int i = 0; i < OBJECTS; i++)
    if (!strcmp(store->objects[i].name, name)) return &store->objects[i];
  return NULL;
}

static kjit_remote_answer memory_get(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                                     void *write_user) {
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

static void store_set(struct memory_store *store, const char *name, const void *data, size_t bytes) {
  struct object *object = find(store, name);
  if (!object) object = find(store, "");
  assert_non_null(object);
  free(object->data);
  strcpy(object->name, name);
  object->data = malloc(bytes + 1);
  object->bytes = bytes;
  memcpy(object->data, data, bytes);
}

static kjit_remote_answer memory_put(void *user, const char *name, const void *data, size_t bytes, int only_if_absent,
                                     uint32_t timeout_ms) {
  struct memory_store *store = user;
  (void)timeout_ms, (void)only_if_absent;
  atomic_fetch_add(&store->puts, 1);
  if (atomic_load(&store->fails)) return KJIT_REMOTE_FAILED;
  if (store->sleep_ms) usleep((useconds_t)store->sleep_ms * 1000);
  pthread_mutex_lock(&store->mutex);
  store_set(store, name, data, bytes);
  pthread_mutex_unlock(&store->mutex);
  return KJIT_REMOTE_DONE;
}

static kjit_remote_answer memory_try_lease(void *user, const char *name, const char *owner, uint32_t seconds,
                                           uint32_t timeout_ms) {
  struct memory_store *store = user;
  (void)owner, (void)seconds, (void)timeout_ms;
  atomic_fetch_add(&store->leases, 1);
  if (atomic_load(&store->fails)) return KJIT_REMOTE_FAILED;
  pthread_mutex_lock(&store->mutex);
  const bool taken = atomic_load(&store->held) || !strcmp(store->lease, name);
  if (!taken) strcpy(store->lease, name);
  pthread_mutex_unlock(&store->mutex);
  return taken ? KJIT_REMOTE_ABSENT : KJIT_REMOTE_DONE;
}

static kjit_remote_answer memory_release(void *user, const char *name, const char *owner, uint32_t timeout_ms) {
  struct memory_store *store = user;
  (void)owner, (void)timeout_ms;
  pthread_mutex_lock(&store->mutex);
  if (!strcmp(store->lease, name)) store->lease[0] = '\0';
  pthread_mutex_unlock(&store->mutex);
  atomic_fetch_add(&store->releases, 1);
  return KJIT_REMOTE_DONE;
}

static void memory_close(void *user) {
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

static int setup(void **state) {
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

static int teardown(void **state) {
  struct fleet *fleet = *state;
  cache_world_teardown((void **)&fleet->world);
  for (int i = 0; i < 2; i++)
    for (int at = 0; at < OBJECTS; at++)
      free(fleet->stores[i].objects[at].data);
  free(fleet);
  return 0;
}

/* A new machine: an empty folder, and the same stores. */
static void next_machine(struct fleet *fleet) {
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

static void make_keys(struct fleet *fleet) {
  struct trust_key seed, key;
  struct digest digest;
  trust_generate(&seed, &key);
  memcpy(digest.bytes, seed.bytes, sizeof digest.bytes);
  digest_to_hex(&digest, fleet->secret_key);
  memcpy(digest.bytes, key.bytes, sizeof digest.bytes);
  digest_to_hex(&digest, fleet->public_key);
  fleet->keys[0] = fleet->public_key;
}

static kjit_origin get(struct fleet *fleet, long number) {
  kjit_origin origin = KJIT_ORIGIN_NONE;
  kjit_error error = {0};
  assert_status(KJIT_OK, cache_world_get(fleet->world, number, 0, &origin, &error), &error);
  return origin;
}

static uint64_t count(struct fleet *fleet, enum cache_counter which) {
  return cache_world_count(fleet->world, which);
}

static void test_remote__built_on_one_machine_is_a_hit_on_the_next(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  next_machine(fleet);
  assert_int_equal(1, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(1, atomic_load(&fleet->stores[0].closed));
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_hits));
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
}

static void test_remote__hit_is_filled_back_into_the_folder(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  get(fleet, 1);
  const long gets = atomic_load(&fleet->stores[0].gets);
  assert_status(KJIT_OK, cache_world_open(fleet->world, NULL), NULL); /* a new process of the same machine */
  assert_int_equal(KJIT_ORIGIN_USER, get(fleet, 1));
  assert_int_equal(gets, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__farther_hit_is_filled_back_into_the_nearer_store(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = &fleet->tables[1];
  next_machine(fleet);
  get(fleet, 1);
  fleet->world->options.remote_stores = fleet->tables;
  fleet->world->options.remote_store_count = 2;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  fleet->world->options.remote_store_count = 1;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
}

static void test_remote__failures_open_the_circuit(void **state) {
  struct fleet *fleet = *state;
  atomic_store(&fleet->stores[0].fails, 1);
  next_machine(fleet);
  for (long number = 1; number <= 10; number++)
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, number));
  const long calls = atomic_load(&fleet->stores[0].gets) + atomic_load(&fleet->stores[0].puts);
  assert_in_range(calls, 3, 5); /* a put and a get may be under way when the circuit opens */
  assert_int_equal((uint64_t)calls, count(fleet, COUNT_remote_errors));
}

static void test_remote__gigabyte_of_nothing_is_refused(void **state) {
  struct fleet *fleet = *state;
  atomic_store(&fleet->stores[0].lies, 1);
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
  assert_int_equal(0, count(fleet, COUNT_remote_errors));
}

static void test_remote__flipped_and_cut_entries_are_refused_and_replaced(void **state) {
  struct fleet *fleet = *state;
  struct object *object = &fleet->stores[0].objects[0];
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  const size_t bytes = object->bytes;
  for (size_t at = 0; at < bytes; at += 97) {
    object->data[at] ^= 0x10;
    next_machine(fleet);
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
    assert_int_equal(1, count(fleet, COUNT_remote_refused));
    next_machine(fleet); /* what was refused has been replaced */
    assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  }
  next_machine(fleet);
  for (size_t cut = 0; cut < bytes; cut += 61) {
    object->bytes = cut;
    next_machine(fleet);
    assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
    next_machine(fleet);
    assert_int_equal(bytes, object->bytes);
  }
}

static void test_remote__entry_of_another_key_is_refused(void **state) {
  struct fleet *fleet = *state;
  struct entry_name one;
  next_machine(fleet);
  get(fleet, 1);
  get(fleet, 2);
  next_machine(fleet);
  struct object *objects = fleet->stores[0].objects;
  cache_world_name(fleet->world, 1, &one);
  struct object *first = find(&fleet->stores[0], entry_name_key(&one));
  struct object *second = first == objects ? objects + 1 : objects;
  store_set(&fleet->stores[0], first->name, second->data, second->bytes);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
}

/* The store then has number 1 and 2, signed. */
static void fill_signed(struct fleet *fleet) {
  make_keys(fleet);
  fleet->world->options.signing_key_path = fleet->key_path;
  next_machine(fleet);
  get(fleet, 1);
  get(fleet, 2);
  fleet->world->options.signing_key_path = NULL;
  fleet->world->options.trusted_keys = fleet->keys;
  fleet->world->options.trusted_key_count = 1;
}

static void test_remote__signed_entry_is_taken(void **state) {
  struct fleet *fleet = *state;
  fill_signed(fleet);
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  fleet->world->options.trusted_key_count = 0; /* one who trusts no key takes what is signed, too */
  fleet->world->options.trusted_keys = NULL;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
}

static void test_remote__unsigned_entry_is_refused_by_who_trusts_keys(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  make_keys(fleet);
  fleet->world->options.trusted_keys = fleet->keys;
  fleet->world->options.trusted_key_count = 1;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
}

static void test_remote__unknown_signer_is_refused(void **state) {
  struct fleet *fleet = *state;
  fill_signed(fleet);
  make_keys(fleet);
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
}

/* The right key and another cubin, sound by its checksum, with the signature of the entry that it replaces; and a right
 * entry with the signature of another. */
static void test_remote__signature_of_another_entry_is_refused(void **state) {
  struct fleet *fleet = *state;
  unsigned char forged[65536];
  fill_signed(fleet);
  next_machine(fleet);
  struct object *one = &fleet->stores[0].objects[0], *two = &fleet->stores[0].objects[1];
  const size_t bytes = one->bytes;
  struct entry entry;
  const size_t entry_bytes = bytes - REMOTE_SIGNATURE_BYTES;
  unsigned char cubin[8192] = {0};
  assert_true(bytes <= sizeof forged && bytes == two->bytes);
  assert_null(entry_read(one->data, entry_bytes, &entry));
  assert_true(entry.cubin_bytes <= sizeof cubin);
  memcpy(cubin, entry.cubin, entry.cubin_bytes);
  cubin[entry.cubin_bytes - 1] ^= 1;
  entry.cubin = cubin;
  entry_write(&entry, forged);
  memcpy(forged + entry_bytes, one->data + entry_bytes, REMOTE_SIGNATURE_BYTES);
  memcpy(one->data, forged, bytes);
  memcpy(forged, two->data, entry_bytes);
  forged[bytes - 1] ^= 1;
  memcpy(two->data + entry_bytes, forged + entry_bytes, REMOTE_SIGNATURE_BYTES);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 2));
  assert_int_equal(2, count(fleet, COUNT_remote_refused));
}

/* An old entry, rightly signed, under the name of another key. */
static void test_remote__replay_under_another_key_is_refused(void **state) {
  struct fleet *fleet = *state;
  fill_signed(fleet);
  next_machine(fleet);
  struct object *one = &fleet->stores[0].objects[0], *two = &fleet->stores[0].objects[1];
  memcpy(one->data, two->data, one->bytes);
  get(fleet, 1);
  get(fleet, 2);
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
  assert_int_equal(1, count(fleet, COUNT_remote_hits));
}

static void test_remote__signed_store_is_not_asked_without_keys(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].flags = KJIT_REMOTE_SIGNED;
  next_machine(fleet);
  assert_null(fleet->world->builder->remote);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(0, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__several_keys_are_trusted_during_a_rotation(void **state) {
  struct fleet *fleet = *state;
  const char *both[2];
  char old_key[DIGEST_HEX_BYTES];
  fill_signed(fleet);
  strcpy(old_key, fleet->public_key);
  make_keys(fleet);
  both[0] = fleet->public_key;
  both[1] = old_key;
  fleet->world->options.trusted_keys = both;
  fleet->world->options.trusted_key_count = 2;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  fleet->world->options.trusted_keys = NULL;
  fleet->world->options.trusted_key_count = 0;
}

/* A signer's fill-back into the nearer store would turn a stranger's entry into a signed one. */
static void test_remote__signer_signs_no_strangers_entry(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = &fleet->tables[1];
  next_machine(fleet);
  get(fleet, 1); /* unsigned, in the farther store */
  make_keys(fleet);
  fleet->world->options.signing_key_path = fleet->key_path;
  fleet->world->options.remote_stores = fleet->tables;
  fleet->world->options.remote_store_count = 2;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_refused));
}

static void test_remote__push_and_check_compare_the_folder_with_the_store(void **state) {
  struct fleet *fleet = *state;
  kjit_remote_report report = {.struct_size = sizeof report};
  fleet->tables[0].flags = KJIT_REMOTE_READ_ONLY;
  next_machine(fleet);
  for (long number = 1; number <= 3; number++)
    get(fleet, number);
  fleet->tables[0].flags = 0;
  assert_status(KJIT_OK, cache_world_open(fleet->world, NULL), NULL);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(3, report.missing);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 1, &report, NULL), NULL);
  assert_int_equal(3, report.written);
  fleet->stores[0].objects[0].data[200] ^= 1;
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(2, report.present);
  assert_int_equal(1, report.refused);
  atomic_store(&fleet->stores[0].fails, 1);
  assert_status(KJIT_OK, builder_remote_compare(fleet->world->builder, 0, &report, NULL), NULL);
  assert_int_equal(3, report.failed);
}

static void test_remote__read_only_store_is_never_written(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].flags = KJIT_REMOTE_READ_ONLY;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  assert_int_equal(0, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(1, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__write_only_store_is_never_read(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].flags = KJIT_REMOTE_WRITE_ONLY;
  next_machine(fleet);
  get(fleet, 1);
  next_machine(fleet);
  assert_int_equal(1, atomic_load(&fleet->stores[0].puts));
  assert_int_equal(0, atomic_load(&fleet->stores[0].gets));
}

static void test_remote__end_waits_no_longer_than_it_says(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_end_ms = 50;
  next_machine(fleet);
  fleet->stores[0].sleep_ms = 100;
  for (long number = 1; number <= 10; number++)
    get(fleet, number);
  const int64_t start_ns = file_ops_system()->monotonic_ns(NULL);
  builder_destroy(fleet->world->builder);
  fleet->world->builder = NULL;
  assert_true(file_ops_system()->monotonic_ns(NULL) - start_ns < 700 * (int64_t)1000000);
  assert_true(atomic_load(&fleet->stores[0].puts) < 10);
}

static void test_remote__lease_is_taken_and_given_back(void **state) {
  struct fleet *fleet = *state;
  fleet->tables[0].try_lease = memory_try_lease;
  fleet->tables[0].release = memory_release;
  next_machine(fleet);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_int_equal(1, count(fleet, COUNT_remote_leases));
  atomic_store(&fake_nvrtc.reject, 1);
  assert_status(KJIT_ERR_COMPILE, cache_world_get(fleet->world, 2, 0, NULL, NULL), NULL);
  atomic_store(&fake_nvrtc.reject, 0);
  next_machine(fleet);
  assert_int_equal(2, atomic_load(&fleet->stores[0].releases));
  assert_string_equal("", fleet->stores[0].lease);
}

static void *give_lease_back(void *user) {
  struct fleet *fleet = user;
  usleep(100000);
  pthread_mutex_lock(&fleet->stores[0].mutex);
  store_set(&fleet->stores[0], fleet->stores[1].objects[0].name, fleet->stores[1].objects[0].data,
            fleet->stores[1].objects[0].bytes);
  pthread_mutex_unlock(&fleet->stores[0].mutex);
  atomic_store(&fleet->stores[0].held, 0);
  return NULL;
}

static void test_remote__who_lacks_the_lease_waits_for_the_entry(void **state) {
  struct fleet *fleet = *state;
  pthread_t thread;
  fleet->tables[0].try_lease = memory_try_lease;
  fleet->tables[0].release = memory_release;
  fleet->world->options.remote_stores = &fleet->tables[1]; /* the entry, made aside */
  next_machine(fleet);
  get(fleet, 1);
  fleet->world->options.remote_stores = fleet->tables;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
  assert_int_equal(0, pthread_create(&thread, NULL, give_lease_back, fleet));
  assert_int_equal(KJIT_ORIGIN_REMOTE, get(fleet, 1));
  pthread_join(thread, NULL);
  assert_int_equal(1, atomic_load(&fake_nvrtc.compiles));
  assert_int_equal(1, count(fleet, COUNT_remote_waits));
}

static void test_remote__wait_for_a_lease_ends_at_the_deadline(void **state) {
  struct fleet *fleet = *state;
  struct cache_request made;
  kjit_artifact *artifact = NULL;
  fleet->tables[0].try_lease = memory_try_lease;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
  cache_request_make(&made, 1);
  made.request.timeout_ms = 100;
  assert_status(KJIT_ERR_TIMEOUT, builder_get(fleet->world->builder, &made.request, &artifact, NULL), NULL);
  assert_null(artifact);
}

static int64_t hurried_ns; /* how far the clock below is ahead */

static int64_t hurried_monotonic_ns(void *user) {
  (void)user;
  return file_ops_system()->monotonic_ns(NULL) + hurried_ns;
}

static void hurried_sleep_ns(void *user, int64_t ns) {
  (void)user;
  hurried_ns += ns;
}

static void test_remote__lease_that_is_never_given_back_costs_its_bound(void **state) {
  struct fleet *fleet = *state;
  struct file_ops ops = *file_ops_system();
  ops.monotonic_ns = hurried_monotonic_ns;
  ops.sleep_ns = hurried_sleep_ns;
  hurried_ns = 0;
  fleet->world->parts.ops = &ops;
  fleet->tables[0].try_lease = memory_try_lease;
  next_machine(fleet);
  atomic_store(&fleet->stores[0].held, 1);
  assert_int_equal(KJIT_ORIGIN_BUILT, get(fleet, 1));
  assert_in_range(hurried_ns / 1000000000, REMOTE_LEASE_S, REMOTE_LEASE_S + 1);
  fleet->world->parts.ops = NULL;
  builder_destroy(fleet->world->builder);
  fleet->world->builder = NULL;
}

static void test_remote__bad_urls_are_left_out(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = NULL;
  fleet->world->options.remote_store_count = 0;
  fleet->world->options.cache_remote = "ftp://x,http://h/|sometimes,redis://,redis://h:123456,s3://,http://h|total_ms=0";
  next_machine(fleet);
  assert_null(fleet->world->builder->remote);
  assert_int_equal(6, count(fleet, COUNT_remote_errors));
}

static void test_remote__title_has_no_password(void **state) {
  struct fleet *fleet = *state;
  fleet->world->options.remote_stores = NULL;
  fleet->world->options.remote_store_count = 0;
  fleet->world->options.cache_remote = "redis://u:se@cret@localhost:1/2";
  next_machine(fleet);
  assert_non_null(fleet->world->builder->remote);
  assert_string_equal("redis://localhost:1/2", fleet->world->builder->remote->tiers[0].title);
}

static void test_remote__malformed_keys_fail_the_creation(void **state) {
  struct fleet *fleet = *state;
  const char *keys[] = {"0123"};
  fleet->world->options.trusted_keys = keys;
  fleet->world->options.trusted_key_count = 1;
  assert_status(KJIT_ERR_INVALID_ARG, cache_world_open(fleet->world, NULL), NULL);
  fleet->world->options.trusted_key_count = 0;
  fleet->world->options.signing_key_path = "/nonexistent.key";
  assert_status(KJIT_ERR_NOT_FOUND, cache_world_open(fleet->world, NULL), NULL);
}

static void test_remote__resident_only_asks_no_store(void **state) {
  struct fleet *fleet = *state;
  next_machine(fleet);
  get(fleet, 1);
  const long gets = atomic_load(&fleet->stores[0].gets);
  assert_status(KJIT_OK, cache_world_get(fleet->world, 1, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  assert_status(KJIT_ERR_NOT_RESIDENT, cache_world_get(fleet->world, 2, KJIT_BUILD_RESIDENT_ONLY, NULL, NULL), NULL);
  assert_int_equal(gets, atomic_load(&fleet->stores[0].gets));
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_remote__##name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(built_on_one_machine_is_a_hit_on_the_next),
      CASE(hit_is_filled_back_into_the_folder),
      CASE(farther_hit_is_filled_back_into_the_nearer_store),
      CASE(failures_open_the_circuit),
      CASE(gigabyte_of_nothing_is_refused),
      CASE(flipped_and_cut_entries_are_refused_and_replaced),
      CASE(entry_of_another_key_is_refused),
      CASE(signed_entry_is_taken),
      CASE(unsigned_entry_is_refused_by_who_trusts_keys),
      CASE(unknown_signer_is_refused),
      CASE(signature_of_another_entry_is_refused),
      CASE(replay_under_another_key_is_refused),
      CASE(signed_store_is_not_asked_without_keys),
      CASE(several_keys_are_trusted_during_a_rotation),
      CASE(signer_signs_no_strangers_entry),
      CASE(push_and_check_compare_the_folder_with_the_store),
      CASE(read_only_store_is_never_written),
      CASE(write_only_store_is_never_read),
      CASE(end_waits_no_longer_than_it_says),
      CASE(lease_is_taken_and_given_back),
      CASE(who_lacks_the_lease_waits_for_the_entry),
      CASE(wait_for_a_lease_ends_at_the_deadline),
      CASE(lease_that_is_never_given_back_costs_its_bound),
      CASE(bad_urls_are_left_out),
      CASE(title_has_no_password),
      CASE(malformed_keys_fail_the_creation),
      CASE(resident_only_asks_no_store),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
