/* The `kjit` command: finds the subcommand named by argv[1] in a table and runs it. A subcommand is a struct command in
 * a file of its own; this file only knows the list, `help` and `version`. One thread. */
#include "command.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const struct command *const commands[] = {&command_doctor,
                                          &command_compile,
                                          &command_family,
                                          &command_warm,
                                          &command_cache,
                                          &command_bundle,
                                          &command_pack,
                                          &command_run,
                                          &command_bench,
                                          &command_tune,
                                          &command_describe,
                                          &command_completion,
                                          NULL};

const struct command *command_find(const char *name) {
  for (const struct command *const *at = commands; *at != NULL; at++)
    if (strcmp((*at)->name, name) == 0) return *at;
  return NULL;
}

static void print_overview(FILE *stream) {
  fputs("usage: kjit COMMAND [OPTION]...\n\n"
        "CUDA kernels compiled at run time for the configuration asked for, kept in a cache.\n\n",
        stream);
  for (const struct command *const *at = commands; *at != NULL; at++)
    fprintf(stream, "  %-10s  %s\n", (*at)->name, (*at)->summary);
  fputs("\n'kjit COMMAND --help' says what a command takes. 'kjit --version' prints the version.\n"
        "Exit codes: 0 done, 1 failed, 2 usage, 3 no usable GPU or driver, 4 no NVRTC.\n",
        stream);
}

static bool is_any_of(const char *word, const char *a, const char *b, const char *c) {
  return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    print_overview(stderr);
    return EXIT_USAGE;
  }
  if (is_any_of(argv[1], "help", "--help", "-h")) {
    print_overview(stdout);
    return print_text("");
  }
  if (is_any_of(argv[1], "version", "--version", "-V")) {
    printf("kjit %s\n", kjit_version());
    return print_text("");
  }
  const struct command *command = command_find(argv[1]);
  if (command != NULL) return command->run(argc - 1, argv + 1);
  return usage_error("unknown command '%s'; 'kjit help' lists them", argv[1]);
}
