/* A hash table of names, and a scan of PTX that counts them. The table never grows, and is at most half full, so that a
 * search ends. Belongs to one thread. */
#include "jit/cubin/name_uses.h"

#include <string.h>

#include "base/hash.h"

bool name_uses_init(struct name_uses *uses, const struct mem *mem, size_t count) {
  size_t places = 16;
  while (places < 2 * count + 2)
    places *= 2;
  uses->places = mem_alloc_array(mem, places, sizeof *uses->places);
  uses->mask = places - 1;
  return uses->places != NULL;
}

void name_uses_finish(struct name_uses *uses, const struct mem *mem) {
  mem_free(mem, uses->places);
  *uses = (struct name_uses){0};
}

/* The place of a name, or the free one where it belongs. */
static struct name_use *place_of(const struct name_uses *uses, const char *name, size_t bytes) {
  for (size_t at = (size_t)hash_64(name, bytes);; at++) {
    struct name_use *const place = &uses->places[at & uses->mask];
    if (!place->name || (place->bytes == bytes && !memcmp(place->name, name, bytes))) return place;
  }
}

struct name_use *name_uses_add(struct name_uses *uses, const char *name, size_t bytes) {
  struct name_use *const place = place_of(uses, name, bytes);
  if (!place->name) *place = (struct name_use){name, bytes, 0};
  return place;
}

struct name_use *name_uses_find(const struct name_uses *uses, const char *name, size_t bytes) {
  struct name_use *const place = place_of(uses, name, bytes);
  return place->name ? place : NULL;
}

static bool in_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

/* A directive of linkage, which makes the name that the statement declares one for others to find. */
static bool is_linkage(const char *word, size_t bytes) {
  static const char *const directives[] = {".visible", ".weak", ".common", ".extern"};
  for (size_t i = 0; i < sizeof directives / sizeof *directives; i++)
    if (strlen(directives[i]) == bytes && !memcmp(directives[i], word, bytes)) return true;
  return false;
}

void name_uses_count(struct name_uses *uses, const char *text, size_t bytes) {
  bool for_others = false; /* the statement has a directive of linkage */
  for (size_t at = 0; at < bytes;) {
    const size_t begin = at;
    while (at < bytes && in_identifier(text[at]))
      at++;
    const bool is_directive = begin && text[begin - 1] == '.';
    struct name_use *const use = at > begin && !is_directive ? name_uses_find(uses, text + begin, at - begin) : NULL;
    if (use) use->count += for_others ? 2 : 1;
    if (at > begin && is_directive && is_linkage(text + begin - 1, at - begin + 1)) for_others = true;
    if (at > begin) continue;
    if (text[at] == ';' || text[at] == '{' || text[at] == '}') for_others = false;
    at++;
  }
}
