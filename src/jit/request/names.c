/* Checks of the names in a request, and the list of those that the compiler is asked about. Pure functions but for the
 * allocations; thread-safe. */
#include "jit/request/names.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Longest identifier: more than people write or generators emit. */
#define IDENTIFIER_LIMIT 1000

/* Longest name expression, an instantiation over types with long names. */
#define NAME_EXPRESSION_LIMIT 16384

bool name_is_identifier(const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  static const char more[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  const size_t bytes = strnlen(name, IDENTIFIER_LIMIT + 1);
  return bytes && bytes <= IDENTIFIER_LIMIT && strchr(letters, *name) && strspn(name, more) == bytes;
}

/* Check that a name is one line of a key. Whether it is an expression, the compiler decides. */
static kjit_status check_name(const char *what, const char *name, kjit_error *error) {
  if (!name || !*name) return error_set(error, KJIT_ERR_INVALID_ARG, "%s: is empty", what);
  if (strnlen(name, NAME_EXPRESSION_LIMIT + 1) > NAME_EXPRESSION_LIMIT)
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: is longer than 16,384 bytes", what);
  for (const char *at = name; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7F)
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s: \"%.80s\" has a control character", what, name);
  return KJIT_OK;
}

/* Add a name; the caller has made room. */
static kjit_status add_name(char **names, size_t *count, const struct mem *mem, const char *name, kjit_error *error) {
  char *const copy = mem_strdup(mem, name);
  if (!copy) return error_no_memory(error);
  names[(*count)++] = copy;
  return KJIT_OK;
}

/* An entry that is no identifier is a name expression like those of `names`, so it goes in front of them and is not
 * listed twice. Otherwise their order and repetitions stay as the caller gave them, because results are asked for by
 * number. */
kjit_status names_take(char ***out, size_t *count, const struct mem *mem, const kjit_build_request *request,
                       kjit_error *error) {
  const char *const entry = request->entry ? request->entry : "";
  const bool asks = *entry && !name_is_identifier(entry);
  *out = NULL;
  *count = 0;
  kjit_status status = request->entry ? check_name("entry", request->entry, error) : KJIT_OK;
  if (status != KJIT_OK) return status;
  char **const names = mem_alloc_array(mem, request->name_count + 1, sizeof *names);
  *out = names;
  if (!names) return error_no_memory(error);
  if (asks) status = add_name(names, count, mem, entry, error);
  for (size_t i = 0; i < request->name_count && status == KJIT_OK; i++) {
    char what[32];
    (void)snprintf(what, sizeof what, "names[%zu]", i);
    status = check_name(what, request->names[i], error);
    if (status == KJIT_OK && (!asks || strcmp(request->names[i], entry) != 0))
      status = add_name(names, count, mem, request->names[i], error);
  }
  return status;
}

void names_finish(char **names, size_t count, const struct mem *mem) {
  for (size_t i = 0; i < count; i++)
    mem_free(mem, names[i]);
  mem_free(mem, names);
}
