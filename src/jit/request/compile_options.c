/* Which compiler options a caller may pass. An option is allowed if it changes nothing but the code and the messages,
 * because then its text in the key covers it. Options that read or write files, that the library sets itself, or that
 * make NVRTC produce something other than a cubin are refused with a sentence. An unknown option is refused too,
 * because nobody can say what it does. Tables and pure functions; any thread. */
#include "jit/request/compile_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/request/defines.h"

/* The longest that makes sense is a list of warnings' numbers. */
#define OPTION_LIMIT    1024
#define CANONICAL_BYTES 2048 /* an option of that length by its longest name */

/* The value that an option takes: none, "=value", or "=<option of ptxas>". A refused one may not be passed at all,
 * because it would read or write files, or change what is compiled, behind the key. */
enum option_kind { OPTION_FLAG, OPTION_VALUE, OPTION_PTXAS, OPTION_REFUSED };

struct option {
  const char *name;  /* without the dashes */
  const char *alias; /* the short spelling, "" if it has none */
  enum option_kind kind;
  const char *reason; /* of a refusal */
};

static const char in_defines[] = "defines belong in the request's defines";
static const char in_include_dirs[] = "folders belong in the request's include_dirs, headers in its headers";
static const char by_library[] = "the library sets it";
static const char touches_files[] = "it reads or writes files that the key does not cover";
static const char no_cubin[] = "it makes NVRTC give something other than a cubin";
static const char needs_linking[] = "its code must be linked before it can be loaded";

static const struct option options[] = {
    {"brief-diagnostics", "brief-diag", OPTION_VALUE, NULL},
    {"builtin-initializer-list", "", OPTION_VALUE, NULL},
    {"builtin-move-forward", "", OPTION_VALUE, NULL},
    {"device-as-default-execution-space", "default-device", OPTION_FLAG, NULL},
    {"device-c", "dc", OPTION_FLAG, NULL},
    {"device-debug", "G", OPTION_FLAG, NULL},
    {"device-float128", "", OPTION_FLAG, NULL},
    {"device-int128", "", OPTION_FLAG, NULL},
    {"device-stack-protector", "", OPTION_VALUE, NULL},
    {"device-w", "dw", OPTION_FLAG, NULL},
    {"diag-error", "", OPTION_VALUE, NULL},
    {"diag-suppress", "", OPTION_VALUE, NULL},
    {"diag-warn", "", OPTION_VALUE, NULL},
    {"disable-warnings", "w", OPTION_FLAG, NULL},
    {"display-error-number", "err-no", OPTION_FLAG, NULL},
    {"dlink-time-opt", "dlto", OPTION_FLAG, NULL},
    {"dopt", "", OPTION_VALUE, NULL},
    {"extra-device-vectorization", "", OPTION_FLAG, NULL},
    {"fmad", "", OPTION_VALUE, NULL},
    {"frandom-seed", "", OPTION_VALUE, NULL},
    {"ftz", "", OPTION_VALUE, NULL},
    {"generate-line-info", "lineinfo", OPTION_FLAG, NULL},
    {"jump-table-density", "jtd", OPTION_VALUE, NULL},
    {"maxrregcount", "", OPTION_VALUE, NULL},
    {"minimal", "", OPTION_FLAG, NULL},
    {"modify-stack-limit", "", OPTION_VALUE, NULL},
    {"no-display-error-number", "no-err-no", OPTION_FLAG, NULL},
    {"Ofast-compile", "Ofc", OPTION_VALUE, NULL},
    {"optimization-info", "opt-info", OPTION_VALUE, NULL},
    {"prec-div", "", OPTION_VALUE, NULL},
    {"prec-sqrt", "", OPTION_VALUE, NULL},
    {"ptxas-options", "Xptxas", OPTION_PTXAS, NULL},
    {"relocatable-device-code", "rdc", OPTION_VALUE, NULL},
    {"restrict", "", OPTION_FLAG, NULL},
    {"split-compile", "", OPTION_VALUE, NULL},
    {"std", "", OPTION_VALUE, NULL},
    {"use_fast_math", "", OPTION_FLAG, NULL},

    {"create-pch", "", OPTION_REFUSED, touches_files},
    {"define-macro", "D", OPTION_REFUSED, in_defines},
    {"extensible-whole-program", "ewp", OPTION_REFUSED, needs_linking},
    {"fdevice-syntax-only", "", OPTION_REFUSED, no_cubin},
    {"fdevice-time-trace", "", OPTION_REFUSED, touches_files},
    {"gen-opt-lto", "", OPTION_REFUSED, no_cubin},
    {"gpu-architecture", "arch", OPTION_REFUSED, "the architecture belongs in the request's arch"},
    {"include-path", "I", OPTION_REFUSED, in_include_dirs},
    {"no-cache", "", OPTION_REFUSED, by_library},
    {"no-source-include", "", OPTION_REFUSED, by_library},
    {"optix-ir", "", OPTION_REFUSED, no_cubin},
    {"pch", "", OPTION_REFUSED, touches_files},
    {"pch-dir", "", OPTION_REFUSED, touches_files},
    {"pre-include", "include", OPTION_REFUSED, in_include_dirs},
    {"time", "", OPTION_REFUSED, touches_files},
    {"undefine-macro", "U", OPTION_REFUSED, in_defines},
    {"use-pch", "", OPTION_REFUSED, touches_files},
};

