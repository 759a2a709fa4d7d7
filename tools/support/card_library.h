/* Opening libcuda for card.h. */
#ifndef KJIT_TOOLS_SUPPORT_CARD_LIBRARY_H
#define KJIT_TOOLS_SUPPORT_CARD_LIBRARY_H

#include "support/card.h"

/* $KJIT_LIBCUDA or libcuda.so.1 into card->library, its functions into card->api. KJIT_ERR_NO_DRIVER says what is
 * missing. It stays open: libcuda does not survive being closed and opened again. */
kjit_status card_library_open(struct card *card, kjit_error *error);

#endif
