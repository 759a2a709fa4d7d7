/* `kjit cache ACTION`: looks at the cache folder, checks it and cleans it. Each action is a row of `actions` and one
 * function; the row says which arguments and options the action takes, so that options_check() can refuse the others.
 * list, show and why are in cache_entries.c.
 *
 * One thread. Other processes may use the folder meanwhile; the library takes its locks. */
#include "bundle.h"
#include "cache_entries.h"
#include "command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kjit cache ACTION [--json]\n\n"
    "  path                  the folder\n"
    "  list                  its entries\n"
    "  show KEY [--cubin FILE | --sass | --ptx | --source]\n"
    "                        one entry; KEY may be its first digits, four at least. --cubin writes its machine code,\n"
    "                        --sass shows it by the toolkit's nvdisasm, --ptx shows what was kept of it in the\n"
    "                        folder $KJIT_DUMP, --source shows the defines and the digests of the sources that were\n"
    "                        compiled\n"
    "  why KEY               what differs from the nearest other entry, sources by their line; with - for KEY, of the\n"
    "                        key that 'kjit compile --show-key' printed, read from standard input\n"
    "  stats                 what it holds, and hits, misses, builds and waits of all processes\n"
    "  verify [--repair]     check every entry; exit code 1 if one is damaged; --repair removes those\n"
    "  verify --remote URL [--key PUBLIC]...\n"
    "                        look whether the store has every entry, sound and with --key signed; exit code 1 if not\n"
    "  push --remote URL     write every entry that the store lacks\n"
    "  sign --remote URL --key SECRET\n"
    "                        the same, signed, in place of what is not signed by this key\n"
    "  prune [--max-bytes N] remove the least recently used; by default down to the cache's own bound\n"
    "  clear                 remove every entry\n"
    "  export FILE [FILTER]  write entries as a bundle; FILTER: family=, arch=, entry=, label=, key=, separated by "
    "commas\n"
    "  import FILE [--key PUBLIC]...\n"
    "                        take the kernels of a bundle into the cache; with --key only one that this key signed\n";

struct cache_options {
  struct option_list words; /* action, then its arguments */
  struct option_list keys;  /* public ones, to trust */
  uint64_t max_bytes;
  const char *cubin;
  const char *remote; /* URLs of stores */
  bool repair, sass, ptx, source, json;
};

struct cache_action {
  const char *name;
  const char *argument; /* NULL: none */
  bool takes_more;      /* one more argument, which may be missing */
  bool takes_max_bytes, takes_repair, takes_keys, takes_remote;
  int (*run)(kjit_runtime *runtime, const struct cache_options *options);
};

static int action_path(kjit_runtime *runtime, const struct cache_options *options) {
  const char *path = kjit_cache_path(runtime);
  if (path == NULL) return failure("there is no cache folder; 'kjit doctor' says why");
  if (options->json) return print_json(json_pack("{s:o}", "path", json_text(path)));
  return printf("%s\n", path) < 0 ? EXIT_FAILED : print_text("");
}

static int action_list(kjit_runtime *runtime, const struct cache_options *options) {
  return cache_entries_list(runtime, options->json);
}

static int action_show(kjit_runtime *runtime, const struct cache_options *options) {
  if (options->cubin != NULL) return cache_entries_cubin(runtime, options->words.items[1], options->cubin);
  if (options->sass) return cache_entries_sass(runtime, options->words.items[1]);
  if (options->ptx) return cache_entries_ptx(runtime, options->words.items[1]);
  if (options->source) return cache_entries_source(runtime, options->words.items[1]);
  return cache_entries_show(runtime, options->words.items[1], options->json);
}

static int action_why(kjit_runtime *runtime, const struct cache_options *options) {
  return cache_entries_why(runtime, options->words.items[1], options->json);
}

/* The counters of kjit_cache_stats in the order in which they are printed: a member's name, also its name in JSON, and
 * the words for people. TIME marks nanoseconds, which people see as seconds. */
#define STATS(COUNT, TIME)                                                                                             \
  COUNT(entries, "entries")                                                                                            \
  COUNT(bytes, "bytes")                                                                                                \
  COUNT(max_entries, "entries allowed")                                                                                \
  COUNT(max_bytes, "bytes allowed")                                                                                    \
  COUNT(hits, "hits")                                                                                                  \
  COUNT(misses, "misses")                                                                                              \
  COUNT(builds, "builds")                                                                                              \
  COUNT(build_failures, "failed builds")                                                                               \
  TIME(build_ns, "time building")                                                                                      \
  COUNT(waits, "waits for another's build")                                                                            \
  TIME(wait_ns, "time waiting")                                                                                        \
  COUNT(rebuilt_entries, "entries rebuilt")                                                                            \
  COUNT(evictions, "entries evicted")                                                                                  \
  COUNT(published, "entries written")                                                                                  \
  COUNT(bytes_read, "bytes read")                                                                                      \
  COUNT(bytes_written, "bytes written")                                                                                \
  COUNT(cache_errors, "file errors")

