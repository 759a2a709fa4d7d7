/* Opening libcuda for card.h: dlopen(), then every function of card_api.def by dlsym(). The signature of each is
 * compared with <cuda.h> at compile time, because a wrong one would only show as a crash. The library stays open
 * until the process ends, since libcuda does not survive being closed and opened again. */
#include "support/card_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CARD_FN(member, symbol, args)                                                                                  \
  _Static_assert(_Generic(&symbol, CUresult(*) args : 1, default : 0), #symbol " differs from <cuda.h>");
#define CARD_FN_OLD(member, symbol, args)
#include "support/card_api.def"
#undef CARD_FN
#undef CARD_FN_OLD

/* The pointer is copied, because ISO C has no conversion from dlsym()'s pointer to a function's. POSIX promises that
 * their bytes are the same. */
static bool load_symbol(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

kjit_status card_library_open(struct card *card, kjit_error *error) {
  const char *path = getenv("KJIT_LIBCUDA");
  if (!path || !*path) path = "libcuda.so.1";
  card->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!card->library) return card_fail(error, KJIT_ERR_NO_DRIVER, "no CUDA driver: %s", dlerror());
#define CARD_FN(member, symbol, args)                                                                                  \
  if (!load_symbol(card->library, #symbol, &card->api.member))                                                         \
    return card_fail(error, KJIT_ERR_NO_DRIVER, "%s has no %s: the driver is too old", path, #symbol);
#include "support/card_api.def"
#undef CARD_FN
  return KJIT_OK;
}
