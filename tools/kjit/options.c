/* Reads a subcommand's command line by its table of options (command.h). options_read() goes through argv once: each
 * option is found in the table, its value taken from the same word or the next, checked by kind and stored where the
 * table points. The first mistake is reported as one line, and its exit code is returned. One thread. */
#include "command.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An option of the table that a word of the command line names, and the value in the same word. */
struct occurrence {
  const struct option *option;
  const char *value; /* NULL when the value is the next word, or when there is none */
};

static bool list_append(struct option_list *list, const char *item) {
  const char **items = realloc(list->items, (list->count + 1) * sizeof *items);
  if (items == NULL) return false;
  items[list->count++] = item;
  list->items = items;
  return true;
}

void option_list_free(struct option_list *list) {
  free(list->items);
  *list = (struct option_list){0};
}

/* True when `word` names the option: "--name" or "--name=value" for long names, "-D" or "-Dvalue" for names of one
 * letter. `*value` is then the part behind the name, or NULL. */
static bool option_matches(const struct option *option, const char *word, const char **value) {
  const size_t length = strlen(option->name);
  if (strncmp(word, option->name, length) != 0) return false;
  *value = NULL;
  if (word[length] == '\0') return true;
  const bool is_long = option->name[1] == '-';
  if (is_long && word[length] != '=') return false;
  *value = word + length + (is_long ? 1 : 0);
  return true;
}

static struct occurrence option_find(const struct option *table, const char *word) {
  struct occurrence found = {0};
  for (const struct option *option = table; option->kind != OPTION_END; option++)
    if (option_matches(option, word, &found.value)) {
      found.option = option;
      break;
    }
  return found;
}

bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out) {
  if (*text < '0' || *text > '9') return false; /* strtoull would take blanks and signs */
  char *end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0' || value < least || value > most) return false;
  *out = value;
  return true;
}

static int number_option(const struct option *option, const char *value) {
  if (number_read(value, option->least, option->most, option->target)) return -1;
  return usage_error("%s %s: a whole number from %llu to %llu is expected", option->name, value,
                     (unsigned long long)option->least, (unsigned long long)option->most);
}

static int option_store(const struct option *option, const char *value) {
  switch (option->kind) {
  case OPTION_TEXT:
    *(const char **)option->target = value;
    return -1;
  case OPTION_LIST:
    return list_append(option->target, value) ? -1 : usage_error("out of memory");
  default:
    return number_option(option, value);
  }
}

/* Store the option at argv[*at]. When its value is the next word, `*at` moves on to that word. */
static int option_take(int argc, char **argv, int *at, const struct option *table) {
  const char *word = argv[*at];
  const struct occurrence found = option_find(table, word);
  if (found.option == NULL) return usage_error("%s: unknown option '%s'", argv[0], word);
  if (found.option->kind == OPTION_FLAG) {
    if (found.value != NULL) return usage_error("%s takes no value: '%s'", found.option->name, word);
    *(bool *)found.option->target = true;
    return -1;
  }
  if (found.value != NULL) return option_store(found.option, found.value);
  if (*at + 1 >= argc) return usage_error("%s: option '%s' needs a value", argv[0], word);
  return option_store(found.option, argv[++*at]);
}

static int word_take(const char *command, const char *word, struct option_list *words) {
  if (words == NULL) return usage_error("%s: unexpected argument '%s'", command, word);
  return list_append(words, word) ? -1 : usage_error("out of memory");
}

static bool is_help(const char *word) {
  return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int options_list(const struct option *table) {
  for (const struct option *option = table; option->kind != OPTION_END; option++)
    puts(option->name);
  return print_text("--help\n");
}

int options_read(int argc, char **argv, const struct option *table, struct option_list *words, const char *usage) {
  bool options_ended = false;
  if (argc == 2 && strcmp(argv[1], OPTIONS_LISTED) == 0) return options_list(table);
  for (int at = 1; at < argc; at++) {
    int code = -1;
    if (!options_ended && strcmp(argv[at], "--") == 0)
      options_ended = true;
    else if (!options_ended && is_help(argv[at]))
      return print_text(usage);
    else if (!options_ended && argv[at][0] == '-' && argv[at][1] != '\0')
      code = option_take(argc, argv, &at, table);
    else
      code = word_take(argv[0], argv[at], words);
    if (code >= 0) return code;
  }
  return -1;
}
