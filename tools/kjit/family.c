/* kjit family: what a family file says.
 *
 *   show FAMILY        its fields, parameters and sets; kjit's own families by name
 *   check FILE         opens the file, which checks all of it, and prints what looks like a mistake
 *   set FAMILY NAME    the configs of a set, one a line, as `kjit compile --family` reads them; without a name the sets
 *   choose FILE PROBLEM  the config for a problem of a user's family, and what decided: a tuned table, or the rules
 *
 * Threads: one. */
#include "command.h"
#include "family_files.h"
#include "request_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: kjit family show FAMILY [--json]\n"
    "       kjit family check FILE [--json]\n"
    "       kjit family set FAMILY [NAME] [--arch ARCH] [--json]\n"
    "       kjit family choose FILE PROBLEM [--arch ARCH] [--json]\n\n"
    "FAMILY is a family file (docs/families.md), or one of kjit's own by its name, such as attention_sm90.\n"
    "Needs no GPU and no compiler.\n\n"
    "  show         fields, parameters, sets\n"
    "  check        whether the file is right; exit code 2 and FILE:LINE:COLUMN where it is not\n"
    "  set          the configs of a set, one a line; without NAME the sets and how many configs each has\n"
    "  choose       the config for a problem, m=4096,n=4096,dtype=bf16: of the tuned table, else by the family's "
    "rules\n"
    "  --arch ARCH  set: leave out what that architecture cannot run; choose: without a card, by the table that\n"
    "               'kjit tune --arch' makes (the first GPU)\n"
    "  --json       one JSON object on stdout\n";

struct family_options {
  struct option_list words; /* the action, the family, the set */
  const char *arch;
  bool json;
};

static const char *kind_name(const kjit_field_info *field) {
  static const char *const names[] = {[KJIT_FIELD_DTYPE] = "dtype",
                                      [KJIT_FIELD_INT] = "int",
                                      [KJIT_FIELD_BOOL] = "bool",
                                      [KJIT_FIELD_LOAD] = "int",
                                      [KJIT_FIELD_ENUM] = "enum"};
  return names[field->kind];
}

static size_t set_size(const kjit_family *family, const char *set) {
  size_t count = 0;
  return kjit_family_set(family, set, 0, NULL, &count, NULL) == KJIT_OK ? count : 0;
}

static json_t *names_json(const kjit_field_info *field) {
  json_t *names = json_array();
  for (size_t i = 0; i < field->value_count; i++)
    json_array_append_new(names, json_string(field->value_names[i]));
  return names;
}

static json_t *family_json(const kjit_family *family) {
  json_t *fields = json_array(), *parameters = json_array(), *sets = json_object(), *warnings = json_array();
  const kjit_field_info *field;
  const kjit_parameter_info *parameter;
  for (size_t i = 0; (field = kjit_family_field(family, i)) != NULL; i++) {
    json_t *object =
        json_pack("{s:s, s:s, s:o}", "name", field->name, "kind", kind_name(field), "doc", json_text(field->text));
    if (field->value_count > 0) json_object_set_new(object, "values", names_json(field));
    if (field->legal != NULL) json_object_set_new(object, "legal", json_text(field->legal));
    json_array_append_new(fields, object);
  }
  for (size_t i = 0; (parameter = kjit_family_parameter(family, i)) != NULL; i++)
    json_array_append_new(parameters, json_pack("{s:s, s:s}", "name", parameter->name, "type", parameter->type));
  for (size_t i = 0; kjit_family_set_name(family, i) != NULL; i++) {
    const char *set = kjit_family_set_name(family, i);
    json_object_set_new(sets, set, json_integer((json_int_t)set_size(family, set)));
  }
  for (size_t i = 0; kjit_family_warning(family, i) != NULL; i++)
    json_array_append_new(warnings, json_text(kjit_family_warning(family, i)));
  return json_pack("{s:s, s:o, s:o, s:o, s:o}", "family", kjit_family_name(family), "fields", fields, "parameters",
                   parameters, "sets", sets, "warnings", warnings);
}

static void print_sets(const kjit_family *family) {
  for (size_t i = 0; kjit_family_set_name(family, i) != NULL; i++) {
    const char *set = kjit_family_set_name(family, i);
    printf("set        %-16s %zu configs\n", set, set_size(family, set));
  }
}

static void print_warnings(const kjit_family *family) {
  for (size_t i = 0; kjit_family_warning(family, i) != NULL; i++)
    fprintf(stderr, "kjit: warning: %s\n", kjit_family_warning(family, i));
}

static int show(const kjit_family *family, const struct family_options *options) {
  const kjit_field_info *field;
  const kjit_parameter_info *parameter;
  if (options->json) return print_json(family_json(family));
  printf("family     %s\n", kjit_family_name(family));
  for (size_t i = 0; (field = kjit_family_field(family, i)) != NULL; i++) {
    const char *legal = field->legal != NULL ? field->legal : ""; /* kjit's own families say it in the text */
    const char *comma = legal[0] != '\0' && field->text[0] != '\0' ? "; " : "";
    printf("field      %-16s %-6s %s%s%s\n", field->name, kind_name(field), legal, comma, field->text);
  }
  for (size_t i = 0; (parameter = kjit_family_parameter(family, i)) != NULL; i++)
    printf("parameter  %-16s %s\n", parameter->name, parameter->type);
  print_sets(family);
  print_warnings(family);
  return print_text("");
}