/* Options of ptxas that change the code or its messages. */
static const char *const ptxas_options[] = {
    "O0",
    "O1",
    "O2",
    "O3",
    "opt-level",
    "allow-expensive-optimizations",
    "dlcm",
    "dscm",
    "def-load-cache",
    "fmad",
    "flcm",
    "def-store-cache",
    "maxrregcount",
    "sp-bounds-check",
    "disable-optimizer-constants",
    "v",
    "verbose",
    "warn-on-spills",
    "warn-spills",
    "warn-lmem-usage",
    "warn-on-local-memory-usage",
    "w",
    "disable-warnings",
    "warn-double-usage",
    "lineinfo",
    "generate-line-info",
    "suppress-stack-size-warning",
    "g",
    "device-debug",
    "warn-on-double-precision-use",
    "Werror",
};

static kjit_status refuse(kjit_error *error, size_t index, const char *option, const char *reason) {
  return error_set(error, KJIT_ERR_INVALID_ARG, "options[%zu]: \"%.80s\": %s", index, option, reason);
}

static bool name_is(const char *name, size_t bytes, const char *spelling) {
  return *spelling && strlen(spelling) == bytes && !memcmp(name, spelling, bytes);
}

/* A name is found by its long or its short spelling, which mean the same to NVRTC, and so share one row. */
static const struct option *find(const char *name, size_t bytes) {
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (name_is(name, bytes, options[i].name) || name_is(name, bytes, options[i].alias)) return &options[i];
  }
  return NULL;
}

/* -DX, -Idir, -UX: the value sticks to the letter. */
static const struct option *find_attached(const char *option) {
  return option[0] == '-' && strchr("DIU", option[1]) && option[1] ? find(option + 1, 1) : NULL;
}

static const char *skip_dashes(const char *text) {
  return text + (text[0] == '-') + (text[0] == '-' && text[1] == '-');
}

static bool is_ptxas_option(const char *value) {
  const char *name = skip_dashes(value);
  const size_t bytes = strcspn(name, "=");
  for (size_t i = 0; name > value && i < sizeof ptxas_options / sizeof *ptxas_options; i++) {
    if (name_is(name, bytes, ptxas_options[i])) return true;
  }
  return false;
}

static bool is_printable(const char *text) {
  for (; *text; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7F) return false;
  }
  return true;
}

/* "-lineinfo" and "--generate-line-info" become one spelling, so that equal requests have one key. */
size_t compile_option_canonical(const char *option, char *out, size_t capacity) {
  const char *name = skip_dashes(option);
  const size_t bytes = strcspn(name, "=");
  const struct option *known = find(name, bytes);
  const int length =
      known ? snprintf(out, capacity, "--%s%s", known->name, name + bytes) : snprintf(out, capacity, "%s", option);
  return length > 0 ? (size_t)length : 0;
}

/* The language is named, so that the default of another NVRTC does not change what a source means; -v makes ptxas
 * report registers and spills; sources come from memory alone. */
size_t compile_standing_options(const char *const **out) {
  static const char *const standing[] = {"--std=c++17", "--ptxas-options=-v", "--no-source-include"};
  *out = standing;
  return sizeof standing / sizeof *standing;
}

/* Whether the option may be passed, and with a value or without. The value itself is NVRTC's to judge, whose message
 * then names the option. */
kjit_status compile_option_check(const char *option, size_t index, kjit_error *error) {
  if (!option || !*option) return refuse(error, index, "", "is empty");
  if (strnlen(option, OPTION_LIMIT + 1) > OPTION_LIMIT)
    return refuse(error, index, option, "is longer than 1024 bytes");
  if (!is_printable(option)) return refuse(error, index, option, "has a control character");
  if (*option != '-') return refuse(error, index, option, "is no option; write --name=value in one piece");
  const char *name = skip_dashes(option);
  const size_t bytes = strcspn(name, "=");
  const struct option *known = find(name, bytes);
  if (!known) known = find_attached(option);
  if (!known) return refuse(error, index, option, "is not among the options known to change nothing but the code");
  if (known->kind == OPTION_REFUSED) return refuse(error, index, option, known->reason);
  const bool has_value = name[bytes] == '=' && name[bytes + 1];
  if (known->kind == OPTION_FLAG && name[bytes]) return refuse(error, index, option, "takes no value");
  if (known->kind != OPTION_FLAG && !has_value) return refuse(error, index, option, "write --name=value in one piece");
  if (known->kind == OPTION_PTXAS && !is_ptxas_option(name + bytes + 1)) {
    return refuse(error, index, option, "is not among ptxas's options known to change nothing but the code");
  }
  return KJIT_OK;
}

static kjit_status add(char **taken, size_t *count, const struct mem *mem, const char *option) {
  taken[*count] = mem_strdup(mem, option);
  return taken[*count] ? ((*count)++, KJIT_OK) : KJIT_ERR_NO_MEMORY;
}

/* NVRTC defines assert() before it reads the source, so a `#define NDEBUG` in the text would come too late for it. */
kjit_status compile_options_take(char ***taken, size_t *count, const struct mem *mem, const kjit_build_request *request,
                                 kjit_error *error) {
  char option[CANONICAL_BYTES];
  kjit_status status = KJIT_OK;
  *taken = mem_alloc_array(mem, request->option_count + 1, sizeof **taken);
  if (!*taken) return error_no_memory(error);
  for (size_t i = 0; i < request->option_count && status == KJIT_OK; i++) {
    (void)compile_option_canonical(request->options[i], option, sizeof option);
    status = add(*taken, count, mem, option);
  }
  if (status == KJIT_OK && defines_switch_assert(request)) status = add(*taken, count, mem, "--define-macro=NDEBUG");
  return status == KJIT_OK ? KJIT_OK : error_no_memory(error);
}
