/* A table in place of libcurl's: it keeps what a request asks for, and gives the answer that a test has set. One
 * request at a time; one thread. */
#ifndef KJIT_TESTS_SUPPORT_FAKE_CURL_H
#define KJIT_TESTS_SUPPORT_FAKE_CURL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "jit/remote/curl_api.h"

typedef size_t (*fake_curl_write_fn)(char *data, size_t size, size_t count, void *user);

/* One request and its answer. */
struct fake_curl {
  /* What was asked. */
  char method[16], url[256];
  const void *data;
  int64_t bytes;
  long timeout_ms, connect_ms, follows;
  bool only_if_absent;
  long performed;
  fake_curl_write_fn write;
  void *write_user;
  /* What is answered: called by curl_easy_perform(); gives the body to fake_curl_body(), and returns libcurl's code. */
  int (*answer)(struct fake_curl *curl);
  long code;
  void *user; /* of the test */
};

static struct fake_curl fake_curl;

/* Hand the next part of the body over. False when the store does not want more: libcurl then ends the transfer. */
static inline bool fake_curl_body(struct fake_curl *curl, const void *data, size_t bytes) {
  return curl->write((char *)(uintptr_t)data, 1, bytes, curl->write_user) == bytes;
}

static int fake_global_init(long flags) {
  (void)flags;
  return CURL_OK;
}

static void *fake_easy_init(void) {
  return &fake_curl;
}

static void fake_easy_cleanup(void *handle) {
  (void)handle;
}

static void fake_easy_reset(void *handle) {
  struct fake_curl *const curl = handle;
  curl->data = NULL;
  curl->bytes = 0;
  curl->only_if_absent = false;
}

static int fake_easy_setopt(void *handle, int option, ...) {
  struct fake_curl *const curl = handle;
  va_list list;
  va_start(list, option);
  if (option == CURL_URL)
    snprintf(curl->url, sizeof curl->url, "%s", va_arg(list, const char *));
  else if (option == CURL_CUSTOMREQUEST)
    snprintf(curl->method, sizeof curl->method, "%s", va_arg(list, const char *));
  else if (option == CURL_TIMEOUT_MS)
    curl->timeout_ms = va_arg(list, long);
  else if (option == CURL_CONNECTTIMEOUT_MS)
    curl->connect_ms = va_arg(list, long);
  else if (option == CURL_FOLLOWLOCATION)
    curl->follows = va_arg(list, long);
  else if (option == CURL_POSTFIELDS)
    curl->data = va_arg(list, const void *);
  else if (option == CURL_POSTFIELDSIZE_LARGE)
    curl->bytes = va_arg(list, int64_t);
  else if (option == CURL_WRITEFUNCTION)
    curl->write = va_arg(list, fake_curl_write_fn);
  else if (option == CURL_WRITEDATA)
    curl->write_user = va_arg(list, void *);
  va_end(list);
  return CURL_OK;
}

static int fake_easy_perform(void *handle) {
  struct fake_curl *const curl = handle;
  curl->performed++;
  return curl->answer(curl);
}

static const char *fake_easy_strerror(int code) {
  return code == 7 ? "Could not connect to server" : "another error";
}

static int fake_easy_getinfo(void *handle, int info, ...) {
  const struct fake_curl *const curl = handle;
  va_list list;
  va_start(list, info);
  if (info == CURL_RESPONSE_CODE) *va_arg(list, long *) = curl->code;
  va_end(list);
  return CURL_OK;
}

/* Headers are counted, and one of them is looked for. */
static void *fake_slist_append(void *list, const char *text) {
  if (!strcmp(text, "If-None-Match: *")) fake_curl.only_if_absent = true;
  return list ? list : &fake_curl;
}

static void fake_slist_free_all(void *list) {
  (void)list;
}

static const struct curl_api fake_curl_api = {.curl_global_init = fake_global_init,
                                              .curl_easy_init = fake_easy_init,
                                              .curl_easy_cleanup = fake_easy_cleanup,
                                              .curl_easy_reset = fake_easy_reset,
                                              .curl_easy_setopt = fake_easy_setopt,
                                              .curl_easy_perform = fake_easy_perform,
                                              .curl_easy_strerror = fake_easy_strerror,
                                              .curl_easy_getinfo = fake_easy_getinfo,
                                              .curl_slist_append = fake_slist_append,
                                              .curl_slist_free_all = fake_slist_free_all};

#endif