static int check(const kjit_family *family, const struct family_options *options) {
  size_t fields = 0, sets = 0, warnings = 0;
  if (options->json) return print_json(family_json(family));
  while (kjit_family_field(family, fields) != NULL)
    fields++;
  while (kjit_family_set_name(family, sets) != NULL)
    sets++;
  while (kjit_family_warning(family, warnings) != NULL)
    warnings++;
  print_warnings(family);
  printf("%s: %s with %zu fields and %zu sets is right; %zu warnings\n", options->words.items[1],
         kjit_family_name(family), fields, sets, warnings);
  return print_text("");
}

/* A config of the set that the architecture, if one was given, can run. KJIT_ERR_* of those that it cannot are no
 * failure of the command. */
static bool is_wanted(const kjit_config *config, const struct family_options *options, kjit_error *error) {
  if (options->arch == NULL) return true;
  const kjit_status status = kjit_config_check(config, options->arch, error);
  if (status == KJIT_ERR_UNSUPPORTED || status == KJIT_ERR_INVALID_CONFIG) *error = (kjit_error){0};
  return status == KJIT_OK;
}

static int print_set(const kjit_family *family, const struct family_options *options) {
  const char *set = options->words.items[2];
  char text[KJIT_CONFIG_TEXT_MAX];
  json_t *configs = json_array();
  kjit_error error = {0};
  size_t count;
  kjit_status status = kjit_family_set(family, set, 0, NULL, &count, &error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    kjit_config config;
    status = kjit_family_set(family, set, i, &config, NULL, &error);
    if (status != KJIT_OK || !is_wanted(&config, options, &error)) continue;
    request_print_config(&config, text);
    if (options->json)
      json_array_append_new(configs, json_text(text));
    else
      printf("%s\n", text);
  }
  if (error.status != KJIT_OK) {
    json_decref(configs);
    return report_failure(options->json, &error, NULL);
  }
  if (options->json)
    return print_json(json_pack("{s:s, s:s, s:o}", "family", kjit_family_name(family), "set", set, "configs", configs));
  json_decref(configs);
  return print_text("");
}

static int set(const kjit_family *family, const struct family_options *options) {
  if (options->words.count > 2) return print_set(family, options);
  if (options->json) return print_json(family_json(family));
  print_sets(family);
  return print_text("");
}

static kjit_status choose_there(const kjit_family *family, const struct family_options *options, kjit_config *config,
                                uint32_t *decided_by, kjit_error *error) {
  kjit_device_info device = {.struct_size = sizeof device};
  kjit_family_problem problem;
  kjit_runtime *runtime = NULL;
  kjit_status status = kjit_family_problem_parse(family, options->words.items[2], &problem, error);
  if (status == KJIT_OK) status = open_runtime(&runtime, error);
  if (status == KJIT_OK && options->arch == NULL) status = kjit_device_get_info(runtime, 0, &device, error);
  if (status == KJIT_OK)
    status = kjit_family_choose(runtime, &problem, options->arch == NULL ? &device : NULL, options->arch, config,
                                decided_by, error);
  kjit_runtime_destroy(runtime);
  return status;
}

static int choose(const kjit_family *family, const struct family_options *options) {
  char text[KJIT_CONFIG_TEXT_MAX];
  uint32_t decided_by;
  kjit_config config;
  kjit_error error = {0};
  if (options->words.count < 3) return usage_error("family choose: a problem is needed: m=4096,n=4096,...");
  if (choose_there(family, options, &config, &decided_by, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  const char *by = decided_by == KJIT_DECIDED_BY_TABLE ? "table" : "rules";
  request_print_config(&config, text);
  if (options->json)
    return print_json(
        json_pack("{s:s, s:s, s:s}", "family", kjit_family_name(family), "config", text, "decided_by", by));
  printf("%s\n", text);
  fprintf(stderr, "kjit: decided by the %s\n", by);
  return print_text("");
}

static const struct family_action {
  const char *name;
  int (*run)(const kjit_family *family, const struct family_options *options);
  size_t most_words;
} actions[] = {{"show", show, 2}, {"check", check, 2}, {"set", set, 3}, {"choose", choose, 3}};

static void print_actions(void) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    puts(actions[i].name);
}

static int act(const struct family_options *options) {
  const struct option_list *words = &options->words;
  const struct family_action *action = NULL;
  for (size_t i = 0; words->count > 0 && i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, words->items[0]) == 0) action = &actions[i];
  if (action == NULL) return usage_error("family: an action is needed: show, check, set or choose");
  if (words->count < 2 || words->count > action->most_words)
    return usage_error("family %s: %s; 'kjit family --help' has the forms", action->name,
                       words->count < 2 ? "a family file or a family's name is needed" : "too many words");
  if (options->arch != NULL && action->run != set && action->run != choose)
    return usage_error("family: --arch belongs to set and choose");
  struct family_files files = {0};
  const kjit_family *family;
  kjit_error error = {0};
  const kjit_status status = family_files_find(&files, words->items[1], NULL, &family, &error);
  const int code = status == KJIT_OK ? action->run(family, options) : report_failure(options->json, &error, NULL);
  family_files_close(&files);
  return code;
}

static int family_run(int argc, char **argv) {
  struct family_options options = {0};
  const struct option table[] = {
      {.kind = OPTION_TEXT, .name = "--arch", .target = &options.arch},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, &options.words, usage);
  if (code < 0) code = act(&options);
  option_list_free(&options.words);
  return code;
}

const struct command command_family = {.name = "family",
                                       .summary =
                                           "show or check a family file, list a set of its configs, or choose one",
                                       .run = family_run,
                                       .print_actions = print_actions};