static json_t *stats_json(const kjit_cache_stats *stats) {
  json_t *object = json_object();
#define STATS_JSON(member, text) json_object_set_new(object, #member, json_integer((json_int_t)stats->member));
  STATS(STATS_JSON, STATS_JSON)
#undef STATS_JSON
  return object;
}

static int action_stats(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  kjit_error error = {0};
  if (kjit_cache_get_stats(runtime, &stats, &error) != KJIT_OK) return report_failure(options->json, &error, NULL);
  if (options->json) return print_json(stats_json(&stats));
#define STATS_COUNT(member, text) printf("%-26s %llu\n", text, (unsigned long long)stats.member);
#define STATS_TIME(member, text)  printf("%-26s %.3f s\n", text, 1e-9 * (double)stats.member);
  STATS(STATS_COUNT, STATS_TIME)
#undef STATS_COUNT
#undef STATS_TIME
  return print_text("");
}

static int print_cache_report(const kjit_cache_report *report, bool json) {
  if (json)
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "entries", (json_int_t)report->entries, "bytes",
                                (json_int_t)report->bytes, "damaged", (json_int_t)report->damaged, "removed",
                                (json_int_t)report->removed, "removed_bytes", (json_int_t)report->removed_bytes,
                                "temporary_files", (json_int_t)report->temporary_files));
  printf("%llu entries of %llu bytes, %llu damaged, %llu removed (%llu bytes), %llu temporary files\n",
         (unsigned long long)report->entries, (unsigned long long)report->bytes, (unsigned long long)report->damaged,
         (unsigned long long)report->removed, (unsigned long long)report->removed_bytes,
         (unsigned long long)report->temporary_files);
  return print_text("");
}

static int print_remote_report(const kjit_remote_report *report, bool json) {
  if (json)
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "entries", (json_int_t)report->entries, "present",
                                (json_int_t)report->present, "missing", (json_int_t)report->missing, "refused",
                                (json_int_t)report->refused, "failed", (json_int_t)report->failed, "written",
                                (json_int_t)report->written));
  printf("%llu entries: %llu in the store, %llu missing, %llu refused, %llu without an answer; %llu written\n",
         (unsigned long long)report->entries, (unsigned long long)report->present, (unsigned long long)report->missing,
         (unsigned long long)report->refused, (unsigned long long)report->failed, (unsigned long long)report->written);
  return print_text("");
}

static int verify_remote(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_remote_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_remote_check(runtime, &report, &error) != KJIT_OK) return report_failure(options->json, &error, NULL);
  const int code = print_remote_report(&report, options->json);
  return report.present < report.entries ? EXIT_FAILED : code;
}

/* `push` and `sign`: the runtime has the signing key of the latter. */
static int action_push(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_remote_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_remote_push(runtime, &report, &error) != KJIT_OK) return report_failure(options->json, &error, NULL);
  const int code = print_remote_report(&report, options->json);
  return report.present + report.written < report.entries ? EXIT_FAILED : code;
}

