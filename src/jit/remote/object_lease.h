/* Leases of stores that have no command for them: an object that is put only where none is.
 *
 * The object is the text "kjit-lease 1 <expiry in seconds since 1970> <owner>". Whether a store heeds the condition is
 * found out once, by putting the same lease twice: one that takes it both times has no leases. */
#ifndef KJIT_JIT_REMOTE_OBJECT_LEASE_H
#define KJIT_JIT_REMOTE_OBJECT_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <kjit/remote.h>

/* What a store offers for it; the functions are those of kjit_remote_store. */
struct object_lease {
  void *user;
  kjit_remote_answer (*get)(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                            void *write_user);
  kjit_remote_answer (*put)(void *user, const char *name, const void *data, size_t bytes, int only_if_absent,
                            uint32_t timeout_ms);
  kjit_remote_answer (*remove)(void *user, const char *name, uint32_t timeout_ms);
  atomic_bool *works; /* the store has been found to heed the condition */
};

/* What kjit_remote_store promises of try_lease and release. All steps together keep within `timeout_ms`. Any thread. */
kjit_remote_answer object_lease_take(const struct object_lease *lease, const char *name, const char *owner,
                                     uint32_t seconds, uint32_t timeout_ms);
kjit_remote_answer object_lease_release(const struct object_lease *lease, const char *name, const char *owner,
                                        uint32_t timeout_ms);

#endif
