/* Collects what `kjit warm` and `kjit bundle create` are asked to build: the configs of every --set and the lines of
 * every --manifest go into one list of requests, and what killed recorders left beside a manifest is removed. One
 * thread; nothing is compiled here. */
#include "asked.h"

#include "manifest.h"

#include <string.h>

/* A manifest that was read, and its folder of sources swept. What cannot be removed, as in a folder that others own,
 * does not stand in the way of building, so it is no failure. */
static kjit_status take_manifest(const char *path, const char *archs, struct request_list *list, kjit_error *error) {
  const kjit_status status = manifest_read(path, archs, list, error);
  if (status == KJIT_OK && strcmp(path, "-") != 0) (void)!kjit_record_sweep(path, NULL, NULL);
  return status;
}

int asked_check(const struct asked *asked, const char *command) {
  if (asked->sets.count + asked->manifests.count == 0)
    return usage_error("%s: at least one of --set and --manifest is needed", command);
  if (asked->family != NULL && asked->sets.count == 0)
    return usage_error("%s: --family says whose --set is meant, and there is none", command);
  if (asked->archs != NULL && asked->archs[0] == '\0') return usage_error("%s: --arch is empty", command);
  if (asked->sets.count > 0 && asked->archs == NULL) return usage_error("%s: --set needs --arch", command);
  return -1;
}

kjit_status asked_collect(const struct asked *asked, struct request_list *list, kjit_error *error) {
  const kjit_family *family = NULL;
  kjit_status status = KJIT_OK;
  if (asked->sets.count > 0)
    status =
        family_files_find(&list->files, asked->family != NULL ? asked->family : "flash_forward", NULL, &family, error);
  for (size_t i = 0; i < asked->sets.count && status == KJIT_OK; i++)
    status = request_list_add_set(list, family, asked->sets.items[i], asked->archs, error);
  for (size_t i = 0; i < asked->manifests.count && status == KJIT_OK; i++)
    status = take_manifest(asked->manifests.items[i], asked->archs, list, error);
  return status;
}

void asked_free(struct asked *asked) {
  option_list_free(&asked->sets);
  option_list_free(&asked->manifests);
}
