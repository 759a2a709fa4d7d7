/* `kjit cache list`, `show` and `why`: the cache's entries for people, one line each or in full, and as JSON. The
 * library visits the entries and calls a function of this file for each of them; `user` is then the JSON value that is
 * being built. One thread. */
#include "cache_entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The library refuses key texts above 1 MiB; 128 bytes more hold the digest that may stand before the text. */
#define KEY_TEXT_MAX ((1u << 20) + 128)

/* How many digits of a key a table shows: enough to tell a hundred thousand entries apart, and `kjit cache show`
 * accepts them. */
#define SHORT_KEY 12

static json_t *entry_json(const kjit_cache_entry *entry) {
  return json_pack("{s:s, s:o, s:o, s:s, s:o, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:f, s:b, s:s}", "key", entry->key,
                   "family", json_text(entry->family), "label", json_text(entry->label), "arch", entry->arch, "entry",
                   json_text(entry->entry), "tier", kjit_origin_name((kjit_origin)entry->origin), "bytes",
                   (json_int_t)entry->bytes, "cubin_bytes", (json_int_t)entry->cubin_bytes, "last_used",
                   (json_int_t)entry->last_used, "registers", (int)entry->registers, "spill_bytes",
                   (int)entry->spill_bytes, "shared_bytes", (int)entry->shared_bytes, "compile_ms", entry->compile_ms,
                   "damaged", entry->status != KJIT_OK, "damage", entry->damage);
}

static void time_print(int64_t seconds, char text[20]) {
  const time_t when = (time_t)seconds;
  struct tm broken;
  if (localtime_r(&when, &broken) == NULL || strftime(text, 20, "%Y-%m-%d %H:%M:%S", &broken) == 0)
    snprintf(text, 20, "?");
}

static int entry_print_row(void *user, const kjit_cache_entry *entry) {
  char used[20];
  (void)user;
  time_print(entry->last_used, used);
  const bool sound = entry->status == KJIT_OK;
  printf("%.*s  %-8s %9llu  %s  %s %s\n", SHORT_KEY, entry->key, entry->arch, (unsigned long long)entry->bytes, used,
         sound ? entry->family : "damaged:", sound ? entry->label : entry->damage);
  return ferror(stdout);
}

static int entry_append(void *user, const kjit_cache_entry *entry) {
  return json_array_append_new(user, entry_json(entry));
}

int cache_entries_list(kjit_runtime *runtime, bool json) {
  kjit_error error = {0};
  json_t *entries = json ? json_array() : NULL;
  if (!json) printf("%-*s  %-8s %9s  %-19s  %s\n", SHORT_KEY, "key", "arch", "bytes", "last used", "what");
  const kjit_status status = kjit_cache_list(runtime, json ? entry_append : entry_print_row, entries, &error);
  if (status == KJIT_OK && json) return print_json(json_pack("{s:o}", "entries", entries));
  json_decref(entries);
  return status == KJIT_OK ? print_text("") : report_failure(json, &error, NULL);
}

static int entry_print_full(void *user, const kjit_cache_entry *entry) {
  char used[20];
  (void)user;
  time_print(entry->last_used, used);
  printf("key        %s\n", entry->key);
  if (entry->status != KJIT_OK) printf("damaged    %s\n", entry->damage);
  printf("kernel     %s of %s (%s)\n", entry->entry, entry->label, entry->family);
  printf("arch       %s\n", entry->arch);
  printf("tier       %s\n", kjit_origin_name((kjit_origin)entry->origin));
  printf("size       %llu bytes, cubin %llu\n", (unsigned long long)entry->bytes,
         (unsigned long long)entry->cubin_bytes);
  printf("compiled   in %.0f ms: %u registers, %u bytes spilled, %u bytes of static shared memory\n", entry->compile_ms,
         entry->registers, entry->spill_bytes, entry->shared_bytes);
  printf("last used  %s\n", used);
  if (entry->log[0] != '\0') printf("log\n%s\n", entry->log);
  printf("key text\n%s\n", entry->key_text);
  return ferror(stdout);
}

