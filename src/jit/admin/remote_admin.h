/* The user's folder against the remote stores: what include/kjit/remote.h promises. Thread-safe; clears `error` first.
 */
#ifndef KJIT_JIT_ADMIN_REMOTE_ADMIN_H
#define KJIT_JIT_ADMIN_REMOTE_ADMIN_H

#include <kjit/remote.h>

#include "jit/builder.h"

/* kjit_remote_check(), and with `push` kjit_remote_push(). */
kjit_status builder_remote_compare(struct builder *builder, bool push, kjit_remote_report *report, kjit_error *error);

#endif
