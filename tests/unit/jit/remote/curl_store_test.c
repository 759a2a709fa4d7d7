/* Stores over HTTP, without a network: a call of several requests keeps the bound of one, and what each answer means.
 * libcurl's place is taken by a table of functions, which says how long a request lasted. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "jit/remote/object_lease.h"
#include "jit/remote/remote_clock.h"
#include "jit/remote/remote_url.h"
#include "support/fake_curl.h"
#include "support/test.h"

#define NAME     "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define TOTAL_MS 10000 /* so long that a busy machine does not use it up */
#define SHORT_MS 100

/* What the server does with each request, by its place in the call. */
struct script {
  int lasts_ms;
  long codes[8];
  int fails[8]; /* libcurl's code; 0: it goes well */
  const char *bodies[8];
  long asked_ms[8]; /* the time limits of the requests */
};

static struct mem mem;
static atomic_bool leases_work; /* as the tier keeps it of its store */

static int follow_script(struct fake_curl *curl) {
  struct script *script = curl->user;
  const long at = curl->performed - 1;
  assert_in_range(at, 0, 7);
  script->asked_ms[at] = curl->timeout_ms;
  const int64_t until_ns = remote_clock_ns() + script->lasts_ms * (int64_t)1000000;
  while (remote_clock_ns() < until_ns)
    usleep(1000);
  curl->code = script->codes[at];
  if (script->fails[at]) return script->fails[at];
  const char *const body = script->bodies[at];
  return body && !fake_curl_body(curl, body, strlen(body)) ? 23 : CURL_OK;
}

static kjit_remote_store open_store(struct script *script) {
  kjit_remote_store store = {.struct_size = sizeof store};
  const struct remote_url url = {.address = "http://cache", .connect_ms = 500};
  mem_init(&mem, NULL);
  atomic_store(&leases_work, false);
  fake_curl = (struct fake_curl){.answer = follow_script, .user = script};
  assert_status(KJIT_OK, curl_store_open_with(&store, &mem, &url, &fake_curl_api, NULL), NULL);
  return store;
}

static int write_nothing(void *user, const void *data, size_t bytes) {
  (void)user, (void)data, (void)bytes;
  return 0;
}

static void test_curl_store__lease_of_several_requests_keeps_one_bound(void **state) {
  (void)state;
  /* The lease is there, is over, is removed and taken, and the server's conditions are known by then. */
  struct script script = {
      .lasts_ms = 30, .codes = {412, 200, 204, 201}, .bodies = {NULL, "kjit-lease 1 1000 nobody\n", NULL, NULL}};
  kjit_remote_store store = open_store(&script);
  const kjit_remote_answer answer = object_lease_take(&store, &leases_work, NAME, "owner", 30, TOTAL_MS);
  assert_int_equal(KJIT_REMOTE_DONE, answer);
  assert_int_equal(4, fake_curl.performed);
  for (int i = 1; i < 4; i++)
    assert_true(script.asked_ms[i] <= TOTAL_MS - 30 * i);
  store.close(store.user);
}

static void test_curl_store__lease_asks_no_more_when_its_time_is_over(void **state) {
  (void)state;
  struct script script = {.lasts_ms = SHORT_MS / 2 + 10, .codes = {412, 200, 204, 201, 412}};
  kjit_remote_store store = open_store(&script);
  assert_int_equal(KJIT_REMOTE_FAILED, object_lease_take(&store, &leases_work, NAME, "owner", 30, SHORT_MS));
  assert_in_range(fake_curl.performed, 0, 2); /* on a busy machine the time may be over before the first */
  store.close(store.user);
}

/* A store that refuses the lease and cannot say whose it is would else be waited for until the bound. */
static void test_curl_store__lease_that_cannot_be_read_is_a_failure(void **state) {
  (void)state;
  struct script broken = {.codes = {412, 500}}, given_back = {.codes = {412, 404}};
  kjit_remote_store store = open_store(&broken);
  assert_int_equal(KJIT_REMOTE_FAILED, object_lease_take(&store, &leases_work, NAME, "owner", 30, TOTAL_MS));
  store.close(store.user);
  store = open_store(&given_back);
  assert_int_equal(KJIT_REMOTE_ABSENT, object_lease_take(&store, &leases_work, NAME, "owner", 30, TOTAL_MS));
  store.close(store.user);
}

