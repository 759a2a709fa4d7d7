/* Finds symbols that two inputs of a link both define, before the linker does, because nvJitLink 13.0 crashes on them.
 * Global definitions are read from cubins' symbol tables and from the text of PTX into one hash table; weak ones may be
 * defined often. Nothing in the inputs is trusted. One thread for each check. */
#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/files/elf_view.h"
#include "jit/compile/link_symbols.h"

#include "base/table.h"

#include <kjit/build.h>

struct definition {
  const char *name; /* the name, as it stands in the input */
  const struct link_input *input;
  UT_hash_handle hh;
};

struct definitions {
  const struct mem *mem;
  struct definition *all;
};

static kjit_status define(struct definitions *table, const struct link_input *input, const char *name, size_t bytes,
                          kjit_error *error) {
  struct definition *known = NULL;
  HASH_FIND(hh, table->all, name, (unsigned)bytes, known);
  if (known) {
    return error_set(error, KJIT_ERR_COMPILE,
                     "link: \"%.*s\" is defined twice, in %.80s and in %.80s; give one of them "
                     "internal linkage (static) or leave it out",
                     bytes < 160 ? (int)bytes : 160, name, known->input->name, input->name);
  }
  const struct mem *mem = table->mem;
  bool added = true;
  struct definition *const made = mem_alloc(mem, sizeof *made);
  if (!made) return error_no_memory(error);
  *made = (struct definition){.name = name, .input = input};
  HASH_ADD_KEYPTR(hh, table->all, made->name, (unsigned)bytes, made);
  if (added) return KJIT_OK;
  mem_free(mem, made);
  return error_no_memory(error);
}

/* -- Cubins ------------------------------------------------------------------------------------------------------- */

static kjit_status define_cubin(struct definitions *table, const struct link_input *input, kjit_error *error) {
  struct elf_view elf;
  struct elf_bytes symbols, strings;
  kjit_status status = KJIT_OK;
  if (!elf_view_open(&elf, input->data, input->bytes) || !elf_view_find_section(&elf, ".symtab", &symbols) ||
      !elf_view_find_section(&elf, ".strtab", &strings))
    return KJIT_OK; /* the linker says what is wrong with it */
  for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.bytes && status == KJIT_OK; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    memcpy(&symbol, symbols.data + at, sizeof symbol);
    if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL || symbol.st_shndx == SHN_UNDEF) continue;
    if (symbol.st_name >= strings.bytes) continue;
    const char *const name = (const char *)strings.data + symbol.st_name;
    const size_t bytes = strnlen(name, strings.bytes - symbol.st_name);
    if (bytes && name[bytes - 1] != '$') status = define(table, input, name, bytes, error);
  }
  return status;
}

/* -- PTX: ".visible .entry k(", ".visible .func (.param .b32 r) f(", ".visible .global .align 4 .b32 g[4];" -------- */

static bool is_name_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static const char *skip_blanks(const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at))
    at++;
  return at;
}

/* Find the name that a .visible statement declares: for a function the word in front of its parameters, after the group
 * of its results; for a variable the last word before "[", "=" or ";". */
static const char *declared_name(const char *at, const char *end, size_t *bytes) {
  const char *name = NULL;
  *bytes = 0;
  while ((at = skip_blanks(at, end)) < end) {
    const char *const word = at;
    while (at < end && (is_name_char(*at) || *at == '.'))
      at++;
    if (at == word) {
      if (*at != '(' || name) break;
      at = memchr(at, ')', (size_t)(end - at));
      if (!at) break;
      at++;
    } else if (*word != '.' && !isdigit((unsigned char)*word)) {
      name = word;
      *bytes = (size_t)(at - word);
    }
  }
  return name;
}

static kjit_status define_ptx(struct definitions *table, const struct link_input *input, kjit_error *error) {
  static const char visible[] = ".visible";
  const char *at = input->data, *const end = at + input->bytes;
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && (at = memmem(at, (size_t)(end - at), visible, sizeof visible - 1))) {
    at += sizeof visible - 1;
    const char *stop = at;
    while (stop < end && *stop != ';' && *stop != '{')
      stop++;
    size_t bytes;
    const char *const name = declared_name(at, stop, &bytes);
    /* A function that ends in ";" is a declaration. */
    const bool is_declared = stop < end && *stop == ';' && memmem(at, (size_t)(stop - at), ".func", 5);
    if (name && !is_declared) status = define(table, input, name, bytes, error);
    at = stop;
  }
  return status;
}

kjit_status link_symbols_check(const struct mem *mem, const struct link_input *inputs, size_t count,
                               kjit_error *error) {
  struct definitions definitions = {.mem = mem}, *const table = &definitions;
  struct definition *definition, *next;
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    if (inputs[i].kind == KJIT_PART_CUBIN) status = define_cubin(table, &inputs[i], error);
    if (inputs[i].kind == KJIT_PART_PTX) status = define_ptx(table, &inputs[i], error);
  }
  HASH_ITER(hh, table->all, definition, next) {
    HASH_DEL(table->all, definition);
    mem_free(mem, definition);
  }
  return status;
}
