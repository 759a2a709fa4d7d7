/* Sets of source files: the main file first, the others sorted by name, and one digest over all names and contents,
 * which is what the key says of them.
 *
 * The library's own kernels come from a shelf: the embedded texts are unpacked on the first request for a main file,
 * the files that it includes are found by scanning, and the set is kept until the runtime ends. The shelf is a list
 * that only grows at its head by compare-and-swap, so readers take no lock; of two threads that make the same set, the
 * second gives its own up. Any thread. */
#include "jit/source/source_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/frame.h"
#include "base/text.h"
#include "jit/source/directive_scan.h"
#include "jit/source/embedded_sources.h"

/* Longest list of names and digests: 4096 files, the most that a closure may have, with names as long as paths. */
#define MANIFEST_LIMIT (16u << 20)

/* The directives of the embedded kernels, some hundred kilobytes of text. */
#define SCAN_LIMIT ((size_t)64 << 20)

static int compare_names(const void *a, const void *b) {
  const struct source_file *left = a, *right = b;
  return strcmp(left->name, right->name);
}

bool source_set_seal(struct source_set *set, struct source_file *files, size_t count, const struct mem *mem) {
  struct text manifest;
  text_init(&manifest, mem, MANIFEST_LIMIT);
  qsort(files + 1, count - 1, sizeof *files, compare_names);
  for (size_t i = 0; i < count; i++) {
    static const struct digest none;
    char hex[DIGEST_HEX_BYTES];
    if (digest_equal(&files[i].digest, &none)) digest_of(&files[i].digest, files[i].text, files[i].bytes);
    digest_to_hex(&files[i].digest, hex);
    text_appendf(&manifest, "%zu:%s %s\n", strlen(files[i].name), files[i].name, hex);
  }
  const bool complete = !manifest.failed;
  if (complete) {
    *set = (struct source_set){.files = files, .count = count};
    digest_of(&set->digest, manifest.data, manifest.bytes);
  }
  text_finish(&manifest);
  return complete;
}

struct shelved_set {
  struct push_node node;
  struct source_set set;
  char *texts;                /* of every embedded source, unpacked */
  struct source_file files[]; /* room for every embedded source, then the texts */
};

const struct embedded_source *embedded_source_find(const char *name, size_t bytes) {
  for (size_t i = 0; i < embedded_source_count; i++) {
    const char *candidate = embedded_sources[i].name;
    if (strlen(candidate) == bytes && !memcmp(candidate, name, bytes)) return &embedded_sources[i];
  }
  return NULL;
}

bool embedded_texts_unpack(const struct mem *mem, char *texts) {
  const struct frame_bytes packed = {embedded_texts, embedded_texts_packed_bytes};
  if (!frame_inflate(mem, packed, texts, embedded_texts_bytes)) return false;
  for (size_t i = 0; i < embedded_source_count; i++)
    texts[embedded_sources[i].offset + embedded_sources[i].bytes] = '\0';
  return true;
}

static void add_file(struct shelved_set *made, const struct embedded_source *source) {
  for (size_t i = 0; i < made->set.count; i++) {
    if (made->files[i].name == source->name) return;
  }
  struct source_file *const file = &made->files[made->set.count++];
  *file = (struct source_file){.name = source->name, .text = made->texts + source->offset, .bytes = source->bytes};
  if (source->digest) (void)digest_from_hex(&file->digest, source->digest, DIGEST_HEX_BYTES - 1);
}

/* Add the files that a file includes. Embedded kernels include under no condition that matters, so every literal name
 * counts. A name that is not embedded is left to the compiler, which reports it in its log. */
static void add_includes(struct shelved_set *made, const struct source_file *file, struct arena *arena) {
  struct directive_list list;
  if (!directive_scan(&list, file->text, file->bytes, arena)) return;
  for (size_t i = 0; i < list.count; i++) {
    const char *name;
    size_t bytes;
    bool angled;
    if (list.items[i].kind != DIRECTIVE_INCLUDE) continue;
    if (!directive_header(list.items[i].args, list.items[i].args_bytes, &name, &bytes, &angled)) continue;
    const struct embedded_source *source = embedded_source_find(name, bytes);
    if (source) add_file(made, source);
  }
}

/* Unpack and collect the set of a main file. NULL when out of memory. */
static struct shelved_set *make(const struct embedded_source *main_source, const struct mem *mem) {
  struct shelved_set *made =
      mem_alloc(mem, sizeof *made + embedded_source_count * sizeof *made->files + embedded_texts_bytes);
  if (!made) return NULL;
  made->texts = (char *)(made->files + embedded_source_count);
  if (!embedded_texts_unpack(mem, made->texts)) {
    mem_free(mem, made);
    return NULL;
  }
  add_file(made, main_source);
  struct arena arena;
  arena_init(&arena, mem, SCAN_LIMIT);
  for (size_t i = 0; i < made->set.count && !arena.failed; i++)
    add_includes(made, &made->files[i], &arena);
  const bool scanned = !arena.failed;
  arena_finish(&arena);
  if (scanned && source_set_seal(&made->set, made->files, made->set.count, mem)) {
    made->set.withheld = main_source->digest != NULL;
    return made;
  }
  mem_free(mem, made);
  return NULL;
}

void source_shelf_init(struct source_shelf *shelf, const struct mem *mem) {
  shelf->mem = mem;
  shelf->sets = (struct push_list){{NULL}};
}

void source_shelf_finish(struct source_shelf *shelf) {
  struct push_node *node = push_list_newest(&shelf->sets);
  shelf->sets = (struct push_list){{NULL}};
  while (node) {
    struct push_node *const next = node->next;
    mem_free(shelf->mem, node); /* the set begins with it */
    node = next;
  }
}

static const struct source_set *find_made(const struct push_node *newest, const char *main_name) {
  for (const struct push_node *node = newest; node; node = node->next) {
    const struct shelved_set *const made = (const void *)node;
    if (!strcmp(made->set.files[0].name, main_name)) return &made->set;
  }
  return NULL;
}

/* Put a set on the shelf. When two threads made the same set, the second frees its own and takes the first's. */
static const struct source_set *put(struct source_shelf *shelf, struct shelved_set *made) {
  made->node.next = push_list_newest(&shelf->sets);
  do {
    const struct source_set *const found = find_made(made->node.next, made->set.files[0].name);
    if (found) {
      mem_free(shelf->mem, made);
      return found;
    }
  } while (!push_list_add(&shelf->sets, &made->node));
  return &made->set;
}

kjit_status source_shelf_get(struct source_shelf *shelf, const char *main_name, const struct source_set **out,
                             kjit_error *error) {
  *out = find_made(push_list_newest(&shelf->sets), main_name);
  if (*out) return KJIT_OK;
  const struct embedded_source *source = embedded_source_find(main_name, strlen(main_name));
  if (!source) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "this library was built without its kernel source, %s", main_name);
  }
  struct shelved_set *made = make(source, shelf->mem);
  if (!made) return error_no_memory(error);
  *out = put(shelf, made);
  return KJIT_OK;
}
