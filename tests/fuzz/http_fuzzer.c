/* Any bytes as the answers of an HTTP server, behind libcurl's own reading: codes, parts of bodies, leases, and
 * libcurl's results. The input is one byte that says what is asked, and then the answers: code (2 bytes), result (1
 * byte), size of the body (1 byte), body. A server that has no more answers does not answer. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz/require.h"
#include "jit/remote/object_lease.h"
#include "jit/remote/remote_url.h"
#include "support/fake_curl.h"

#define NAME "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* libcurl's own codes. */
#define COULD_NOT_CONNECT 7
#define WRITE_ENDED       23

enum asked { ASK_GET, ASK_PUT, ASK_PUT_IF_ABSENT, ASK_EXISTS, ASK_LEASE, ASK_RELEASE, ASKED };

struct server {
  const uint8_t *data;
  size_t size, at;
  size_t given; /* bytes of bodies */
};

static int answer(struct fake_curl *curl) {
  struct server *const server = curl->user;
  require(curl->timeout_ms > 0 && curl->timeout_ms <= 60000 && !curl->follows);
  if (server->size - server->at < 4) {
    curl->code = 0;
    return COULD_NOT_CONNECT;
  }
  const uint8_t *const head = server->data + server->at;
  const size_t left = server->size - server->at - 4, bytes = head[3] < left ? head[3] : left;
  curl->code = (head[0] | head[1] << 8) % 1000;
  server->at += 4 + bytes;
  /* In two parts, as bodies come. */
  for (size_t from = 0, part = bytes / 3 + 1; from < bytes; from += part) {
    const size_t here = bytes - from < part ? bytes - from : part;
    server->given += here;
    if (!fake_curl_body(curl, head + 4 + from, here)) return WRITE_ENDED;
  }
  return head[2] % 4 == 3 ? head[2] : CURL_OK;
}

static int take(void *user, const void *data, size_t bytes) {
  size_t *const taken = user;
  require(data != NULL && bytes > 0);
  *taken += bytes;
  return *taken > 200;
}

static kjit_remote_answer ask(const kjit_remote_store *store, atomic_bool *works, enum asked asked, size_t *taken) {
  switch (asked) {
  case ASK_GET:
    return store->get(store->user, NAME, 60000, take, taken);
  case ASK_PUT:
  case ASK_PUT_IF_ABSENT:
    return store->put(store->user, NAME, "entry", 5, asked == ASK_PUT_IF_ABSENT ? 30 : 0, 60000);
  case ASK_EXISTS:
    return store->exists(store->user, NAME, 60000);
  case ASK_LEASE:
    return object_lease_take(store, works, NAME, "owner", 30, 60000);
  case ASK_RELEASE:
  default:
    return object_lease_release(store, NAME, "owner", 60000);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const struct remote_url url = {.address = size % 2 ? "http://cache" : "s3://bucket/prefix", .connect_ms = 500};
  kjit_remote_store store = {.struct_size = sizeof store};
  struct server server = {.data = data, .size = size, .at = 1};
  struct mem mem;
  atomic_bool works = false;
  if (!size) return 0;
  mem_init(&mem, NULL);
  fake_curl = (struct fake_curl){.answer = answer, .user = &server};
  require(curl_store_open_with(&store, &mem, &url, &fake_curl_api, NULL) == KJIT_OK);
  for (int round = 0; round < 3; round++) { /* what the store has learnt of leases stays */
    size_t taken = 0;
    const enum asked asked = (enum asked)((data[0] + round) % ASKED);
    const long before = fake_curl.performed;
    server.given = 0;
    const kjit_remote_answer said = ask(&store, &works, asked, &taken);
    const long requests = fake_curl.performed - before;
    require(said >= KJIT_REMOTE_DONE && said <= KJIT_REMOTE_UNSUPPORTED);
    require(requests >= 1 && requests <= (asked == ASK_LEASE ? 6 : asked == ASK_RELEASE ? 2 : 1));
    if (asked == ASK_GET && said == KJIT_REMOTE_DONE) require(fake_curl.code == 200 && taken == server.given);
    if (asked == ASK_GET && said == KJIT_REMOTE_DONE) input_is_taken();
    if (asked == ASK_GET && taken > 200) require(said == KJIT_REMOTE_FAILED);
  }
  store.close(store.user);
  return 0;
}
