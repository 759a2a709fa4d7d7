/* libcurl, opened when a store needs it. Its ABI has been libcurl.so.4 since 2006: the numbers below are part of it,
 * and its headers are not needed. */
#ifndef KJIT_JIT_REMOTE_CURL_API_H
#define KJIT_JIT_REMOTE_CURL_API_H

#include <kjit/common.h>

struct curl_api {
#define CURL_FN(type, name, args) type(*name) args;
#include "jit/remote/curl_api.def"
#undef CURL_FN
};

/* Options: the type that libcurl reads is the number's ten thousands (long, pointer, function, 64-bit integer). */
enum curl_option {
  CURL_NOBODY = 44,
  CURL_FOLLOWLOCATION = 52,
  CURL_HTTPGET = 80,
  CURL_BUFFERSIZE = 98,
  CURL_NOSIGNAL = 99,
  CURL_TIMEOUT_MS = 155,
  CURL_CONNECTTIMEOUT_MS = 156,
  CURL_PROTOCOLS = 181,
  CURL_WRITEDATA = 10001,
  CURL_URL = 10002,
  CURL_USERPWD = 10005,
  CURL_POSTFIELDS = 10015,
  CURL_USERAGENT = 10018,
  CURL_HTTPHEADER = 10023,
  CURL_CUSTOMREQUEST = 10036,
  CURL_AWS_SIGV4 = 10305,
  CURL_WRITEFUNCTION = 20011,
  CURL_POSTFIELDSIZE_LARGE = 30120
};
#define CURL_RESPONSE_CODE  0x200002
#define CURL_OK             0
#define CURL_FAILED_INIT    2
#define CURL_UNKNOWN_OPTION 48
#define CURL_GLOBAL_DEFAULT 3L
#define CURL_HTTP_AND_HTTPS 3L

/* Open the library once for the process; it stays. KJIT_ERR_NOT_FOUND says what is missing. Thread-safe. */
kjit_status curl_api_open(const struct curl_api **api, kjit_error *error);

#endif
