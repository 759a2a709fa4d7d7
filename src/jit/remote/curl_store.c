/* Stores that speak HTTP: servers in the layout of Bazel's HTTP cache, and S3. Both by libcurl.
 *
 * An object is "<URL>/ac/<64 hex digits>". GET, PUT, HEAD and DELETE are one function, exchange(), which takes a handle
 * from the pool, so that connections are used again. Redirects are not followed: what another server says is not what
 * was asked for. Answers other than 200 are read and forgotten, up to a bound.
 *
 * Any thread. After curl_store_open() the struct changes by its atomics alone. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "jit/remote/curl_api.h"
#include "jit/remote/remote_pool.h"
#include "jit/remote/remote_url.h"

#define URL_MAX_BYTES    2048
#define HEADER_MAX_BYTES 4096
/* What is read of an answer that is no object, so that the connection can be used again. */
#define IGNORED_MAX_BYTES 65536

struct curl_store {
  const struct mem *mem;
  const struct curl_api *api;
  struct remote_pool pool;
  bool is_s3;
  uint32_t connect_ms;
  char *base;        /* without a "/" at its end */
  char *sigv4;       /* NULL: requests are not signed */
  char *user;        /* "user:password" of S3; NULL: that of the URL, if any */
  char *token;       /* a header; NULL: none */
  atomic_long fault; /* of the last call that failed: libcurl's code, or below 0 the answer's */
};

/* One request and its answer. */
struct exchange {
  const struct curl_api *api;
  void *handle;
  const char *method;
  const void *data; /* of a PUT */
  size_t bytes;
  bool only_if_absent;
  kjit_remote_write_fn write;
  void *write_user;
  size_t ignored;
  long code; /* 0: no answer */
};

static size_t receive(char *data, size_t size, size_t count, void *user) {
  struct exchange *const exchange = user;
  const size_t bytes = size * count;
  long code = 0;
  (void)exchange->api->curl_easy_getinfo(exchange->handle, CURL_RESPONSE_CODE, &code);
  if (code == 200 && exchange->write) return exchange->write(exchange->write_user, data, bytes) ? 0 : bytes;
  exchange->ignored += bytes;
  return exchange->ignored <= IGNORED_MAX_BYTES ? bytes : 0;
}

static bool set_request(const struct curl_store *store, struct exchange *exchange, void *headers) {
  const struct curl_api *api = exchange->api;
  void *const handle = exchange->handle;
  int failed = 0;
  if (exchange->data) {
    failed |= api->curl_easy_setopt(handle, CURL_POSTFIELDS, exchange->data);
    failed |= api->curl_easy_setopt(handle, CURL_POSTFIELDSIZE_LARGE, (int64_t)exchange->bytes);
  } else if (!strcmp(exchange->method, "HEAD")) {
    failed |= api->curl_easy_setopt(handle, CURL_NOBODY, 1L);
  } else {
    failed |= api->curl_easy_setopt(handle, CURL_HTTPGET, 1L);
  }
  failed |= api->curl_easy_setopt(handle, CURL_CUSTOMREQUEST, exchange->method);
  failed |= api->curl_easy_setopt(handle, CURL_HTTPHEADER, headers);
  if (store->user) failed |= api->curl_easy_setopt(handle, CURL_USERPWD, store->user);
  if (store->sigv4) failed |= api->curl_easy_setopt(handle, CURL_AWS_SIGV4, store->sigv4);
  return !failed;
}

static bool set_limits(const struct curl_store *store, struct exchange *exchange, uint32_t timeout_ms) {
  const struct curl_api *api = exchange->api;
  void *const handle = exchange->handle;
  const long total_ms = timeout_ms, connect_ms = store->connect_ms < timeout_ms ? store->connect_ms : timeout_ms;
  int failed = api->curl_easy_setopt(handle, CURL_NOSIGNAL, 1L);
  failed |= api->curl_easy_setopt(handle, CURL_TIMEOUT_MS, total_ms);
  failed |= api->curl_easy_setopt(handle, CURL_CONNECTTIMEOUT_MS, connect_ms);
  failed |= api->curl_easy_setopt(handle, CURL_FOLLOWLOCATION, 0L);
  failed |= api->curl_easy_setopt(handle, CURL_PROTOCOLS, CURL_HTTP_AND_HTTPS);
  failed |= api->curl_easy_setopt(handle, CURL_USERAGENT, "kjit");
  failed |= api->curl_easy_setopt(handle, CURL_WRITEFUNCTION, receive);
  failed |= api->curl_easy_setopt(handle, CURL_WRITEDATA, exchange);
  return !failed;
}