/* The store is sound, so its failure counter must not see what somebody else has put at a lease's name. */
static void test_curl_store__object_too_long_for_a_lease_is_replaced(void **state) {
  (void)state;
  char body[200 + 1] = "kjit-lease 1 ";
  memset(body + strlen(body), '9', sizeof body - 1 - strlen(body));
  struct script taken = {.codes = {412, 200, 204, 201}, .bodies = {NULL, body}};
  struct script released = {.codes = {200}, .bodies = {body}};
  kjit_remote_store store = open_store(&taken);
  assert_int_equal(KJIT_REMOTE_DONE, object_lease_take(&store, &leases_work, NAME, "owner", 30, TOTAL_MS));
  assert_int_equal(4, fake_curl.performed);
  store.close(store.user);
  store = open_store(&released);
  assert_int_equal(KJIT_REMOTE_ABSENT, object_lease_release(&store, NAME, "owner", TOTAL_MS));
  assert_int_equal(1, fake_curl.performed); /* what is not this owner's stays */
  store.close(store.user);
}

static void test_curl_store__release_keeps_one_bound(void **state) {
  (void)state;
  struct script script = {
      .lasts_ms = SHORT_MS + 10, .codes = {200, 204}, .bodies = {"kjit-lease 1 1000 owner\n", NULL}};
  kjit_remote_store store = open_store(&script);
  assert_int_equal(KJIT_REMOTE_FAILED, object_lease_release(&store, NAME, "owner", SHORT_MS));
  assert_in_range(fake_curl.performed, 0, 1);
  store.close(store.user);
}

static void test_curl_store__server_without_conditions_has_no_leases(void **state) {
  (void)state;
  struct script script = {.codes = {201, 201, 204}};
  kjit_remote_store store = open_store(&script);
  assert_int_equal(KJIT_REMOTE_UNSUPPORTED, object_lease_take(&store, &leases_work, NAME, "owner", 30, TOTAL_MS));
  assert_string_equal("DELETE", fake_curl.method); /* the lease is not left lying there */
  store.close(store.user);
}

/* What the code of an answer to a GET, a PUT and a conditional PUT means. */
static void test_curl_store__codes_mean_what_http_says(void **state) {
  (void)state;
  static const struct {
    long code;
    kjit_remote_answer get, put, put_if_absent;
  } rows[] = {{200, KJIT_REMOTE_DONE, KJIT_REMOTE_DONE, KJIT_REMOTE_DONE},
              {201, KJIT_REMOTE_FAILED, KJIT_REMOTE_DONE, KJIT_REMOTE_DONE},
              {204, KJIT_REMOTE_FAILED, KJIT_REMOTE_DONE, KJIT_REMOTE_DONE},
              {206, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {302, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {403, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {404, KJIT_REMOTE_ABSENT, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {410, KJIT_REMOTE_ABSENT, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {412, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_ABSENT},
              {500, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED},
              {501, KJIT_REMOTE_FAILED, KJIT_REMOTE_FAILED, KJIT_REMOTE_UNSUPPORTED}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct script script = {.codes = {rows[i].code, rows[i].code, rows[i].code}};
    kjit_remote_store store = open_store(&script);
    assert_int_equal(rows[i].get, store.get(store.user, NAME, TOTAL_MS, write_nothing, NULL));
    assert_int_equal(0, fake_curl.follows);
    assert_int_equal(rows[i].put, store.put(store.user, NAME, "x", 1, 0, TOTAL_MS));
    assert_int_equal(rows[i].put_if_absent, store.put(store.user, NAME, "x", 1, 1, TOTAL_MS));
    store.close(store.user);
  }
}

/* The last failure, as a log line has it. */
static void test_curl_store__says_why_it_failed(void **state) {
  (void)state;
  struct script script = {.codes = {500, 500, 500}, .fails = {0, 7, 0}};
  char text[80];
  kjit_remote_store store = open_store(&script);
  static const char *const wanted[] = {"the server answered 500", "of libcurl's error 7 (Could not connect to server)",
                                       "the server answered 500"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(KJIT_REMOTE_FAILED, store.get(store.user, NAME, TOTAL_MS, write_nothing, NULL));
    store.why(store.user, text, sizeof text);
    assert_string_equal(wanted[i], text);
  }
  store.close(store.user);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_curl_store__lease_of_several_requests_keeps_one_bound),
      cmocka_unit_test(test_curl_store__lease_asks_no_more_when_its_time_is_over),
      cmocka_unit_test(test_curl_store__lease_that_cannot_be_read_is_a_failure),
      cmocka_unit_test(test_curl_store__object_too_long_for_a_lease_is_replaced),
      cmocka_unit_test(test_curl_store__release_keeps_one_bound),
      cmocka_unit_test(test_curl_store__server_without_conditions_has_no_leases),
      cmocka_unit_test(test_curl_store__codes_mean_what_http_says),
      cmocka_unit_test(test_curl_store__says_why_it_failed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