static int entry_keep(void *user, const kjit_cache_entry *entry) {
  json_t *object = entry_json(entry);
  json_object_set_new(object, "key_text", json_text(entry->key_text));
  json_object_set_new(object, "log", json_text(entry->log));
  *(json_t **)user = object;
  return 0;
}

int cache_entries_show(kjit_runtime *runtime, const char *key, bool json) {
  kjit_error error = {0};
  json_t *object = NULL;
  const kjit_status status = kjit_cache_show(runtime, key, json ? entry_keep : entry_print_full, &object, &error);
  if (status == KJIT_OK) return json ? print_json(object) : print_text("");
  json_decref(object);
  return report_failure(json, &error, NULL);
}

static json_t *line_json(const char *line) {
  return line ? json_text(line) : json_null();
}

static int difference_append(void *user, const kjit_cache_difference *difference) {
  json_t *object = json_pack("{s:o, s:o, s:o}", "field", json_text(difference->field), "wanted",
                             json_text(difference->wanted), "found", json_text(difference->found));
  if (difference->line > 0) {
    json_object_set_new(object, "line", json_integer(difference->line));
    json_object_set_new(object, "wanted_line", line_json(difference->wanted_line));
    json_object_set_new(object, "found_line", line_json(difference->found_line));
  }
  return json_array_append_new(user, object);
}

/* Where the texts of a source are kept, its first line that differs says more than their digests. */
static void print_difference(const json_t *difference) {
  static const char source[] = "source ", ended[] = "(the file ends before this line)";
  const char *field, *wanted, *found;
  if (json_unpack((json_t *)difference, "{s:s, s:s, s:s}", "field", &field, "wanted", &wanted, "found", &found) != 0)
    return;
  const json_int_t line = json_integer_value(json_object_get(difference, "line"));
  if (line > 0 && strncmp(field, source, strlen(source)) == 0) {
    wanted = json_string_value(json_object_get(difference, "wanted_line"));
    found = json_string_value(json_object_get(difference, "found_line"));
    wanted = wanted != NULL ? wanted : ended;
    found = found != NULL ? found : ended;
    printf("  %s:%lld:\n", field + strlen(source), (long long)line);
  } else {
    printf("  %s\n", field);
  }
  printf("    wanted  %s\n    found   %s\n", wanted, found);
}

static void print_differences(const char *nearest, const json_t *differences) {
  size_t i;
  json_t *difference;
  printf("nearest entry %.*s differs in:\n", SHORT_KEY, nearest);
  json_array_foreach(differences, i, difference) print_difference(difference);
}

static int why(kjit_runtime *runtime, const char *key, bool json) {
  char nearest[65];
  kjit_error error = {0};
  json_t *differences = json_array();
  const kjit_status status = kjit_cache_why(runtime, key, nearest, difference_append, differences, &error);
  if (status == KJIT_OK && json)
    return print_json(json_pack("{s:s, s:o}", "nearest", nearest, "differences", differences));
  if (status == KJIT_OK) print_differences(nearest, differences);
  json_decref(differences);
  return status == KJIT_OK ? print_text("") : report_failure(json, &error, NULL);
}

/* Read a key text from standard input, as `kjit compile --show-key` prints it: the digest on a line of its own, then
 * the text. The digest is cut off, because kjit_cache_why() wants the text; a text without it is taken as it is. */
static char *key_text_read(void) {
  char *text = malloc(KEY_TEXT_MAX + 1);
  const size_t bytes = text != NULL ? fread(text, 1, KEY_TEXT_MAX, stdin) : 0;
  if (text == NULL) return NULL;
  text[bytes] = '\0';
  const size_t digits = strspn(text, "0123456789abcdef");
  if (digits == 64 && text[digits] == '\n') memmove(text, text + digits + 1, bytes - digits);
  return text;
}

int cache_entries_why(kjit_runtime *runtime, const char *key, bool json) {
  if (strcmp(key, "-") != 0) return why(runtime, key, json);
  char *text = key_text_read();
  const int code = text != NULL ? why(runtime, text, json) : failure("out of memory");
  free(text);
  return code;
}
