/* A sealed program is the record of a search for includes that was done elsewhere: its names and digests make the same
 * key as the sources themselves, so that bundles and caches answer for both. Nothing is searched for and no header is
 * read. Only when no tier has the kernel are its texts unpacked (supply()), for that compile alone. */
#include "jit/builder_sealed.h"

#include "base/error.h"
#include "jit/builder_internal.h"

struct sealed_call {
  const struct mem *mem;
  const struct sealed *sealed;
  const struct sealed_unit *unit;
  struct sealed_texts texts;
  struct jit_request request;
};

static kjit_status supply(void *user, const struct source_set **sources, kjit_error *error) {
  struct sealed_call *call = user;
  if (!sealed_has_texts(call->sealed))
    return error_set(
        error, KJIT_ERR_NOT_FOUND,
        "kernel %.80s for %s is in no bundle and no cache, and %.160s was sealed without its texts: ship a "
        "bundle made by 'kjit bundle create --program'",
        call->request.entry, call->request.target.name, call->sealed->name);
  sealed_texts_finish(&call->texts, call->mem);
  const kjit_status status = sealed_texts_read(&call->texts, call->sealed, call->unit, error);
  if (status != KJIT_OK) return status;
  call->request.sources = *sources = &call->texts.set;
  return KJIT_OK;
}

kjit_status builder_sealed(struct builder *builder, const struct sealed *sealed, const struct sealed_wanted *wanted,
                           uint32_t flags, builder_custom_act act, void *user, kjit_error *error) {
  struct sealed_call call = {.mem = builder->mem, .sealed = sealed};
  const char *entry;
  if (flags & ~JIT_REQUEST_FLAGS)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "flags: 0x%x has bits that this library does not know", flags);
  kjit_status status = sealed_find(sealed, wanted, &call.unit, &entry, error);
  if (status != KJIT_OK) return status;
  call.request = (struct jit_request){.family = "custom",
                                      .label = call.unit->label,
                                      .target = call.unit->target,
                                      .entry = entry,
                                      .names = call.unit->names,
                                      .name_count = call.unit->name_count,
                                      .prologue = call.unit->prologue,
                                      .sources = &call.unit->set,
                                      .options = call.unit->options,
                                      .option_count = call.unit->option_count,
                                      .flags = flags,
                                      .supply = supply,
                                      .supply_user = &call};
  status = act(user, &call.request, error);
  sealed_texts_finish(&call.texts, builder->mem);
  return status;
}

kjit_status builder_open_sealed(struct builder *builder, const char *path, const void *data, size_t bytes,
                                struct sealed **out, kjit_error *error) {
  return sealed_open(out, builder->mem, path, data, bytes, &builder->bundles.trust, error);
}
