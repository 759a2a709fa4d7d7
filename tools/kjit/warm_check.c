/* `kjit warm --check --remote URL`: every request of the list is asked of the stores, without a folder and without
 * compiling. So it says what a machine with an empty folder would have to compile, over all shards. One thread. */
#include "warm_check.h"

#include "bundle.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* How many missing kernels are named one by one; further ones are counted. */
#define MISSING_PRINTED 10

struct check {
  size_t present, missing, failed;
  json_t *names; /* of those that are missing or could not be asked for */
};

static void check_request(kjit_runtime *runtime, const struct kernel_request *request, struct check *check) {
  kjit_artifact *artifact = NULL;
  kjit_error error = {0};
  char text[KJIT_CONFIG_TEXT_MAX + 64];
  const kjit_status status = request_artifact(runtime, request, KJIT_BUILD_NO_COMPILE, &artifact, &error);
  kjit_artifact_release(artifact);
  if (status == KJIT_OK) {
    check->present++;
    return;
  }
  request_print(request, text, sizeof text);
  json_array_append_new(check->names, json_text(text));
  const bool missing = status == KJIT_ERR_NOT_FOUND;
  check->missing += missing;
  check->failed += !missing;
  if (check->missing + check->failed > MISSING_PRINTED) return;
  fprintf(stderr, "kjit: %s: %s\n", text, missing ? "missing" : error.message);
}

static int print_check(const struct request_list *list, struct check *check, bool json) {
  const size_t absent = check->missing + check->failed;
  if (json)
    return print_json(json_pack("{s:I, s:I, s:I, s:I, s:O}", "distinct", (json_int_t)list->count, "present",
                                (json_int_t)check->present, "missing", (json_int_t)check->missing, "failed",
                                (json_int_t)check->failed, "kernels", check->names));
  if (absent > MISSING_PRINTED) fprintf(stderr, "kjit: and %zu more\n", absent - MISSING_PRINTED);
  printf("%zu distinct: %zu in the store, %zu missing, %zu failed\n", list->count, check->present, check->missing,
         check->failed);
  return print_text("");
}

int warm_check(const struct request_list *list, const char *remote, const struct option_list *keys, bool json) {
  kjit_runtime *runtime = NULL;
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  kjit_error error = {0};
  struct check check = {.names = json_array()};
  int code = EXIT_FAILED;
  const char **trusted = bundle_keys_read(keys, &error);
  const struct runtime_wishes wishes = {
      .trusted_keys = trusted, .trusted_key_count = keys->count, .remote = remote, .cache_mode = KJIT_CACHE_OFF};
  kjit_status status = trusted == NULL ? (kjit_status)error.status : open_runtime_wishing(&runtime, &wishes, &error);
  for (size_t i = 0; i < list->count && status == KJIT_OK; i++)
    check_request(runtime, &list->items[i], &check);
  if (status == KJIT_OK) status = kjit_runtime_get_stats(runtime, &stats, &error);
  if (status == KJIT_OK)
    code = print_check(list, &check, json);
  else
    code = report_failure(json, &error, NULL);
  /* A store that did not answer has not said that a kernel is missing. */
  if (status == KJIT_OK && stats.remote_errors > 0)
    code = failure("%llu calls to the store failed, so what is missing is not known",
                   (unsigned long long)stats.remote_errors);
  kjit_runtime_destroy(runtime);
  json_decref(check.names);
  free((void *)trusted);
  return check.present < list->count ? EXIT_FAILED : code;
}
