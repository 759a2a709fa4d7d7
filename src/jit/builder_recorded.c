/* A request that another process recorded with its sources: its names and digests make the key, and the texts are read
 * from the recorded files only when no tier has the kernel (supply()). No header is searched for. Any thread. */
#include "jit/builder_recorded.h"

#include <string.h>

#include "base/error.h"
#include "jit/builder_internal.h"
#include "jit/record/recorded.h"

struct recorded_call {
  struct builder *builder;
  struct recorded recorded;
};

static kjit_status supply(void *user, const struct source_set **sources, kjit_error *error) {
  struct recorded_call *call = user;
  const struct nvrtc_api *api = NULL;
  int major = 0, minor = 0;
  /* Without a compiler the texts are read all the same, for a record; conditions then see its newest version. */
  (void)nvrtc_open(call->builder->nvrtc, &api, &major, &minor, NULL);
  const unsigned version = (unsigned)(major * 1000 + minor * 10);
  const kjit_status status = recorded_read_texts(&call->recorded, version, sources, error);
  if (status == KJIT_OK) call->recorded.request.sources = *sources;
  return status;
}

static kjit_status get(struct recorded_call *call, const char *arch, uint32_t flags, kjit_artifact **out,
                       kjit_error *error) {
  struct jit_request *const request = &call->recorded.request;
  if (arch && strcmp(arch, request->target.name) != 0)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "%.160s was recorded for %s: for %.16s its sources may be others, so record it there",
                     request->label, request->target.name, arch);
  request->flags |= flags;
  if (request->sources->withheld) {
    request->supply = supply;
    request->supply_user = call;
  }
  return builder_get(call->builder, request, out, error);
}

kjit_status builder_recorded(struct builder *builder, const char *path, const char *arch, uint32_t flags,
                             kjit_artifact **out, kjit_error *error) {
  struct recorded_call call = {.builder = builder};
  kjit_error found = {0};
  kjit_status status = recorded_open(&call.recorded, builder->mem, builder->ops, path, &found);
  if (status == KJIT_OK) status = get(&call, arch, flags, out, &found);
  recorded_finish(&call.recorded);
  if (error) *error = found;
  return status;
}
