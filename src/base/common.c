/* The library's version and the names and texts of its status codes. Both switches are made from KJIT_STATUS_MAP, so
 * that a status cannot be without a name. Everything returned is in static storage; any thread may ask. */
#include <kjit/common.h>

const char *kjit_version(void) {
  return KJIT_VERSION_STRING;
}

const char *kjit_status_name(kjit_status status) {
  switch (status) {
#define STATUS_NAME(name, value, text)                                                                                 \
  case KJIT_##name:                                                                                                    \
    return "KJIT_" #name;
    KJIT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
  case KJIT_STATUS_FORCE_INT:
    break;
  }
  return "KJIT_ERR_?";
}

const char *kjit_status_text(kjit_status status) {
  switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                 \
  case KJIT_##name:                                                                                                    \
    return text;
    KJIT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
  case KJIT_STATUS_FORCE_INT:
    break;
  }
  return "unknown status";
}