/* The headers of a request; NULL when out of memory. */
static void *make_headers(const struct curl_store *store, const struct exchange *exchange) {
  const struct curl_api *api = exchange->api;
  const char *lines[4] = {"Expect:"}; /* no "100-continue", which costs a second where a server does not know it */
  size_t count = 1;
  void *list = NULL;
  if (exchange->data) lines[count++] = "Content-Type: application/octet-stream";
  if (exchange->only_if_absent) lines[count++] = "If-None-Match: *";
  if (store->token) lines[count++] = store->token;
  for (size_t i = 0; i < count; i++) {
    void *const longer = api->curl_slist_append(list, lines[i]);
    if (!longer) api->curl_slist_free_all(list);
    if (!longer) return NULL;
    list = longer;
  }
  return list;
}

/* Do one request. False without an answer; else `exchange->code` is its code. */
static bool exchange_run(struct curl_store *store, struct exchange *exchange, const char *name, uint32_t timeout_ms) {
  const struct curl_api *api = exchange->api = store->api;
  char url[URL_MAX_BYTES + 80];
  snprintf(url, sizeof url, "%s/ac/%s", store->base, name);
  exchange->handle = remote_pool_take(&store->pool);
  if (!exchange->handle) exchange->handle = api->curl_easy_init();
  void *headers = exchange->handle ? make_headers(store, exchange) : NULL;
  int result = -1;
  if (headers && api->curl_easy_setopt(exchange->handle, CURL_URL, url) == CURL_OK &&
      set_limits(store, exchange, timeout_ms) && set_request(store, exchange, headers)) {
    result = api->curl_easy_perform(exchange->handle);
    (void)api->curl_easy_getinfo(exchange->handle, CURL_RESPONSE_CODE, &exchange->code);
  }
  if (headers) api->curl_slist_free_all(headers);
  if (!exchange->handle) return false;
  api->curl_easy_reset(exchange->handle); /* keeps the connection */
  exchange->handle = remote_pool_give(&store->pool, exchange->handle);
  if (exchange->handle) api->curl_easy_cleanup(exchange->handle);
  /* The body of a refusal may be longer than what is read of it. */
  const bool answered = result == CURL_OK || (exchange->ignored > IGNORED_MAX_BYTES && exchange->code >= 400);
  if (!answered) atomic_store(&store->fault, result < 0 ? CURL_FAILED_INIT : result);
  return answered;
}

static kjit_remote_answer answer_of(const struct curl_store *store, const struct exchange *exchange) {
  switch (exchange->code) {
  case 200:
    return KJIT_REMOTE_DONE;
  case 201:
  case 204:
    return exchange->data || !strcmp(exchange->method, "DELETE") ? KJIT_REMOTE_DONE : KJIT_REMOTE_FAILED;
  case 403:
    /* S3 says so of what is not there, to those who may not list the bucket. */
    return store->is_s3 && !exchange->data ? KJIT_REMOTE_ABSENT : KJIT_REMOTE_FAILED;
  case 404:
  case 410:
    return exchange->data ? KJIT_REMOTE_FAILED : KJIT_REMOTE_ABSENT;
  case 409:
  case 412:
    return exchange->only_if_absent ? KJIT_REMOTE_ABSENT : KJIT_REMOTE_FAILED;
  case 400:
  case 405:
  case 501:
    return exchange->only_if_absent ? KJIT_REMOTE_UNSUPPORTED : KJIT_REMOTE_FAILED;
  default:
    return KJIT_REMOTE_FAILED;
  }
}

static kjit_remote_answer ask(struct curl_store *store, struct exchange *exchange, const char *name,
                              uint32_t timeout_ms) {
  if (!exchange_run(store, exchange, name, timeout_ms)) return KJIT_REMOTE_FAILED;
  const kjit_remote_answer answer = answer_of(store, exchange);
  if (answer == KJIT_REMOTE_FAILED) atomic_store(&store->fault, -exchange->code);
  return answer;
}

static void store_why(void *user, char *text, size_t bytes) {
  struct curl_store *const store = user;
  const long fault = atomic_load(&store->fault);
  if (fault < 0)
    snprintf(text, bytes, "the server answered %ld", -fault);
  else
    snprintf(text, bytes, "of libcurl's error %ld (%s)", fault, store->api->curl_easy_strerror((int)fault));
}

static kjit_remote_answer store_get(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                                    void *write_user) {
  struct exchange exchange = {.method = "GET", .write = write, .write_user = write_user};
  return ask(user, &exchange, name, timeout_ms);
}

static kjit_remote_answer store_put(void *user, const char *name, const void *data, size_t bytes,
                                    uint32_t lease_seconds, uint32_t timeout_ms) {
  struct exchange exchange = {.method = "PUT", .data = data, .bytes = bytes, .only_if_absent = lease_seconds != 0};
  return ask(user, &exchange, name, timeout_ms);
}

static kjit_remote_answer store_exists(void *user, const char *name, uint32_t timeout_ms) {
  struct exchange exchange = {.method = "HEAD"};
  return ask(user, &exchange, name, timeout_ms);
}

static kjit_remote_answer store_remove(void *user, const char *name, uint32_t timeout_ms) {
  struct exchange exchange = {.method = "DELETE"};
  return ask(user, &exchange, name, timeout_ms);
}

