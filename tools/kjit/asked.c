/* Collects what `kjit warm` and `kjit bundle create` are asked to build: the configs of every --set and the lines of
 * every --manifest go into one list of requests. One thread; nothing is compiled here. */
#include "asked.h"

#include "manifest.h"

int asked_check(const struct asked *asked, const char *command) {
  if (asked->sets.count + asked->manifests.count == 0)
    return usage_error("%s: at least one of --set and --manifest is needed", command);
  if (asked->family != NULL && asked->sets.count == 0)
    return usage_error("%s: --family says whose --set is meant, and there is none", command);
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
    status = manifest_read(asked->manifests.items[i], asked->archs, list, error);
  return status;
}

void asked_free(struct asked *asked) {
  option_list_free(&asked->sets);
  option_list_free(&asked->manifests);
}
