/* One subcommand of `kjit`, and what the subcommands share. */
#ifndef KJIT_TOOLS_COMMAND_H
#define KJIT_TOOLS_COMMAND_H

#include <jansson.h>
#include <kjit/kjit.h>
#include <stdbool.h>

/* Exit codes of the command: part of its contract. */
enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_GPU = 3, EXIT_NO_NVRTC = 4 };

struct command {
  const char *name;                  /* "compile" */
  const char *summary;               /* one line for `kjit help` */
  int (*run)(int argc, char **argv); /* argv[0] is the subcommand's name; returns an enum exit_code */
  void (*print_actions)(void); /* prints the words that may follow the name, a line each; NULL when there are none */
};

extern const struct command command_doctor, command_compile, command_family, command_warm, command_cache,
    command_bundle, command_pack, command_run, command_bench, command_tune, command_describe, command_completion;

/* Every subcommand, in the order of `kjit help`; ended by NULL. */
extern const struct command *const commands[];

/* The subcommand of this name, or NULL. */
const struct command *command_find(const char *name);

/* ---- Options: one table per subcommand ---- */

enum option_kind {
  OPTION_FLAG,   /* bool *: set to true                           */
  OPTION_TEXT,   /* const char **: the value, borrowed from argv  */
  OPTION_NUMBER, /* uint64_t *: decimal, within [least, most]     */
  OPTION_LIST,   /* struct option_list *: appended, in order      */
  OPTION_END     /* ends the table                                */
};

/* Values of an option that may be given several times. Zero it first; `option_list_free` ends it. */
struct option_list {
  const char **items;
  size_t count;
};
void option_list_free(struct option_list *list);

struct option {
  enum option_kind kind;
  const char *name;     /* as typed: "--arch", "-D", "--json" */
  void *target;         /* by kind */
  uint64_t least, most; /* OPTION_NUMBER */
};

/* The hidden word that makes a subcommand print the names of its options and end, so that completions come from the
 * very tables that read the command line. */
#define OPTIONS_LISTED "--list-options"

/* Read argv[1..] by the table: `--name VALUE`, `--name=VALUE`, `-DVALUE`. Words that are no option go to `words`
 * (NULL: none allowed); `--` ends the options. `--help` and `-h` print `usage` to stdout.
 * Returns -1 to go on, else the exit code to return: an unknown or incomplete option has been named on stderr. */
int options_read(int argc, char **argv, const struct option *table, struct option_list *words, const char *usage);

/* A decimal number without sign or blanks, nothing behind it, within [least, most]. */
bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* ---- Messages and results ---- */

/* "kjit: <text>" on stderr, one line; returns EXIT_USAGE. */
int usage_error(const char *format, ...) KJIT_PRINTF(1, 2);

/* "kjit: <text>" on stderr, one line; returns EXIT_FAILED. */
int failure(const char *format, ...) KJIT_PRINTF(1, 2);

/* The error's message on stderr; returns the exit code that its status stands for. */
int report_error(const kjit_error *error);

/* Fill an error that holds none yet; returns `status`. */
kjit_status error_say(kjit_error *error, kjit_status status, const char *format, ...) KJIT_PRINTF(3, 4);

/* Report an error of a command that has --json: the message goes to stderr, and with `json` one object {"error":
 * {"status", "message"}, "log"} goes to stdout as well. `log` is the compiler's output, NULL or "" for none; without
 * `json` it goes to stderr. */
int report_failure(bool json, const kjit_error *error, const char *log);

/* The exit code that a status stands for. */
int exit_code_of(kjit_status status);

/* Text on stdout; returns EXIT_DONE, or EXIT_FAILED when it could not be written. */
int print_text(const char *text);

/* A JSON string of a caller's name or a compiler's log: bytes that are no UTF-8, which JSON cannot have, become "?". */
json_t *json_text(const char *text);

/* Print one JSON object on stdout and release it; returns EXIT_DONE, or EXIT_FAILED when it could not be written. */
int print_json(json_t *object);

/* The runtime that every subcommand uses: the environment's settings, log lines on stderr as KJIT_LOG asks. */
kjit_status open_runtime(kjit_runtime **out, kjit_error *error);
/* open_runtime() with a compile server, unless KJIT_COMPILE_SERVER says otherwise. */
kjit_status open_runtime_serving(kjit_runtime **out, kjit_error *error);
/* open_runtime() with what a command's options say; zero means the environment's settings. */
struct runtime_wishes {
  const char *const *trusted_keys;
  size_t trusted_key_count;
  const char *remote;      /* as kjit_runtime_options.cache_remote */
  const char *signing_key; /* as signing_key_path */
  uint32_t cache_mode;     /* a kjit_cache_mode */
};
kjit_status open_runtime_wishing(kjit_runtime **out, const struct runtime_wishes *wishes, kjit_error *error);
/* open_runtime() with `count` public keys as kjit_runtime_options.trusted_keys. */
kjit_status open_runtime_trusting(kjit_runtime **out, const char *const *keys, size_t count, kjit_error *error);

#endif
