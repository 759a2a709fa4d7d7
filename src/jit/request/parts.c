/* Checks of a request's parts (PTX, cubins, LTO-IR to link): kinds, sizes, and their sum. Pure but for one allocation;
 * any thread. */
#include "jit/request/parts.h"

#include <string.h>

#include "base/error.h"
#include "jit/request/link_plan.h"

/* Most bytes of all parts together, which go to a compile worker as one message. */
#define PARTS_BYTES_LIMIT ((size_t)256 << 20)

const char *jit_part_kind_name(uint32_t kind) {
  static const char *const names[] = {"", "cubin", "ptx", "ltoir", "fatbin"};
  return kind < sizeof names / sizeof *names ? names[kind] : "";
}

/* Take one part. `*left` is the number of bytes that the remaining parts may have. */
static kjit_status take(struct jit_part *out, const kjit_part *part, size_t index, size_t *left, kjit_error *error) {
  if (!*jit_part_kind_name(part->kind) || part->reserved)
    return error_set(error, KJIT_ERR_INVALID_ARG, "parts[%zu].kind: %u; must be a kjit_part_kind, 1 to %d", index,
                     part->kind, KJIT_PART_FATBIN);
  if (!part->data) return error_set(error, KJIT_ERR_INVALID_ARG, "parts[%zu].data: must not be NULL", index);
  size_t bytes = part->bytes;
  if (!bytes && part->kind == KJIT_PART_PTX) bytes = strlen(part->data);
  if (!bytes || bytes > *left)
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "parts[%zu].bytes: %zu; from 1 byte on, and all parts together at most 256 MiB", index, bytes);
  *left -= bytes;
  *out = (struct jit_part){.name = part->name, .kind = part->kind, .data = part->data, .bytes = bytes};
  digest_of(&out->digest, part->data, bytes);
  return KJIT_OK;
}

kjit_status parts_take(struct jit_part **out, const struct mem *mem, const kjit_build_request *request,
                       kjit_error *error) {
  *out = NULL;
  *out = mem_alloc_array(mem, request->part_count, sizeof **out);
  if (!*out) return error_no_memory(error);
  size_t left = PARTS_BYTES_LIMIT;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < request->part_count && status == KJIT_OK; i++)
    status = take(&(*out)[i], &request->parts[i], i, &left, error);
  return status;
}

kjit_status parts_check_no_source(const kjit_build_request *request, kjit_error *error) {
  const char *const field = request->header_count        ? "headers"
                            : request->include_dir_count ? "include_dirs"
                            : request->define_count      ? "defines"
                            : request->name_count        ? "names"
                                                         : NULL;
  if (!field) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "%s: the request has parts and no source, so there is nothing to compile", field);
}

kjit_status parts_check_plan(const struct jit_request *request, kjit_error *error) {
  struct jit_request linked = *request;
  linked.flags &= ~KJIT_BUILD_OBJECT;
  if (!request->sources->count && request->name_count)
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "entry: \"%.80s\" is a name expression, but the request has no source; give the mangled name",
                     request->entry);
  if (!(request->flags & KJIT_BUILD_OBJECT)) return KJIT_OK;
  if (request->part_count)
    return error_invalid(error, "flags", "KJIT_BUILD_OBJECT makes an object of one source: no parts");
  if (link_plan_of(&linked).links) return KJIT_OK;
  return error_invalid(error, "flags",
                       "KJIT_BUILD_OBJECT needs the option -dlto or -rdc=true, which says what the object is");
}
