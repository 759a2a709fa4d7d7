/* Leases, the same way in every store that puts under a condition and removes: an object that is put only where none
 * is.
 *
 * The object is the text "kjit-lease 1 <expiry in seconds since 1970> <owner>". Whether a store heeds the condition is
 * found out once, by putting the same lease twice: one that takes it both times has no leases. */
#ifndef KJIT_JIT_REMOTE_OBJECT_LEASE_H
#define KJIT_JIT_REMOTE_OBJECT_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <kjit/remote.h>

/* Take the lease of this name for `seconds`: KJIT_REMOTE_DONE; KJIT_REMOTE_ABSENT: another has it;
 * KJIT_REMOTE_UNSUPPORTED: the store does not heed the condition; KJIT_REMOTE_FAILED. `owner` tells this process from
 * others. `*works` says whether the store has been found to heed the condition, and belongs to the store. The store has
 * get, put and remove. All steps together keep within `timeout_ms`. Any thread. */
kjit_remote_answer object_lease_take(const kjit_remote_store *store, atomic_bool *works, const char *name,
                                     const char *owner, uint32_t seconds, uint32_t timeout_ms);

/* Remove the lease, if it is still the owner's; else KJIT_REMOTE_ABSENT. */
kjit_remote_answer object_lease_release(const kjit_remote_store *store, const char *name, const char *owner,
                                        uint32_t timeout_ms);

#endif
