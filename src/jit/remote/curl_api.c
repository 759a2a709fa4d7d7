/* Opening libcurl: the first caller opens it for the whole process, under a mutex, and looks its functions up. It is
 * not closed, because curl_global_cleanup() would also end what the program itself does with libcurl. A failure is not
 * kept: the library may be installed meanwhile. */
#include "jit/remote/curl_api.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/error.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct curl_api loaded;
static bool is_loaded;

static kjit_status resolve(struct curl_api *api, const struct dynlib *library, kjit_error *error) {
  static const struct {
    const char *name;
    size_t offset;
  } functions[] = {
#define CURL_FN(type, name, args) {#name, offsetof(struct curl_api, name)},
#include "jit/remote/curl_api.def"
#undef CURL_FN
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *symbol = dynlib_symbol(library, functions[i].name);
    if (!symbol) return error_set(error, KJIT_ERR_NOT_FOUND, "%s: lacks %s", library->path, functions[i].name);
    /* POSIX, not C, says that a function's address fits a data pointer. */
    memcpy((char *)api + functions[i].offset, &symbol, sizeof symbol);
  }
  return KJIT_OK;
}

static kjit_status load(kjit_error *error) {
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
  struct dynlib library = {0};
  kjit_error reason = {0};
  kjit_status status = KJIT_ERR_NOT_FOUND;
  for (size_t i = 0; i < sizeof names / sizeof *names && status != KJIT_OK; i++)
    status = dynlib_open(&library, names[i], i ? NULL : &reason);
  if (status != KJIT_OK)
    return error_set(error, status, "http and s3 need libcurl 7 or 8 (package libcurl4): %.200s", reason.message);
  status = resolve(&loaded, &library, error);
  if (status == KJIT_OK && loaded.curl_global_init(CURL_GLOBAL_DEFAULT) != CURL_OK)
    status = error_set(error, KJIT_ERR_NOT_FOUND, "%s: cannot be initialised", library.path);
  is_loaded = status == KJIT_OK;
  return status;
}

kjit_status curl_api_open(const struct curl_api **api, kjit_error *error) {
  pthread_mutex_lock(&mutex);
  const kjit_status status = is_loaded ? KJIT_OK : load(error);
  pthread_mutex_unlock(&mutex);
  *api = &loaded;
  return status;
}
