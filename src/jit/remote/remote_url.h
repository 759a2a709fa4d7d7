/* One store as a URL names it, and the stores that are built in. */
#ifndef KJIT_JIT_REMOTE_REMOTE_URL_H
#define KJIT_JIT_REMOTE_REMOTE_URL_H

#include <kjit/remote.h>

#include "base/mem.h"

/* Most attributes of a storage helper. */
#define REMOTE_ATTRIBUTES_MAX 16

struct curl_api;

struct remote_url {
  const char *address;           /* "http://host/path" */
  const char *region, *endpoint; /* of S3; NULL: from the environment */
  uint64_t flags, connect_ms, total_ms;
  uint64_t ttl_s;                                /* of what is put into Redis; 0: for ever */
  const char *attributes[REMOTE_ATTRIBUTES_MAX]; /* "NAME=VALUE", of a storage helper */
  size_t attribute_count;
};

/* Make the store of an address. KJIT_ERR_INVALID_ARG: the address is malformed; KJIT_ERR_NOT_FOUND: the library that it
 * needs is not there; KJIT_ERR_IO: there is no folder for a helper's socket; KJIT_ERR_NO_MEMORY. No connection is made.
 */
kjit_status curl_store_open(kjit_remote_store *store, const struct mem *mem, const struct remote_url *url,
                            kjit_error *error);
/* The same over a given table of libcurl's functions. */
kjit_status curl_store_open_with(kjit_remote_store *store, const struct mem *mem, const struct remote_url *url,
                                 const struct curl_api *api, kjit_error *error);
kjit_status redis_store_open(kjit_remote_store *store, const struct mem *mem, const struct remote_url *url,
                             kjit_error *error);
kjit_status helper_store_open(kjit_remote_store *store, const struct mem *mem, const struct remote_url *url,
                              kjit_error *error);

#endif
