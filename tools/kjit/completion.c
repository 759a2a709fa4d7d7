/* kjit completion: what a shell needs in order to complete kjit's command line.
 *
 *   kjit completion bash|zsh|fish   prints the shell's script. It knows no command and no option by itself: at every
 *                                   <Tab> it asks `kjit completion words`, so that it is never older than the command.
 *   kjit completion words [NAME]    prints the subcommands; or what may follow the subcommand NAME: its actions, and
 *                                   the options of the table that reads its command line. */
#include "command.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char usage[] = "usage: kjit completion bash|zsh|fish\n\n"
                            "Prints a script that completes kjit's commands and options in that shell:\n\n"
                            "  bash  source <(kjit completion bash)\n"
                            "  zsh   source <(kjit completion zsh)\n"
                            "  fish  kjit completion fish | source\n";

/* A word that completes to no option and no action is a file, as bash takes it by `-o default`. */
static const char bash_script[] = "_kjit() {\n"
                                  "  local word=${COMP_WORDS[COMP_CWORD]} words\n"
                                  "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                                  "    words=$(kjit completion words 2>/dev/null)\n"
                                  "  else\n"
                                  "    words=$(kjit completion words \"${COMP_WORDS[1]}\" 2>/dev/null)\n"
                                  "  fi\n"
                                  "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
                                  "}\n"
                                  "complete -o default -F _kjit kjit\n";

static const char zsh_script[] = "#compdef kjit\n"
                                 "_kjit() {\n"
                                 "  if (( CURRENT == 2 )); then\n"
                                 "    compadd -- ${(f)\"$(kjit completion words 2>/dev/null)\"}\n"
                                 "  else\n"
                                 "    compadd -- ${(f)\"$(kjit completion words \"$words[2]\" 2>/dev/null)\"}\n"
                                 "    _files\n"
                                 "  fi\n"
                                 "}\n"
                                 "compdef _kjit kjit\n";

static const char fish_script[] = "function __kjit_words\n"
                                  "  set -l words (commandline -opc)\n"
                                  "  if test (count $words) -eq 1\n"
                                  "    kjit completion words 2>/dev/null\n"
                                  "  else\n"
                                  "    kjit completion words $words[2] 2>/dev/null\n"
                                  "  end\n"
                                  "end\n"
                                  "complete -c kjit -a '(__kjit_words)'\n";

static int print_words(const char *name) {
  if (name == NULL) {
    for (const struct command *const *at = commands; *at != NULL; at++)
      puts((*at)->name);
    return print_text("");
  }
  const struct command *command = command_find(name);
  if (command == NULL) return usage_error("completion words: unknown command '%s'", name);
  if (command->print_actions != NULL) command->print_actions();
  char listed[] = OPTIONS_LISTED, *argv[] = {(char[]){"kjit"}, listed, NULL};
  return command->run(2, argv);
}

static int completion_with(const struct option_list *words) {
  static const struct {
    const char *shell, *script;
  } scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
  if (words->count == 0) return usage_error("completion: a shell is missing: bash, zsh or fish");
  const bool asks_words = strcmp(words->items[0], "words") == 0;
  const size_t most = asks_words ? 2 : 1;
  if (words->count > most) return usage_error("completion: unexpected argument '%s'", words->items[most]);
  if (asks_words) return print_words(words->count == 2 ? words->items[1] : NULL);
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
    if (strcmp(scripts[i].shell, words->items[0]) == 0) return print_text(scripts[i].script);
  return usage_error("completion: unknown shell '%s': bash, zsh or fish is expected", words->items[0]);
}

static void print_shells(void) {
  puts("bash\nzsh\nfish");
}

static int completion_run(int argc, char **argv) {
  const struct option table[] = {{.kind = OPTION_END}};
  struct option_list words = {0};
  int code = options_read(argc, argv, table, &words, usage);
  if (code < 0) code = completion_with(&words);
  option_list_free(&words);
  return code;
}

const struct command command_completion = {.name = "completion",
                                           .summary = "print a shell's completion script",
                                           .run = completion_run,
                                           .print_actions = print_shells};