static int action_verify(kjit_runtime *runtime, const struct cache_options *options) {
  if (options->remote != NULL) return verify_remote(runtime, options);
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_cache_verify(runtime, options->repair ? KJIT_CACHE_REPAIR : 0, &report, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  const int code = print_cache_report(&report, options->json);
  return report.damaged > report.removed ? EXIT_FAILED : code;
}

/* The bound to prune to: --max-bytes, or without it the bound that the cache keeps by itself. */
static kjit_status prune_bound(kjit_runtime *runtime, const struct cache_options *options, uint64_t *bound,
                               kjit_error *error) {
  kjit_cache_stats stats = {.struct_size = sizeof stats};
  *bound = options->max_bytes;
  if (options->max_bytes != UINT64_MAX) return KJIT_OK;
  const kjit_status status = kjit_cache_get_stats(runtime, &stats, error);
  *bound = stats.max_bytes;
  return status;
}

static int action_prune(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  uint64_t bound;
  if (prune_bound(runtime, options, &bound, &error) != KJIT_OK ||
      kjit_cache_prune(runtime, bound, &report, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  return print_cache_report(&report, options->json);
}

static int action_clear(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_cache_clear(runtime, &report, &error) != KJIT_OK) return report_failure(options->json, &error, NULL);
  return print_cache_report(&report, options->json);
}

static int action_export(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  const char *filter = options->words.count > 2 ? options->words.items[2] : NULL;
  if (kjit_cache_export(runtime, options->words.items[1], filter, &report, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  return print_cache_report(&report, options->json);
}

static int action_import(kjit_runtime *runtime, const struct cache_options *options) {
  kjit_cache_report report = {.struct_size = sizeof report};
  kjit_error error = {0};
  if (kjit_cache_import(runtime, options->words.items[1], &report, &error) != KJIT_OK)
    return report_failure(options->json, &error, NULL);
  const int code = print_cache_report(&report, options->json);
  return report.damaged > 0 ? EXIT_FAILED : code;
}

static const struct cache_action actions[] = {
    {.name = "path", .run = action_path},
    {.name = "list", .run = action_list},
    {.name = "show", .argument = "KEY", .run = action_show},
    {.name = "why", .argument = "KEY", .run = action_why},
    {.name = "stats", .run = action_stats},
    {.name = "verify", .takes_repair = true, .takes_keys = true, .takes_remote = true, .run = action_verify},
    {.name = "push", .takes_remote = true, .run = action_push},
    {.name = "sign", .takes_keys = true, .takes_remote = true, .run = action_push},
    {.name = "prune", .takes_max_bytes = true, .run = action_prune},
    {.name = "clear", .run = action_clear},
    {.name = "export", .argument = "FILE", .takes_more = true, .run = action_export},
    {.name = "import", .argument = "FILE", .takes_keys = true, .run = action_import},
};

static const struct cache_action *action_find(const char *name) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return &actions[i];
  return NULL;
}

static void cache_print_actions(void) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    puts(actions[i].name);
}

static int options_check(const struct cache_action *action, const struct cache_options *options) {
  const char *const *words = options->words.items;
  const size_t wanted = action->argument != NULL ? 2 : 1, most = wanted + (action->takes_more ? 1 : 0);
  if (options->words.count < wanted) return usage_error("cache %s: %s is missing", action->name, action->argument);
  if (options->words.count > most) return usage_error("cache %s: unexpected argument '%s'", action->name, words[most]);
  if (options->keys.count > 0 && !action->takes_keys)
    return usage_error("cache %s: unknown option '--key'", action->name);
  const int views = (options->cubin != NULL) + options->sass + options->ptx + options->source;
  if (views > 0 && action->run != action_show)
    return usage_error("cache %s: --cubin, --sass, --ptx and --source belong to show", action->name);
  if (views > 1 || (views > 0 && options->json))
    return usage_error("cache show: one of --cubin, --sass, --ptx, --source and --json");
  if (options->remote != NULL && !action->takes_remote)
    return usage_error("cache %s: unknown option '--remote'", action->name);
  if (options->repair && options->remote != NULL) return usage_error("cache verify: --repair or --remote");
  if (strcmp(action->name, "sign") == 0 && options->keys.count != 1)
    return usage_error("cache sign: one --key with the secret key's file is needed");
  if (options->repair && !action->takes_repair) return usage_error("cache %s: unknown option '--repair'", action->name);
  if (options->max_bytes != UINT64_MAX && !action->takes_max_bytes)
    return usage_error("cache %s: unknown option '--max-bytes'", action->name);
  return -1;
}

static int cache_with(const struct cache_options *options) {
  if (options->words.count == 0) return usage_error("cache: an action is missing; 'kjit cache --help' lists them");
  const struct cache_action *action = action_find(options->words.items[0]);
  if (action == NULL)
    return usage_error("cache: unknown action '%s'; 'kjit cache --help' lists them", options->words.items[0]);
  int code = options_check(action, options);
  if (code >= 0) return code;
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  /* The key of `sign` is a secret one, so it is not read as one to trust. */
  const bool signs = strcmp(action->name, "sign") == 0;
  const struct option_list none = {0};
  const char **keys = bundle_keys_read(signs ? &none : &options->keys, &error);
  const struct runtime_wishes wishes = {.trusted_keys = keys,
                                        .trusted_key_count = signs ? 0 : options->keys.count,
                                        .remote = options->remote,
                                        .signing_key = signs ? options->keys.items[0] : NULL};
  if (keys == NULL || open_runtime_wishing(&runtime, &wishes, &error) != KJIT_OK)
    code = report_failure(options->json, &error, NULL);
  else
    code = action->run(runtime, options);
  kjit_runtime_destroy(runtime);
  free((void *)keys);
  return code;
}

static int cache_run(int argc, char **argv) {
  struct cache_options options = {.max_bytes = UINT64_MAX};
  const struct option table[] = {
      {.kind = OPTION_NUMBER, .name = "--max-bytes", .target = &options.max_bytes, .most = INT64_MAX},
      {.kind = OPTION_LIST, .name = "--key", .target = &options.keys},
      {.kind = OPTION_TEXT, .name = "--cubin", .target = &options.cubin},
      {.kind = OPTION_TEXT, .name = "--remote", .target = &options.remote},
      {.kind = OPTION_FLAG, .name = "--sass", .target = &options.sass},
      {.kind = OPTION_FLAG, .name = "--ptx", .target = &options.ptx},
      {.kind = OPTION_FLAG, .name = "--source", .target = &options.source},
      {.kind = OPTION_FLAG, .name = "--repair", .target = &options.repair},
      {.kind = OPTION_FLAG, .name = "--json", .target = &options.json},
      {.kind = OPTION_END},
  };
  int code = options_read(argc, argv, table, &options.words, usage);
  if (code < 0) code = cache_with(&options);
  option_list_free(&options.words);
  option_list_free(&options.keys);
  return code;
}

const struct command command_cache = {.name = "cache",
                                      .summary = "look at, check and clean the cache",
                                      .run = cache_run,
                                      .print_actions = cache_print_actions};
