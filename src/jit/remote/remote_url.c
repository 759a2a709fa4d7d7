/* What KJIT_CACHE_REMOTE says: "URL[|OPTION]...[,URL...]", and the file of a signing key.
 *
 * Each URL is cut at "|" and its options are read by a table; the scheme then says which store is made. A malformed URL
 * or a missing library does not make the runtime fail: the store is left out and the log says why, without the
 * password that a URL may hold. One thread. */
#include "jit/remote/remote_url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/file.h"
#include "jit/remote/remote_internal.h"

#define SECRET_HEAD       "kjit-secret-key 1 "
#define SECRET_FILE_BYTES 256

/* Read a whole number from 1 to `most`. */
static bool read_number(const char *text, uint64_t most, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  *out = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
  return *out >= 1 && *out <= most && !errno && !*end;
}

static kjit_status read_option(struct remote_url *url, const char *option, kjit_error *error) {
  static const struct {
    const char *name;
    uint32_t flag;
  } flags[] = {{"ro", KJIT_REMOTE_READ_ONLY}, {"wo", KJIT_REMOTE_WRITE_ONLY}, {"signed", KJIT_REMOTE_SIGNED}};
  const struct {
    const char *name;
    uint64_t *out, most;
  } numbers[] = {{"connect_ms=", &url->connect_ms, 600000},
                 {"total_ms=", &url->total_ms, 600000},
                 {"ttl_s=", &url->ttl_s, UINT32_MAX}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (!strcmp(option, flags[i].name)) {
      url->flags |= flags[i].flag;
      return KJIT_OK;
    }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const size_t bytes = strlen(numbers[i].name);
    if (!strncmp(option, numbers[i].name, bytes) && read_number(option + bytes, numbers[i].most, numbers[i].out))
      return KJIT_OK;
  }
  if (*option == '@' && option[1] && url->attribute_count < REMOTE_ATTRIBUTES_MAX) {
    url->attributes[url->attribute_count++] = option + 1;
    return KJIT_OK;
  }
  if (!strncmp(option, "region=", 7)) url->region = option + 7;
  if (!strncmp(option, "endpoint=", 9)) url->endpoint = option + 9;
  if (url->region == option + 7 || url->endpoint == option + 9) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "option \"%.60s\": must be ro, wo, signed, connect_ms=, total_ms=, ttl_s=, region=, endpoint= or "
                   "one of at most %d @NAME=VALUE",
                   option, REMOTE_ATTRIBUTES_MAX);
}

/* The address without user, password and query, for people. */
static void make_title(const char *address, char title[REMOTE_TITLE_BYTES]) {
  const char *const scheme = strstr(address, "://");
  const char *host = scheme ? scheme + 3 : address;
  const char *const path = host + strcspn(host, "/?");
  for (const char *at = host; at < path; at++)
    if (*at == '@') host = at + 1;
  snprintf(title, REMOTE_TITLE_BYTES, "%.*s%.*s", scheme ? (int)(scheme + 3 - address) : 0, address,
           (int)strcspn(host, "?"), host);
}

static bool starts(const char *text, const char *with) {
  return !strncmp(text, with, strlen(with));
}

static kjit_status open_url(struct remote *remote, const struct remote_url *url, kjit_error *error) {
  struct remote_tier *tier = &remote->tiers[remote->count];
  kjit_status status = KJIT_ERR_INVALID_ARG;
  const char *const at = url->address;
  tier->store = (kjit_remote_store){.struct_size = sizeof tier->store,
                                    .flags = (uint32_t)url->flags,
                                    .timeout_ms = (uint32_t)(url->total_ms ? url->total_ms : REMOTE_TIMEOUT_MS)};
  if (starts(at, "http://") || starts(at, "https://") || starts(at, "s3://"))
    status = curl_store_open(&tier->store, remote->mem, url, error);
  else if (starts(at, "redis://") || starts(at, "redis+unix://"))
    status = redis_store_open(&tier->store, remote->mem, url, error);
  else if (starts(at, "ccache+") || starts(at, "crsh:"))
    status = helper_store_open(&tier->store, remote->mem, url, error);
  else
    error_set(error, status,
              "must begin with http://, https://, s3://, redis://, redis+unix://, ccache+SCHEME:// or crsh:");
  if (status == KJIT_OK) remote->count++;
  return status;
}

static kjit_status read_url(struct remote *remote, char *text, kjit_error *error) {
  struct remote_url url = {.connect_ms = REMOTE_CONNECT_MS};
  kjit_error found = {0};
  kjit_status status = KJIT_OK;
  char *rest = text;
  url.address = strsep(&rest, "|");
  if (!*url.address) return KJIT_OK;
  if (remote->count == REMOTE_STORES_MAX)
    return error_set(error, KJIT_ERR_INVALID_ARG, "cache_remote: at most %d stores", REMOTE_STORES_MAX);
  make_title(url.address, remote->tiers[remote->count].title);
  while (rest && status == KJIT_OK)
    status = read_option(&url, strsep(&rest, "|"), &found);
  if (status == KJIT_OK) status = open_url(remote, &url, &found);
  if (status == KJIT_OK) return KJIT_OK;
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(error);
  count_add(remote->counters, COUNT_remote_errors, 1);
  log_write(remote->log, KJIT_LOG_WARNING, "remote: %s is not used: %s", remote->tiers[remote->count].title,
            found.message);
  return KJIT_OK;
}

kjit_status remote_urls_open(struct remote *remote, const char *urls, kjit_error *error) {
  char *text = mem_strdup(remote->mem, urls), *rest = text;
  kjit_status status = text ? KJIT_OK : error_no_memory(error);
  while (rest && status == KJIT_OK)
    status = read_url(remote, strsep(&rest, ","), error);
  mem_free(remote->mem, text);
  return status;
}

kjit_status remote_signing_key_read(const struct mem *mem, const char *path, struct trust_key *seed,
                                    kjit_error *error) {
  char *text = NULL;
  size_t bytes = 0;
  struct digest key;
  kjit_status status = file_read(mem, path, SECRET_FILE_BYTES, &text, &bytes, error);
  if (status != KJIT_OK) return status;
  const size_t head = sizeof SECRET_HEAD - 1;
  const bool right = bytes >= head && !memcmp(text, SECRET_HEAD, head) &&
                     digest_from_hex(&key, text + head, strcspn(text + head, "\r\n"));
  if (right)
    memcpy(seed->bytes, key.bytes, sizeof seed->bytes);
  else
    status = error_set(error, KJIT_ERR_PARSE, "%s: a line \"" SECRET_HEAD "\" and 64 hex digits is expected", path);
  explicit_bzero(&key, sizeof key);
  explicit_bzero(text, bytes);
  mem_free(mem, text);
  return status;
}
