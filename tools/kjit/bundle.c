/* kjit bundle: one file of kernels that an application ships. */
#include "bundle.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: kjit bundle create FILE [--set NAME]... [--manifest FILE]... [--arch A,B,...] [--family NAME]...\n"
    "                          [--jobs N] [--key SECRET] [--c-source [--symbol NAME]] [--json]\n"
    "       kjit bundle create FILE --program PROGRAM... [--key SECRET] [--c-source [--symbol NAME]] [--json]\n"
    "       kjit bundle inspect FILE [--json]                  what is in it\n"
    "       kjit bundle verify FILE [--key PUBLIC]... [--json] check every kernel, and with keys who signed it\n"
    "       kjit bundle sign FILE --key SECRET [-o OUT] [--json]\n"
    "       kjit bundle keygen NAME [--json]                   NAME.key (secret) and NAME.pub\n\n"
    "A bundle is one read-only file of kernels. A program opens it by kjit_runtime_options.bundle_paths or\n"
    "$KJIT_BUNDLE and then needs no NVRTC for what is in it. Equal kernels give equal bytes.\n\n"
    "Without --set and --manifest everything in the cache is taken.\n\n" ASKED_USAGE
    "  --program FILE   create: every kernel of a sealed program ('kjit pack'), and nothing else\n"
    "  --family NAME    only kernels of this family; with --set a family file or name: whose sets are meant\n"
    "  --jobs N         processes that compile what the cache lacks; one for each processor by default\n"
    "  --key FILE       create, sign: the secret key to sign with; verify: a public key, by file or hex digits\n"
    "  --c-source       write C source, to be linked into a program: NAME[] and NAME_bytes\n"
    "  --symbol NAME    its name; kernel_bundle by default\n";

/* As in `kjit warm`. */
#define MOST_JOBS 1024

struct bundle_action {
  const char *name, *argument;
  bool makes; /* takes what says which kernels */
  int (*run)(const struct bundle_options *options);
};

static const struct bundle_action actions[] = {
    {"create", "FILE", true, bundle_create},  {"inspect", "FILE", false, bundle_inspect},
    {"verify", "FILE", false, bundle_verify}, {"sign", "FILE", false, bundle_sign},
    {"keygen", "NAME", false, bundle_keygen},
};

static void bundle_print_actions(void) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    puts(actions[i].name);
}

static const struct bundle_action *action_find(const char *name) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return &actions[i];
  return NULL;
}

static int options_check(const struct bundle_action *action, const struct bundle_options *options) {
  const struct asked *asked = &options->asked;
  const bool filters = asked->sets.count + asked->manifests.count + options->families.count > 0 || asked->archs != NULL;
  const bool says_which = filters || options->programs.count > 0 || options->c_source;
  if (options->words.count < 2) return usage_error("bundle %s: %s is missing", action->name, action->argument);
  if (options->words.count > 2)
    return usage_error("bundle %s: unexpected argument '%s'", action->name, options->words.items[2]);
  if (says_which && !action->makes)
    return usage_error("bundle %s: --set, --manifest, --arch, --family, --program and --c-source belong to create",
                       action->name);
  if (filters && options->programs.count > 0)
    return usage_error("bundle %s: --program says which kernels; --set, --manifest, --arch and --family do not go with "
                       "it",
                       action->name);
  if (options->out != NULL && action->run != bundle_sign)
    return usage_error("bundle %s: -o belongs to sign", action->name);
  return -1;
}

/* Beside --set, --family says whose sets; otherwise it picks from the cache or the manifest. */
static int families_sort(struct bundle_options *options) {
  if (options->asked.sets.count == 0 || options->families.count == 0) return -1;
  if (options->families.count > 1)
    return usage_error("bundle create: with --set there is one --family, whose sets it takes");
  options->asked.family = options->families.items[0];
  options->families.count = 0;
  return -1;
}

static int bundle_with(struct bundle_options *options) {
  if (options->words.count == 0) return usage_error("bundle: an action is missing; 'kjit bundle --help' lists them");
  const struct bundle_action *action = action_find(options->words.items[0]);
  if (action == NULL)
    return usage_error("bundle: unknown action '%s'; 'kjit bundle --help' lists them", options->words.items[0]);
  int code = options_check(action, options);
  if (code < 0) code = families_sort(options);
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (options->jobs == 0) options->jobs = processors > 0 ? (uint64_t)processors : 1;
  return code < 0 ? action->run(options) : code;
}

static int bundle_run(int argc, char **argv) {
  struct bundle_options options = {.symbol = "kernel_bundle"};
  const struct option table[] = {
      ASKED_OPTIONS(options.asked),
      {.kind = OPTION_LIST, .name = "--family", .target = &options.families},
      {.kind = OPTION_LIST, .name = "--program", .target = &options.programs},
      {.kind = OPTION_LIST, .name = "--key", .target = &options.keys},
      {.kind = OPTION_TEXT, .name = "--symbol", .target = &options.symbol},
      {.kind = OPTION_TEXT, .name = "-o", .target = &options.out},
      {.kind = OPTION_NUMBER, .name = "--jobs", .target = &options.jobs, .least = 1, .most = MOST_JOBS},
      {.kind = OPTION_FLAG, .name = "--c-source", .target = &options.c_source},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, &options.words, usage);
  if (code < 0) code = bundle_with(&options);
  asked_free(&options.asked);
  option_list_free(&options.families);
  option_list_free(&options.keys);
  option_list_free(&options.programs);
  option_list_free(&options.words);
  return code;
}

const struct command command_bundle = {.name = "bundle",
                                       .summary = "kernels in one file that an application ships",
                                       .run = bundle_run,
                                       .print_actions = bundle_print_actions};
