/* Signed entries: who is believed, and what a forger can try. */
#include "fleet.h"

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
  assert_null(remote_of(fleet));
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

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(signed_entry_is_taken),
      CASE(unsigned_entry_is_refused_by_who_trusts_keys),
      CASE(unknown_signer_is_refused),
      CASE(signature_of_another_entry_is_refused),
      CASE(replay_under_another_key_is_refused),
      CASE(signed_store_is_not_asked_without_keys),
      CASE(several_keys_are_trusted_during_a_rotation),
      CASE(signer_signs_no_strangers_entry),
      CASE(malformed_keys_fail_the_creation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