/* ---- Opening ---- */

static void store_close(void *user) {
  struct curl_store *store = user;
  const struct mem *const mem = store->mem;
  for (void *handle; (handle = remote_pool_take(&store->pool));)
    store->api->curl_easy_cleanup(handle);
  if (store->user) explicit_bzero(store->user, strlen(store->user));
  mem_free(mem, store->base);
  mem_free(mem, store->sigv4);
  mem_free(mem, store->user);
  mem_free(mem, store->token);
  mem_free(mem, store);
}

/* A text by a format, in memory of its own. NULL when out of memory or too long. */
static char *make_text(const struct mem *mem, const char *format, ...) KJIT_PRINTF(2, 3);
static char *make_text(const struct mem *mem, const char *format, ...) {
  char *const text = mem_alloc(mem, HEADER_MAX_BYTES);
  va_list arguments;
  va_start(arguments, format);
  const int bytes = text ? vsnprintf(text, HEADER_MAX_BYTES, format, arguments) : -1;
  va_end(arguments);
  if (bytes >= 0 && bytes < HEADER_MAX_BYTES) return text;
  mem_free(mem, text);
  return NULL;
}

static const char *environment(const char *name, const char *otherwise) {
  const char *const value = secure_getenv(name);
  return value && *value ? value : otherwise;
}

/* Where a bucket is, and by which key it is asked. */
static kjit_status open_s3(struct curl_store *store, const struct remote_url *url, kjit_error *error) {
  const struct mem *mem = store->mem;
  char *const bucket = mem_strdup(mem, url->address + strlen("s3://"));
  const char *region = url->region, *endpoint = url->endpoint ? url->endpoint : environment("AWS_ENDPOINT_URL", NULL);
  const char *const id = environment("AWS_ACCESS_KEY_ID", NULL), *secret = environment("AWS_SECRET_ACCESS_KEY", NULL);
  const char *const token = environment("AWS_SESSION_TOKEN", NULL);
  if (!region) region = environment("AWS_REGION", environment("AWS_DEFAULT_REGION", "us-east-1"));
  if (!bucket) return error_no_memory(error);
  char *const slash = strchr(bucket, '/');
  if (slash) *slash = '\0';
  store->is_s3 = true;
  if (endpoint)
    store->base = make_text(mem, "%s/%s", endpoint, url->address + strlen("s3://"));
  else
    store->base = make_text(mem, "https://%s.s3.%s.amazonaws.com/%s", bucket, region, slash ? slash + 1 : "");
  const bool named = *bucket != '\0';
  mem_free(mem, bucket);
  if (!named) return error_set(error, KJIT_ERR_INVALID_ARG, "must be s3://BUCKET[/PREFIX]");
  if (!store->base) return error_no_memory(error);
  if (!id || !secret) return KJIT_OK; /* a bucket that everybody may read */
  store->user = make_text(mem, "%s:%s", id, secret);
  store->sigv4 = make_text(mem, "aws:amz:%s:s3", region);
  if (token) store->token = make_text(mem, "x-amz-security-token: %s", token);
  return store->user && store->sigv4 && (!token || store->token) ? KJIT_OK : error_no_memory(error);
}

static kjit_status set_up(struct curl_store *store, const struct remote_url *url, kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (!strncmp(url->address, "s3://", 5)) {
    status = open_s3(store, url, error);
  } else {
    store->base = mem_strdup(store->mem, url->address);
    if (!store->base) status = error_no_memory(error);
  }
  if (status != KJIT_OK) return status;
  assert(store->base);
  size_t bytes = strlen(store->base);
  if (bytes > URL_MAX_BYTES) return error_set(error, KJIT_ERR_INVALID_ARG, "longer than %d bytes", URL_MAX_BYTES);
  while (bytes && store->base[bytes - 1] == '/')
    store->base[--bytes] = '\0';
  return KJIT_OK;
}

kjit_status curl_store_open_with(kjit_remote_store *out, const struct mem *mem, const struct remote_url *url,
                                 const struct curl_api *api, kjit_error *error) {
  struct curl_store *store = mem_alloc(mem, sizeof *store);
  if (!store) return error_no_memory(error);
  store->mem = mem;
  store->api = api;
  store->connect_ms = (uint32_t)url->connect_ms;
  const kjit_status status = set_up(store, url, error);
  if (status != KJIT_OK) {
    store_close(store);
    return status;
  }
  out->user = store;
  out->get = store_get;
  out->put = store_put;
  out->exists = store_exists;
  out->remove = store_remove;
  out->why = store_why;
  out->close = store_close;
  return KJIT_OK;
}

kjit_status curl_store_open(kjit_remote_store *out, const struct mem *mem, const struct remote_url *url,
                            kjit_error *error) {
  const struct curl_api *api;
  const kjit_status status = curl_api_open(&api, error);
  return status == KJIT_OK ? curl_store_open_with(out, mem, url, api, error) : status;
}
